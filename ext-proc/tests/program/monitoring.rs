//! The dashboard and the alert rules of `deploy/`: every expression parses and names metrics and labels of the service, and
//! every panel finds samples on a metrics page that was recorded after some traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use isotherm_router::Availability;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{Expr, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use crate::promql::{self, Sample};

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

/// The alerts that fire over the pages of these services, each by its own address.
fn firing(pages: &[&str]) -> Vec<String> {
    let samples: Vec<Sample> = (0..)
        .zip(pages)
        .flat_map(|(n, page)| promql::scraped(page, &format!("10.0.0.{n}:9091")))
        .collect();
    let rules = alerts()
        .into_iter()
        .filter(|(name, _)| name == "IsothermNoReplicaAvailable");
    let fires = |(_, expression): &(String, String)| {
        !promql::evaluate(&parse(expression).unwrap(), &samples).is_empty()
    };
    rules.filter(fires).map(|(name, _)| name).collect()
}

/// A page of a service with a pool of one queued request, whose replicas are in these states.
fn queued(states: &[Availability]) -> String {
    let replica = |(n, state): (usize, &Availability)| {
        let value = u8::from(*state == Availability::Available);
        format!(
            "isotherm_replica_available{{pool=\"llama\",replica=\"10.0.1.{n}:8000\",role=\"both\",state=\"{}\"}} {value}\n",
            state.as_ref()
        )
    };
    let replicas: String = states.iter().enumerate().map(replica).collect();
    format!(
        "isotherm_available_replicas{{pool=\"llama\"}} 0\nisotherm_queue_length{{pool=\"llama\"}} 1\n{replicas}"
    )
}

#[test]
fn a_queue_behind_busy_replicas_raises_no_page() {
    use Availability::{Available, Failing, Full, Hung, NoHeadroom, Pending};
    for states in [
        &[Pending, NoHeadroom, Full][..],
        // A request may wait for a replica although another accepts one.
        &[Available, Pending],
        &[Failing, Hung, Pending],
    ] {
        assert_eq!(firing(&[&queued(states)]), [""; 0], "{states:?}");
    }
}

#[test]
fn a_queue_that_no_replica_serves_raises_a_page() {
    use Availability::{Draining, Failing, Hung, NeverProbed, ProbeFailed, Stale};
    for states in [
        &[][..],
        &[Failing, Hung],
        &[NeverProbed, ProbeFailed, Stale],
        &[Draining],
    ] {
        assert_eq!(
            firing(&[&queued(states)]),
            ["IsothermNoReplicaAvailable"],
            "{states:?}"
        );
    }
}

#[test]
fn a_second_service_over_the_same_replicas_doubles_no_replica() {
    let page = read(RECORDED);
    let instances = ["10.0.0.1:9091", "10.0.0.2:9091"];
    let one = promql::scraped(&page, instances[0]);
    let two = [&one[..], &promql::scraped(&page, instances[1])].concat();
    let mut panels = panels();
    panels.retain(|(_, expression)| {
        let selectors = Uses::of(expression).selectors;
        let is_of_replicas = |name: &str| {
            // Each service counts its own requests.
            name.starts_with("isotherm_replica_") && name != "isotherm_replica_outstanding"
        };
        selectors
            .iter()
            .all(|selector| is_of_replicas(selector.name.as_deref().unwrap()))
    });
    assert!(panels.len() >= 4, "{panels:?}");
    for (panel, expression) in panels {
        let parsed = parse(&expression).unwrap();
        let alone = promql::evaluate(&parsed, &one);
        assert!(!alone.is_empty(), "{panel}");
        assert_eq!(promql::evaluate(&parsed, &two), alone, "{panel}");
    }
}

#[test]
fn a_share_that_no_engine_reports_is_no_zero() {
    let is_share = |(_, expression): &(String, String)| expression.contains(" / ");
    let shares: Vec<_> = panels().into_iter().filter(is_share).collect();
    assert!(!shares.is_empty());
    for (panel, expression) in shares {
        assert!(!expression.contains("vector(0)"), "{panel}: {expression}");
    }
}
