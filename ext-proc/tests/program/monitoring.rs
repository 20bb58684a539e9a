//! The dashboard and the rules of `deploy/`: every expression parses and names metrics and labels of the service, every panel
//! finds samples on a metrics page that was recorded after some traffic, and something reads every metric.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{Expr, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use crate::promql;

const DASHBOARD: &str = "deploy/helm/isotherm/monitoring/dashboard.json";
pub(crate) const ALERTS: &str = "deploy/helm/isotherm/monitoring/alerts.yaml";
const RECORDS: &str = "deploy/helm/isotherm/monitoring/aliases.yaml";
/// A page of a service with three simulated engines, after 160 streamed requests through Envoy by `isotherm run`.
const RECORDED: &str = "ext-proc/tests/data/service-metrics.txt";
/// Labels that Prometheus adds, and the bound of a histogram's bucket.
const OTHER_LABELS: [&str; 4] = ["namespace", "job", "instance", "le"];
/// A metric of Prometheus itself: whether it could read the page of a service.
const UP: &str = "up";

pub(crate) fn read(path: &str) -> String {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// A panel's expression.
struct Panel {
    title: String,
    expression: String,
    /// Whether the panel is in a row that opens on a click: of a function that most installations do not use.
    is_collapsed: bool,
}

/// The expressions of the dashboard, with Grafana's variables replaced.
fn panels() -> Vec<Panel> {
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let mut found = Vec::new();
    for outer in dashboard["panels"].as_array().unwrap() {
        let is_row = outer["type"] == "row";
        let inner = outer["panels"].as_array().filter(|_| is_row);
        let panels = inner.map_or_else(|| vec![outer], |panels| panels.iter().collect());
        for panel in panels {
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                let expression = expression.replace("$__rate_interval", "1m");
                let variables = ["$namespace", "$job", "$pool"];
                let replace = |text: String, variable| text.replace(variable, ".*");
                found.push(Panel {
                    title: panel["title"].as_str().unwrap().to_owned(),
                    expression: variables.into_iter().fold(expression, replace),
                    is_collapsed: is_row,
                });
            }
        }
    }
    found
}

/// The rules of a file.
pub(crate) fn rules(path: &str) -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read(path)).unwrap();
    let groups = file["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    rules.cloned().collect()
}

/// The expressions of a file's rules with their names.
fn expressions(path: &str, name: &str) -> Vec<(String, String)> {
    let text = |rule: &Value, name: &str| rule[name].as_str().unwrap().to_owned();
    let rules = rules(path).into_iter();
    rules
        .map(|rule| (text(&rule, name), text(&rule, "expr")))
        .collect()
}

/// The expressions of the alert rules with their names.
pub(crate) fn alerts() -> Vec<(String, String)> {
    expressions(ALERTS, "alert")
}

/// The labels of each metric, by the reference that is generated from the registry.
fn known_metrics() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/metrics.md");
    let (page, _) = page.split_once("\n## Names elsewhere").unwrap();
    let is_row = |line: &&str| line.starts_with("| `isotherm_") || line.starts_with("| `process_");
    let rows = page.lines().filter(is_row);
    let quoted = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let row = |row: &str| {
        let cells: Vec<_> = row.split('|').map(quoted).collect();
        (cells[1][0].clone(), cells[4].iter().cloned().collect())
    };
    let up = (UP.to_owned(), BTreeSet::new());
    rows.map(row).chain([up]).collect()
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
        _ if OTHER_LABELS[..3].contains(&&*matcher.name) => true,
        MatchOp::Equal => line.contains(&format!("{}=\"{}\"", matcher.name, matcher.value)),
        _ => line.contains(&format!("{}=\"", matcher.name)),
    };
    line.split(['{', ' ']).next() == name && selector.matchers.matchers.iter().all(is_matched)
}

#[test]
fn every_expression_names_metrics_and_labels_of_the_service() {
    let known = known_metrics();
    let records = expressions(RECORDS, "record");
    let panels = panels().into_iter().map(|it| (it.title, it.expression));
    for (name, expression) in panels.chain(alerts()).chain(records) {
        let uses = Uses::of(&expression);
        assert!(!uses.selectors.is_empty(), "{name}: no metric");
        let mut labels = uses.labels;
        let mut known_labels: BTreeSet<String> = OTHER_LABELS.map(str::to_owned).into();
        for selector in uses.selectors {
            let metric = selector.name.unwrap();
            let ends = ["_bucket", "_sum", "_count"];
            let base = ends.iter().find_map(|end| metric.strip_suffix(end));
            let of_metric = known.get(base.unwrap_or(&metric));
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
    let open = panels().into_iter().filter(|panel| !panel.is_collapsed);
    for Panel {
        title, expression, ..
    } in open
    {
        for selector in Uses::of(&expression).selectors {
            let is_there = page.lines().any(|line| is_sample(line, &selector));
            assert!(is_there, "{title}: no {selector:?}");
        }
    }
}

#[test]
fn a_second_service_over_the_same_replicas_doubles_no_replica() {
    let page = read(RECORDED);
    let instances = ["10.0.0.1:9091", "10.0.0.2:9091"];
    let one = promql::scraped(&page, instances[0]);
    let two = [&one[..], &promql::scraped(&page, instances[1])].concat();
    let mut panels = panels();
    panels.retain(|panel| {
        let selectors = Uses::of(&panel.expression).selectors;
        let is_of_replicas = |name: &str| {
            // Each service counts its own requests.
            name.starts_with("isotherm_replica_") && name != "isotherm_replica_outstanding"
        };
        selectors
            .iter()
            .all(|selector| is_of_replicas(selector.name.as_deref().unwrap()))
    });
    assert!(panels.len() >= 4);
    for panel in panels {
        let Panel {
            title, expression, ..
        } = panel;
        let parsed = parse(&expression).unwrap();
        let alone = promql::evaluate(&parsed, &one);
        assert!(!alone.is_empty(), "{title}");
        assert_eq!(promql::evaluate(&parsed, &two), alone, "{title}");
    }
}

#[test]
fn a_share_that_no_engine_reports_is_no_zero() {
    let is_share = |panel: &Panel| panel.expression.contains(" / ");
    let shares: Vec<_> = panels().into_iter().filter(is_share).collect();
    assert!(!shares.is_empty());
    for Panel {
        title, expression, ..
    } in shares
    {
        assert!(!expression.contains("vector(0)"), "{title}: {expression}");
    }
}

/// The text of every file below a folder.
fn texts(folder: &Path) -> String {
    let mut texts = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_source = path
            .extension()
            .is_some_and(|end| end == "rs" || end == "md");
        if path.is_dir() {
            texts.push_str(&self::texts(&path));
        } else if is_source && !path.ends_with("docs/metrics.md") {
            texts.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    texts
}

#[test]
fn every_metric_is_read_by_a_panel_a_rule_a_document_or_a_test() {
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut readers: String = [DASHBOARD, ALERTS, RECORDS].map(read).concat();
    for folder in ["docs", "envoy", "tests/e2e", "ext-proc/tests"] {
        readers.push_str(&texts(&root.join(folder)));
    }
    let names: BTreeSet<&str> = readers
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .collect();
    let is_read = |name: &str| {
        let ends = ["", "_bucket", "_sum", "_count"];
        let base = name.strip_suffix("_total").unwrap_or(name);
        names.contains(base)
            || ends
                .iter()
                .any(|end| names.contains(&*format!("{name}{end}")))
    };
    for name in known_metrics().keys() {
        assert!(is_read(name), "nothing reads {name}");
    }
}
