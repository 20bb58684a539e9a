//! The dashboard and the alert rules of `deploy/`: every expression parses and names metrics and labels of the service, and
//! every panel finds samples on a metrics page that was recorded after some traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{Expr, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

const DASHBOARD: &str = "deploy/helm/isotherm/monitoring/dashboard.json";
const ALERTS: &str = "deploy/helm/isotherm/monitoring/alerts.yaml";
/// A page of a service with three simulated engines, after 160 streamed requests through Envoy.
const RECORDED: &str = "ext-proc/tests/data/service-metrics.txt";
/// Labels that Prometheus adds, and the bound of a histogram's bucket.
const OTHER_LABELS: [&str; 3] = ["instance", "job", "le"];

fn read(path: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The expressions of the dashboard with the names of their panels, and with Grafana's variables replaced.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let expression = expression.replace("$__rate_interval", "1m");
            found.push((title.to_owned(), expression.replace("$pool", ".*")));
        }
    }
    found
}

/// The expressions of the alert rules with their names.
fn alerts() -> Vec<(String, String)> {
    let rules: Value = serde_saphyr::from_str(&read(ALERTS)).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |rule: &Value, name: &str| rule[name].as_str().unwrap().to_owned();
    rules
        .map(|rule| (text(rule, "alert"), text(rule, "expr")))
        .collect()
}

/// The labels of each metric, by the reference that is generated from the registry.
fn known_metrics() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `isotherm_"));
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let row = |row: &str| {
        let cells: Vec<_> = row.split('|').map(quoted).collect();
        (cells[1][0].clone(), cells[4].iter().cloned().collect())
    };
    rows.map(row).collect()
}

/// The selectors and the labels of an expression.
#[derive(Default)]
struct Uses {
    selectors: Vec<VectorSelector>,
    labels: BTreeSet<String>,
}

impl Uses {
    fn of(expression: &str) -> Self {
        let parsed = parse(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        let mut uses = Self::default();
        walk_expr(&mut uses, &parsed).unwrap();
        uses
    }
}

impl ExprVisitor for Uses {
    type Error = String;

    fn pre_visit(&mut self, expression: &Expr) -> Result<bool, String> {
        match expression {
            Expr::VectorSelector(selector) => self.selectors.push(selector.clone()),
            Expr::MatrixSelector(range) => self.selectors.push(range.vs.clone()),
            Expr::Aggregate(aggregate) => {
                let labels = aggregate.modifier.iter();
                let labels = labels.flat_map(|by| &by.labels().labels);
                self.labels.extend(labels.cloned());
            }
            _ => {}
        }
        Ok(true)
    }
}

/// Whether a line of a metrics page is a sample of a selector.
fn is_sample(line: &str, selector: &VectorSelector) -> bool {
    let name = selector.name.as_deref();
    let is_matched = |matcher: &Matcher| match &matcher.op {
        MatchOp::Equal => line.contains(&format!("{}=\"{}\"", matcher.name, matcher.value)),
        _ => line.contains(&format!("{}=\"", matcher.name)),
    };
    line.split(['{', ' ']).next() == name && selector.matchers.matchers.iter().all(is_matched)
}

#[test]
fn every_expression_names_metrics_and_labels_of_the_service() {
    let known = known_metrics();
    for (name, expression) in panels().into_iter().chain(alerts()) {
        let uses = Uses::of(&expression);
        assert!(!uses.selectors.is_empty(), "{name}: no metric");
        let mut labels = uses.labels;
        let mut known_labels: BTreeSet<String> = OTHER_LABELS.map(str::to_owned).into();
        for selector in uses.selectors {
            let metric = selector.name.unwrap();
            let base = metric.strip_suffix("_bucket").unwrap_or(&metric);
            let of_metric = known.get(base);
            let of_metric = of_metric.unwrap_or_else(|| panic!("{name}: no metric {metric}"));
            known_labels.extend(of_metric.iter().cloned());
            let matchers = selector.matchers.matchers.into_iter();
            labels.extend(matchers.map(|matcher| matcher.name));
        }
        for label in labels {
            assert!(known_labels.contains(&label), "{name}: no label {label}");
        }
    }
}

#[test]
fn no_panel_is_empty_after_some_traffic() {
    let page = read(RECORDED);
    for (panel, expression) in panels() {
        // A panel of errors shows zero while there are none.
        let has_default = expression.ends_with("or vector(0)");
        for selector in Uses::of(&expression).selectors {
            let is_there = page.lines().any(|line| is_sample(line, &selector));
            assert!(is_there || has_default, "{panel}: no {selector:?}");
        }
    }
}
