//! The files of `deploy`: alerts and their tests, the run book, the dashboard, the compose profile.
//! `tests/drills/alerts.rs` runs them against the real program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::documentation::{anchors, page};
use crate::grafana::{dashboard, queries};
use crate::image::below;
use crate::program::folder;

const ALERTS: &str = "deploy/prometheus/alerts.yml";
const DASHBOARD: &str = "deploy/grafana/dashboard.json";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The lines of each alert, by its name.
fn alerts() -> BTreeMap<String, String> {
    let text = page(ALERTS);
    let rules = text.split("      - alert: ").skip(1);
    let alerts: BTreeMap<String, String> = rules
        .map(|rule| rule.split_once('\n').unwrap())
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect();
    assert!(alerts.len() > 15, "{alerts:?}");
    alerts
}

/// The names of metrics of delayd in a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_ours = |word: &&str| word.starts_with("delayd_") || word.starts_with("process_");
    // `delayd_store_*` names a group.
    words.filter(is_ours).filter(|word| !word.ends_with('_')).map(str::to_owned).collect()
}

fn promtool(words: &[&str], folder: &Path) {
    let done = Command::new("promtool").args(words).current_dir(folder).output();
    let done = done.expect("this test needs promtool; scripts/test installs it");
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "promtool {words:?}\n{said}");
}

#[test]
fn the_alerts_pass_their_tests() {
    let folder = path("deploy/prometheus");
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"], &folder);
    promtool(&["test", "rules", "alerts_test.yml"], &folder);
}

#[test]
fn the_configurations_of_prometheus_are_valid() {
    let folder = folder();
    for name in ["deploy/prometheus/prometheus.yml", "deploy/compose/prometheus.yml"] {
        std::fs::copy(path(name), folder.path().join("prometheus.yml")).unwrap();
        std::fs::copy(path(ALERTS), folder.path().join("alerts.yml")).unwrap();
        std::fs::write(folder.path().join("token"), "secret").unwrap();
        promtool(&["check", "config", "prometheus.yml"], folder.path());
    }
}

#[test]
fn every_alert_has_a_severity_a_test_and_a_section_of_the_run_book() {
    let tests = page("deploy/prometheus/alerts_test.yml");
    let mut sections = BTreeSet::new();
    for (name, rule) in alerts() {
        let severities = ["{ severity: page }", "{ severity: ticket }"];
        assert!(severities.iter().any(|severity| rule.contains(severity)), "{name}: {rule}");
        for annotation in ["summary: ", "description: "] {
            assert!(rule.contains(annotation), "{name} has no {annotation}");
        }
        let tested = tests.split("  - name: ").find(|test| test.starts_with(&format!("{name}\n")));
        let tested = tested.unwrap_or_else(|| panic!("{name} has no test"));
        assert!(tested.contains("alertstate=\"firing\""), "{name} fires in no test");

        let url = rule.split("runbook_url: \"").nth(1).unwrap().split('"').next().unwrap();
        let (file, heading) = url.split_once('#').unwrap();
        let file = path("deploy/prometheus").join(file).canonicalize().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(heading, name.to_lowercase());
        assert!(anchors(&text).any(|anchor| anchor == heading), "{name}: {url} leads nowhere");
        sections.insert(name);
    }
    let run_book = page("docs/RUNBOOK.md");
    for section in run_book.split("\n### ").skip(1) {
        let (name, text) = section.split_once('\n').unwrap();
        assert!(sections.contains(name), "{name} is no alert");
        for part in ["**It means**", "**See the cause**", "**Do**", "**It ends**"] {
            assert!(text.contains(part), "{name} does not say {part}");
        }
    }
}

#[test]
fn every_metric_that_is_used_exists() {
    let page_of_metrics = page("docs/METRICS.md");
    let rows = page_of_metrics.lines().filter_map(|line| line.strip_prefix("| `"));
    let known: BTreeSet<&str> = rows.map(|row| row.split('`').next().unwrap()).collect();
    let exists = |name: &str| {
        let parts = ["_bucket", "_count", "_sum"];
        let base = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        known.contains(name) || known.contains(base)
    };
    for name in [ALERTS, "deploy/prometheus/alerts_test.yml", DASHBOARD, "docs/RUNBOOK.md"] {
        let mut unknown = metrics_in(&page(name));
        unknown.retain(|metric| !exists(metric));
        assert!(unknown.is_empty(), "{name}: docs/METRICS.md has no {unknown:?}");
    }
}

#[test]
fn the_queries_of_the_dashboard_can_be_parsed() {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (n, query) in queries("1m", "1h").iter().enumerate() {
        write!(rules, "      - record: q{n}\n        expr: |\n          {query}\n").unwrap();
    }
    let folder = folder();
    std::fs::write(folder.path().join("queries.yml"), rules).unwrap();
    promtool(&["check", "rules", "queries.yml"], folder.path());
}

#[test]
fn every_panel_has_a_place_and_a_description() {
    let dashboard = dashboard();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(places.insert(panel["gridPos"].to_string()), "{panel}");
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].is_string(), "{panel}");
        assert!(is_row || panel["datasource"]["uid"] == "${datasource}", "{panel}");
    }
}

/// The files that compose mounts exist, and its ports are open on this machine only.
#[test]
fn the_compose_profile_mounts_what_is_there() {
    let compose = page("docker-compose.yml");
    for (name, port) in [("prometheus", "9090"), ("grafana", "3000")] {
        let service = below(&compose, &format!("  {name}:"));
        assert!(service.contains("    profiles: [monitoring]\n"), "{service}");
        assert!(service.contains(&format!("- \"127.0.0.1:{port}:{port}\"\n")), "{service}");
        let image = service.lines().find_map(|line| line.trim().strip_prefix("image: ")).unwrap();
        let (_, version) = image.rsplit_once(':').unwrap();
        assert!(version.contains('.'), "{image} is not pinned");
        let mounts = service.lines().filter_map(|line| line.trim().strip_prefix("- ./"));
        let mounts: Vec<_> = mounts.map(|mount| mount.split(':').next().unwrap()).collect();
        assert!(mounts.len() >= 2, "{service}");
        for mount in mounts {
            assert!(path(mount).is_file(), "{mount} is missing");
        }
    }
    let targets = page("deploy/compose/prometheus.yml");
    for (instance, port) in [("delayd-1", 7799), ("delayd-2", 7798)] {
        assert!(compose.contains(&format!("  {instance}:\n")), "{instance}");
        assert!(targets.contains(&format!("- {instance}:{port}\n")), "{instance}");
    }
    let source = page("deploy/compose/datasource.yml");
    assert!(source.contains("url: http://prometheus:9090\n"), "{source}");
}
