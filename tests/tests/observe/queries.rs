//! The queries of the dashboard and of the alert rules, against the metrics that there are.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const REFERENCE: &str = include_str!("../../../docs/reference/metrics.md");
const DASHBOARD: &str = include_str!("../../../packaging/grafana/futae.json");
const RULES: &str = include_str!("../../../packaging/prometheus/futae.rules.yml");
/// What futae labels its metrics with, and what Prometheus adds.
const LABELS: [&str; 7] = [
    "level",
    "cache",
    "policy",
    "export",
    "class",
    "guest",
    "operation",
];
const ADDED: [&str; 2] = ["instance", "job"];

/// The series of a metric: of a histogram three, one of which has its steps.
fn series<'a>(name: &str, is_histogram: bool, labels: &[&'a str]) -> Vec<(String, Vec<&'a str>)> {
    if !is_histogram {
        return vec![(name.to_owned(), labels.to_vec())];
    }
    let with_ends = [labels, &["le"]].concat();
    vec![
        (format!("{name}_bucket"), with_ends),
        (format!("{name}_sum"), labels.to_vec()),
        (format!("{name}_count"), labels.to_vec()),
    ]
}

/// Every series of the reference, with its labels.
pub fn metrics() -> BTreeMap<String, Vec<&'static str>> {
    let (mut metrics, mut labels) = (BTreeMap::new(), Vec::new());
    for line in REFERENCE.lines() {
        if let Some(text) = line.strip_prefix("Labels: ") {
            let backquoted = text.split('`').skip(1).step_by(2);
            labels = backquoted.filter(|label| LABELS.contains(label)).collect();
        } else if let Some(rest) = line.strip_prefix("| `") {
            let name = rest.split('`').next().expect("a name");
            for (name, labels) in series(name, line.contains("| histogram |"), &labels) {
                let known = metrics.insert(name.clone(), labels);
                assert!(known.is_none(), "{name} twice");
            }
        }
    }
    metrics
}

/// What is wrong with a query whose result is written with these labels.
fn problem(query: &str, shown: &[&str]) -> Option<String> {
    let metrics = metrics();
    for pair in ["()", "{}", "[]"] {
        let (open, close) = pair.split_at(1);
        if query.matches(open).count() != query.matches(close).count() {
            return Some(format!("{pair} are not in pairs"));
        }
    }
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut known: BTreeSet<&str> = ADDED.into();
    for (at, _) in query.match_indices("futae_") {
        let rest = &query[at..];
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        let Some(labels) = metrics.get(name) else {
            return Some(format!("there is no {name}"));
        };
        known.extend(labels);
        let selector = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        for matcher in selector
            .unwrap_or_default()
            .split(',')
            .filter(|it| !it.is_empty())
        {
            let label = matcher.split(|c| !is_of_name(c)).next().unwrap_or_default();
            if !labels.contains(&label) && !ADDED.contains(&label) {
                return Some(format!("{name} has no label {label}"));
            }
        }
    }
    if query.contains("sum(") {
        known.clear();
    }
    let lost = shown.iter().find(|label| !known.contains(*label));
    lost.map(|label| format!("the result has no label {label}"))
}

/// The labels in a text with `{{label}}` or `{{ $labels.label }}` in it.
fn shown(text: &str) -> Vec<&str> {
    let parts = text
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split("}}").next());
    parts
        .map(|part| part.trim().trim_start_matches("$labels."))
        .collect()
}

/// All values of a key, wherever it is.
fn collect<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(object) => {
            if object.contains_key(key) {
                found.push(value);
            }
            object.values().for_each(|value| collect(value, key, found));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, key, found)),
        _ => {}
    }
}

/// The dashboard's queries.
pub fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let mut targets = Vec::new();
    collect(&dashboard, "expr", &mut targets);
    let query = |target: &&Value| target["expr"].as_str().expect("a text").to_owned();
    targets.iter().map(query).collect()
}

/// The alert rules: what each asks for, and says.
pub fn rules() -> Vec<(&'static str, &'static str)> {
    let rule = |rule: &'static str| {
        let field = |name: &str| {
            let mut lines = rule.lines();
            let line = lines.find_map(|line| line.trim().strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {rule}"))
        };
        (field("expr: "), field("summary: "))
    };
    RULES.split("- alert: ").skip(1).map(rule).collect()
}

#[test]
fn every_query_of_the_dashboard_asks_for_metrics_and_labels_that_there_are() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let (mut targets, mut variables) = (Vec::new(), Vec::new());
    collect(&dashboard, "expr", &mut targets);
    collect(&dashboard, "definition", &mut variables);
    assert!(
        targets.len() > 20 && variables.len() == 2,
        "{}",
        targets.len()
    );
    let text = |value: &'_ Value| value.as_str().expect("a text").to_owned();
    for target in targets {
        let (query, legend) = (text(&target["expr"]), text(&target["legendFormat"]));
        assert!(query.contains("futae_"), "{query}");
        assert_eq!(problem(&query, &shown(&legend)), None, "{query}\n{legend}");
    }
    for variable in variables {
        let query = text(&variable["definition"]);
        let label = query
            .trim_end_matches(')')
            .rsplit(", ")
            .next()
            .expect("a label");
        assert_eq!(problem(&query, &[label]), None, "{query}");
        assert_eq!(text(&variable["query"]["query"]), query);
    }
    let mut panels: Vec<_> = dashboard["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .collect();
    let count = panels.len();
    panels.sort_by_key(|panel| panel["id"].as_u64());
    panels.dedup_by_key(|panel| panel["id"].as_u64());
    assert_eq!(panels.len(), count, "two panels have one id");
}

#[test]
fn every_alert_asks_for_metrics_and_labels_that_there_are() {
    let rules = rules();
    assert!(rules.len() > 8, "{}", rules.len());
    for (query, summary) in rules {
        assert!(query.contains("futae"), "{query}");
        assert_eq!(problem(query, &shown(summary)), None, "{query}\n{summary}");
    }
}

#[test]
fn wrong_queries_are_found() {
    let says = |query, shown: &[&str]| problem(query, shown).unwrap_or_default();
    assert_eq!(
        says("futae_export_hits_total{export=\"a\"}", &["export"]),
        ""
    );
    assert_eq!(
        says("futae_export_hit_total", &[]),
        "there is no futae_export_hit_total"
    );
    let label = says("futae_export_hits_total{guest=\"a\"}", &[]);
    assert_eq!(label, "futae_export_hits_total has no label guest");
    assert_eq!(
        says("futae_connections", &["export"]),
        "the result has no label export"
    );
    assert_eq!(
        says("sum(futae_export_blind)", &["export"]),
        "the result has no label export"
    );
    assert_eq!(says("sum(futae_export_blind", &[]), "() are not in pairs");
}
