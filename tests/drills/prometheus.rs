//! Debian's Prometheus with the files of `deploy`. It scrapes one instance four times a second, and
//! all times of the rules are divided by 60.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::poll;

const CONFIG: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/prometheus.yml"));
const RULES: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/alerts.yml"));

/// The rules with windows, pauses and limits of time divided by 60: `[1h]`, `for: 5m`, `5 * 60`.
fn sixty_times_faster(rules: &str) -> String {
    let minutes = rules.replace(" * 60 * 60", " * @").replace(" * 60", "").replace('@', "60");
    let is_time = |before: &str| before.ends_with('[') || before.ends_with("for: ");
    let mut faster = String::new();
    let mut rest = minutes.as_str();
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (digits, after) = number.split_at(end);
        faster += before;
        faster += digits;
        rest = after;
        if is_time(before) {
            faster += match &after[..1] {
                "h" => "m",
                "m" => "s",
                other => panic!("a time in {other:?}: the drill knows h and m"),
            };
            rest = &after[1..];
        }
    }
    faster + rest
}

/// The example configuration, for another target and in a shorter time.
fn config(target: SocketAddr, with_token: bool) -> String {
    let config = CONFIG.replace(": 15s", ": 250ms").replace("127.0.0.1:7799", &target.to_string());
    assert!(config.contains(&target.to_string()) && config.contains("250ms"), "{config}");
    let authorization = "    authorization:\n      credentials_file: token\n";
    if with_token {
        assert!(config.contains(authorization), "{config}");
        return config;
    }
    config.replace(authorization, "")
}

/// A running Prometheus. Dropping it ends it.
#[derive(Debug)]
pub struct Prometheus {
    child: Child,
    address: SocketAddr,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Scrapes an instance without tokens.
    pub async fn scraping(target: SocketAddr) -> Self {
        Self::start(target, None).await
    }

    /// Scrapes an instance with a token.
    pub async fn scraping_with(target: SocketAddr, token: &str) -> Self {
        Self::start(target, Some(token)).await
    }

    async fn start(target: SocketAddr, token: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("alerts.yml"), sixty_times_faster(RULES)).unwrap();
        std::fs::write(file("prometheus.yml"), config(target, token.is_some())).unwrap();
        std::fs::write(file("token"), token.unwrap_or_default()).unwrap();
        let mut child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg("--web.listen-address=127.0.0.1:0")
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these drills need prometheus; scripts/nightly installs it");
        let address = watch::Sender::new(None);
        let mut found = address.subscribe();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let lines = log.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some((_, at)) = line.split_once("\"Listening on\" address=") {
                    address.send_replace(at.parse::<SocketAddr>().ok());
                }
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let waited =
            tokio::time::timeout(Duration::from_secs(30), found.wait_for(Option::is_some)).await;
        let Ok(Ok(address)) = waited.map(|at| at.map(|at| at.expect("it was just found"))) else {
            let _ = child.kill();
            panic!("Prometheus does not listen:\n{}", log.lock().unwrap());
        };
        let prometheus = Self { child, address, client: crate::load::client(), _folder: folder };
        let ready = async || prometheus.ask("/-/ready", &[]).await.is_some();
        assert!(poll::until(ready).await, "Prometheus is not ready");
        // A rate needs samples from before the cause.
        let has_begun = prometheus.answers("count_over_time(up[1m]) > 2").await;
        assert!(has_begun, "Prometheus does not scrape");
        prometheus
    }

    async fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Option<String> {
        let url = format!("http://{}{path}", self.address);
        let url = reqwest::Url::parse_with_params(&url, parameters).unwrap();
        let answer = self.client.get(url).send().await.ok()?;
        Some(answer).filter(|answer| answer.status() != 503)?.text().await.ok()
    }

    /// The samples of an expression.
    ///
    /// # Panics
    ///
    /// If Prometheus cannot parse or evaluate it.
    pub async fn query(&self, expression: &str) -> Vec<Value> {
        let Some(text) = self.ask("/api/v1/query", &[("query", expression)]).await else {
            return Vec::new();
        };
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Whether an expression has a sample within a minute.
    pub async fn answers(&self, expression: &str) -> bool {
        poll::until(async || !self.query(expression).await.is_empty()).await
    }

    /// Whether an expression has no sample any more within a minute.
    pub async fn is_silent(&self, expression: &str) -> bool {
        poll::until(async || self.query(expression).await.is_empty()).await
    }

    async fn get(&self, path: &str) -> Value {
        let text = self.ask(path, &[]).await.expect("Prometheus answers");
        serde_json::from_str::<Value>(&text).unwrap()["data"].clone()
    }

    /// The rules, as Prometheus evaluates them.
    pub async fn rules(&self) -> Vec<Value> {
        let data = self.get("/api/v1/rules").await;
        let groups = data["groups"].as_array().unwrap().iter();
        groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
    }

    /// The active alerts, pending or firing.
    pub async fn alerts(&self) -> Vec<Value> {
        self.get("/api/v1/alerts").await["alerts"].as_array().unwrap().clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn times_are_divided_by_60() {
    for (rule, expected) in [
        ("rate(x{code=~\"5..\"}[5m]) > 14.4", "rate(x{code=~\"5..\"}[5s]) > 14.4"),
        ("        for: 1h\n", "        for: 1m\n"),
        ("> 5 * 60", "> 5"),
        ("[6h], 24 * 60 * 60) < y", "[6m], 24 * 60) < y"),
    ] {
        assert_eq!(sixty_times_faster(rule), expected);
    }
}
