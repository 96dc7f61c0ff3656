//! The queries of `deploy/grafana/dashboard.json`.

use serde_json::Value;

/// The text of the dashboard.
const DASHBOARD: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/grafana/dashboard.json"));

pub fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).unwrap()
}

/// The queries of all panels, with the variables filled in: the job `delayd`, every instance, and
/// the times of Grafana.
pub fn queries(rate_interval: &str, range: &str) -> Vec<String> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let filled = |expr: &str| {
        expr.replace("$__rate_interval", rate_interval)
            .replace("$__range", range)
            .replace("$job", "delayd")
            .replace("$instance", ".*")
    };
    let queries: Vec<String> =
        targets.map(|target| filled(target["expr"].as_str().unwrap())).collect();
    assert!(queries.len() > 50, "{}", queries.len());
    assert!(!queries.iter().any(|query| query.contains('$')), "{queries:?}");
    queries
}
