//! The values of an alert or a panel at one instant, over samples as Prometheus stores them. It evaluates the part of PromQL
//! that gauges need. An expression that needs more fails its test.

use std::collections::BTreeMap;

use promql_parser::parser::{AggregateExpr, BinaryExpr, Expr, LabelModifier, VectorSelector};

/// The labels of a sample; `__name__` is its metric.
pub(crate) type Labels = BTreeMap<String, String>;
/// A sample: its labels and its value.
pub(crate) type Sample = (Labels, f64);

/// The samples of a metrics page, each with the label `instance` that Prometheus adds.
pub(crate) fn scraped(page: &str, instance: &str) -> Vec<Sample> {
    let lines = page
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| sample(line, instance)).collect()
}

fn sample(line: &str, instance: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let pairs = labels.trim_end_matches('}').split("\",");
    let pairs = pairs.filter_map(|pair| pair.split_once("=\""));
    let pairs =
        pairs.map(|(name, value)| (name.to_owned(), value.trim_end_matches('"').to_owned()));
    let mut labels: Labels = pairs.collect();
    labels.insert("__name__".to_owned(), name.to_owned());
    labels.insert("instance".to_owned(), instance.to_owned());
    (labels, value.parse().unwrap())
}

/// The samples that an expression yields.
pub(crate) fn evaluate(expression: &Expr, samples: &[Sample]) -> Vec<Sample> {
    match expression {
        Expr::Paren(inside) => evaluate(&inside.expr, samples),
        Expr::VectorSelector(selector) => select(selector, samples),
        Expr::Aggregate(aggregate) => fold(aggregate, samples),
        Expr::Binary(binary) => combine(binary, samples),
        other => panic!("the tests do not evaluate {other}"),
    }
}

fn select(selector: &VectorSelector, samples: &[Sample]) -> Vec<Sample> {
    let value = |labels: &Labels, name: &str| labels.get(name).cloned().unwrap_or_default();
    let is_selected = |(labels, _): &&Sample| {
        let is_named = selector.name == labels.get("__name__").cloned();
        let matchers = &selector.matchers.matchers;
        is_named
            && matchers
                .iter()
                .all(|matcher| matcher.is_match(&value(labels, &matcher.name)))
    };
    samples.iter().filter(is_selected).cloned().collect()
}

fn fold(aggregate: &AggregateExpr, samples: &[Sample]) -> Vec<Sample> {
    let mut groups: BTreeMap<Labels, Vec<f64>> = BTreeMap::new();
    for (labels, value) in evaluate(&aggregate.expr, samples) {
        let group = kept(&labels, aggregate.modifier.as_ref());
        groups.entry(group).or_default().push(value);
    }
    let folded = |values: Vec<f64>| match aggregate.op.to_string().as_str() {
        "sum" => values.iter().sum(),
        "count" => values.len() as f64,
        "max" => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
        other => panic!("the tests do not evaluate {other}"),
    };
    let groups = groups.into_iter();
    groups
        .map(|(labels, values)| (labels, folded(values)))
        .collect()
}

/// The labels that `by`, `on`, or their absence keep.
fn kept(labels: &Labels, modifier: Option<&LabelModifier>) -> Labels {
    let Some(LabelModifier::Include(names)) = modifier else {
        assert!(modifier.is_none(), "the tests evaluate no `without`");
        return Labels::new();
    };
    let labels = labels
        .iter()
        .filter(|(name, _)| names.labels.contains(name));
    labels
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn combine(binary: &BinaryExpr, samples: &[Sample]) -> Vec<Sample> {
    let left = evaluate(&binary.lhs, samples).into_iter();
    let op = binary.op.to_string();
    if let Expr::NumberLiteral(number) = &*binary.rhs {
        let holds = |value: f64| match op.as_str() {
            ">" => value > number.val,
            "==" => value == number.val,
            other => panic!("the tests do not evaluate {other}"),
        };
        return left.filter(|(_, value)| holds(*value)).collect();
    }
    let matching = binary
        .modifier
        .as_ref()
        .and_then(|modifier| modifier.matching.as_ref());
    let right = evaluate(&binary.rhs, samples);
    let right: Vec<Labels> = right
        .iter()
        .map(|(labels, _)| kept(labels, matching))
        .collect();
    let is_right = |labels: &Labels| right.contains(&kept(labels, matching));
    match op.as_str() {
        "and" => left.filter(|(labels, _)| is_right(labels)).collect(),
        "unless" => left.filter(|(labels, _)| !is_right(labels)).collect(),
        other => panic!("the tests do not evaluate {other}"),
    }
}
