//! Each alert of `deploy/prometheus/alerts.yml` becomes active when its cause is provoked in the
//! real program, and ends with it. Debian's Prometheus scrapes the program and evaluates the rules,
//! with all times divided by 60. How long an alert is pending is tested by `promtool`.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use delayd::model::token::TokenHash;
use serde_json::{Value, json};

use crate::disk::{as_seen_by, small_disk};
use crate::fake_time::FakeTime;
use crate::fleet;
use crate::full::Full;
use crate::grafana;
use crate::machine::Paused;
use crate::probe::Probe;
use crate::program::{Program, StoreAt, folder, serve};
use crate::prometheus::Prometheus;
use crate::receiver::{Answer, Receiver};
use crate::redis_server::{Server, ports};
use crate::row::Row;
use crate::strace::Injected;
use crate::{poll, quiet};

/// The program under a Prometheus, and the row of the drill.
struct Watched {
    row: Row,
    prometheus: Prometheus,
}

impl Watched {
    async fn new(drill: String, delayd: &Program) -> Self {
        let prometheus = Prometheus::scraping(delayd.address).await;
        Self { row: Row::new(drill), prometheus }
    }

    /// The alert becomes active, and its texts can be read. `labels` choose among several of the
    /// same name.
    async fn begins(&mut self, alert: &str, labels: &str) {
        let began = self.prometheus.answers(&active(alert, labels)).await;
        self.row.promise(began, format!("{alert}{{{labels}}} does not begin"));
        for one in self.prometheus.alerts().await {
            let texts = one["annotations"].to_string();
            let is_whole = !texts.contains("<error") && !texts.contains("<no value>");
            self.row.promise(is_whole, format!("{alert}: {texts}"));
        }
    }

    async fn ends(&mut self, alert: &str, labels: &str) {
        let ended = self.prometheus.is_silent(&active(alert, labels)).await;
        self.row.promise(ended, format!("{alert}{{{labels}}} does not end"));
    }
}

/// The query for an alert that is pending or firing.
fn active(alert: &str, labels: &str) -> String {
    format!("ALERTS{{alertname=\"{alert}\",{labels}}}")
}

/// A program with several services, whose receiver answers as the path of a task says.
struct Scene {
    delayd: Program,
    receiver: Receiver,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

/// The services of the scene.
const SERVICES: [(&str, &str); 7] = [
    ("takes", ""),
    ("fails", ""),
    ("held", ""),
    ("slow", "concurrency = 1\n"),
    ("limited", "rate = \"1/m\"\n"),
    ("gone", ""),
    (
        "secret",
        "oauth = { token_url = 'http://127.0.0.1:1/', client_id = 'a', client_secret = 'b' }\n",
    ),
];

impl Scene {
    async fn set(store: impl FnOnce(&Path) -> StoreAt) -> Self {
        let receiver = Receiver::answering(|call| match call.path.as_str() {
            "/fail" => Answer::Status(503),
            "/refuse" => Answer::Status(400),
            "/slow" => Answer::AtTheGate,
            _ => Answer::Status(200),
        })
        .await;
        let folder = folder();
        let file = folder.path().join("delayd.toml");
        std::fs::write(&file, configuration(&receiver, |_| true)).unwrap();
        let mut command = serve(&store(folder.path()), &[quiet()]);
        command.arg("--config").arg(&file);
        Self { delayd: Program::launch(command).await, receiver, file, _folder: folder }
    }

    /// Saves a configuration, which the program reads at once.
    fn save(&self, text: &str) {
        let new = self.file.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.file).unwrap();
        self.delayd.signal("HUP");
    }

    /// Adds tasks for a path of a service.
    async fn add(&self, count: usize, service: &str, path: &str, delay: &str) {
        let task = json!({
            "topic": format!("alert.{service}"), "delay": delay, "max_attempts": 1,
            "content": {"sn": service, "url": path},
        });
        self.delayd.add_all(&vec![task; count]).await;
    }

    async fn post(&self, path: &str, body: Value) {
        self.delayd.post_until_confirmed(path, &body).await.ok();
    }

    /// A schedule of each second waits for a held service.
    async fn miss_moments(&self) {
        self.add(1, "held", "/", "0s").await;
        self.post("/delay/destination/hold", json!({"sn": "held"})).await;
        let schedule = json!({
            "topic": "alert.held", "schedule": "tick", "every": "1s",
            "content": {"sn": "held", "url": "/missed"},
        });
        self.post("/delay/schedule/set", schedule).await;
        // Some moments pass.
        tokio::time::sleep(Duration::from_secs(5)).await;
        self.post("/delay/destination/release", json!({"sn": "held"})).await;
        let is_there = async || self.receiver.seen().iter().any(|seen| seen.path == "/missed");
        assert!(poll::until(is_there).await, "{}", self.delayd.log());
        let name = json!({"topic": "alert.held", "schedule": "tick"});
        self.post("/delay/schedule/delete", name).await;
    }

    /// Consumers take tasks with a lease, and do not acknowledge them.
    async fn lose_leases(&self, count: usize) {
        let task = json!({"topic": "alert.pulled", "delay": 0, "mode": "pull", "content": {}});
        self.delayd.add_all(&vec![task; count]).await;
        let pull = json!({"topic": "alert.pulled", "count": 256, "lease": "1s", "wait": "10s"});
        let mut taken = 0;
        // The tasks come back when their leases have run out.
        while taken < 2 * count {
            let answer = self.delayd.post_until_confirmed("/delay/task/pull", &pull).await.ok();
            taken += answer.body["tasks"].as_array().map_or(0, Vec::len);
        }
    }
}

fn configuration(receiver: &Receiver, has: impl Fn(&str) -> bool) -> String {
    let services = SERVICES.iter().filter(|(name, _)| has(name)).map(|(name, more)| {
        format!("[services.{name}]\nendpoints = [\"{}\"]\n{more}", receiver.endpoint())
    });
    services.collect()
}

/// Something that is done to the scene.
type Step = for<'a> fn(&'a Scene) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// An alert, and how its cause begins. Its end is `None` if that takes a whole window.
struct Cause {
    alert: &'static str,
    labels: &'static str,
    begin: Step,
    end: Option<Step>,
}

/// One after the other, on both stores.
const CAUSES: &[Cause] = &[
    Cause {
        alert: "TasksDying",
        labels: "",
        begin: |scene| Box::pin(scene.add(20, "takes", "/refuse", "0s")),
        end: None,
    },
    Cause {
        alert: "DestinationOpen",
        labels: "service=\"fails\"",
        begin: |scene| Box::pin(scene.add(50, "fails", "/fail", "0s")),
        end: Some(|scene| {
            Box::pin(async {
                scene.receiver.answer(|call| match call.path.as_str() {
                    "/slow" => Answer::AtTheGate,
                    _ => Answer::Status(200),
                });
                // These are the probes.
                scene.add(50, "fails", "/", "0s").await;
            })
        }),
    },
    Cause {
        alert: "AccessTokenMissing",
        labels: "service=\"secret\"",
        begin: |_| Box::pin(async {}),
        end: Some(|scene| {
            Box::pin(async {
                scene.save(&configuration(&scene.receiver, |name| name != "secret"));
            })
        }),
    },
    Cause {
        alert: "ScheduleMomentsMissed",
        labels: "",
        begin: |scene| Box::pin(scene.miss_moments()),
        end: None,
    },
    Cause {
        alert: "HeldOrPausedLong",
        labels: "service=\"held\"",
        begin: |scene| Box::pin(scene.post("/delay/destination/hold", json!({"sn": "held"}))),
        end: Some(|scene| {
            Box::pin(scene.post("/delay/destination/release", json!({"sn": "held"})))
        }),
    },
    Cause {
        alert: "HeldOrPausedLong",
        labels: "service=\"\"",
        begin: |scene| {
            Box::pin(async {
                scene.add(1, "takes", "/", "0s").await;
                scene.post("/delay/topic/pause", json!({"topic": "alert.takes"})).await;
                scene.add(5, "takes", "/", "0s").await;
            })
        },
        end: Some(|scene| {
            Box::pin(scene.post("/delay/topic/resume", json!({"topic": "alert.takes"})))
        }),
    },
    Cause {
        alert: "SlotsSaturated",
        labels: "service=\"slow\"",
        begin: |scene| Box::pin(scene.add(5, "slow", "/slow", "0s")),
        end: Some(|scene| Box::pin(async { scene.receiver.open_gate() })),
    },
    Cause {
        alert: "ForecastExceedsCapacity",
        labels: "service=\"limited\"",
        begin: |scene| {
            Box::pin(async {
                // The first call says how long one takes.
                scene.add(1, "limited", "/", "0s").await;
                scene.add(500, "limited", "/", "30m").await;
            })
        },
        end: None,
    },
    Cause {
        alert: "LeasesExpiring",
        labels: "mode=\"pull\"",
        begin: |scene| Box::pin(scene.lose_leases(50)),
        end: None,
    },
    Cause {
        alert: "DestinationUnconfigured",
        labels: "service=\"gone\"",
        begin: |scene| {
            Box::pin(async {
                scene.add(5, "gone", "/", "1h").await;
                scene.save(&configuration(&scene.receiver, |name| name != "gone"));
            })
        },
        end: Some(|scene| {
            Box::pin(async { scene.save(&configuration(&scene.receiver, |_| true)) })
        }),
    },
    Cause {
        alert: "ConfigRefused",
        labels: "",
        begin: |scene| Box::pin(async { scene.save("[services.takes]\nendpoints = []\n") }),
        end: Some(|scene| {
            Box::pin(async { scene.save(&configuration(&scene.receiver, |_| true)) })
        }),
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn causes_around_an_embedded_store() {
    every_cause_has_its_alert("embedded", Scene::set(fleet::embedded).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_around_redis() {
    let server = Server::start();
    every_cause_has_its_alert("Redis", Scene::set(|_| fleet::redis(&server)).await).await;
}

async fn every_cause_has_its_alert(on: &str, scene: Scene) {
    let mut watched = Watched::new(format!("alerts for services, {on}"), &scene.delayd).await;
    for cause in CAUSES {
        (cause.begin)(&scene).await;
        watched.begins(cause.alert, cause.labels).await;
        if let Some(end) = cause.end {
            end(&scene).await;
            watched.ends(cause.alert, cause.labels).await;
        }
    }
    watched.row.note(format!("{} alerts", CAUSES.len()));
    watched.row.finish();
}

/// A caller that adds due tasks, ten a second.
fn caller(delayd: &Program) -> Probe {
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": crate::SERVICE, "url": "/"}});
    let url = delayd.url("/delay/task/add");
    Probe::start(url, task.to_string(), Duration::from_millis(100))
}

/// Redis is silent. Nothing is accepted, the figures of the store grow old, and the tasks that fell
/// due meanwhile are late.
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_silent() {
    let (server, receiver) = (Server::start(), Receiver::start().await);
    let sets = [crate::service(crate::SERVICE, &receiver.endpoint()), quiet()];
    let delayd = Program::start(&fleet::redis(&server), &sets).await;
    let mut watched = Watched::new("alerts for a silent Redis".into(), &delayd).await;
    let caller = caller(&delayd);
    receiver.wait_for(10).await;
    let task = json!({"topic": "t", "delay": "1s", "content": {"sn": crate::SERVICE, "url": "/"}});
    delayd.add_all(&vec![task; 100]).await;
    let silent = Paused::now(server.pid());
    watched.begins("StoreUnavailable", "server=~\".+\"").await;
    watched.begins("AddsRejected", "").await;
    watched.begins("SamplerStale", "").await;
    drop(silent);
    watched.ends("StoreUnavailable", "").await;
    watched.ends("SamplerStale", "").await;
    watched.begins("LatenessBudgetBurn", "").await;
    watched.ends("AddsRejected", "").await;
    caller.stop().await;
    watched.row.finish();
}

/// Every fsync of the embedded store takes so long that the callers get 503.
#[tokio::test(flavor = "multi_thread")]
async fn the_disk_hangs() {
    let (folder, receiver) = (folder(), Receiver::start().await);
    let sets = [crate::service(crate::SERVICE, &receiver.endpoint()), quiet()];
    let delayd = Program::start(&fleet::embedded(folder.path()), &sets).await;
    let mut watched = Watched::new("alerts for a disk that hangs, embedded".into(), &delayd).await;
    let caller = caller(&delayd);
    receiver.wait_for(1).await;
    let pid = delayd.pid();
    let hangs = tokio::task::block_in_place(|| Injected::into_fsyncs(pid, "delay_enter=4000000"));
    watched.begins("StoreUnavailable", "").await;
    watched.begins("AddsRejected", "").await;
    tokio::task::block_in_place(|| drop(hangs));
    watched.ends("StoreUnavailable", "").await;
    watched.ends("AddsRejected", "").await;
    caller.stop().await;
    watched.row.finish();
}

/// The disk of the embedded store loses space, and then has none.
#[tokio::test(flavor = "multi_thread")]
async fn the_disk_fills_up() {
    let (folder, receiver) = (folder(), Receiver::start().await);
    let sets = [crate::service(crate::SERVICE, &receiver.endpoint()), quiet()];
    let store = fleet::embedded(folder.path());
    let delayd = Program::start_by(&store, &sets, small_disk(folder.path())).await;
    let mut watched = Watched::new("alerts for a full disk, embedded".into(), &delayd).await;
    let caller = caller(&delayd);
    let disk = as_seen_by(delayd.pid(), folder.path());
    let filled = watched.prometheus.answers("delayd_disk_free_bytes > 0").await;
    watched.row.promise(filled, "the free space is unknown");
    std::fs::write(disk.join("other"), vec![0; 64 << 20]).unwrap();
    watched.begins("DiskFillingUp", "").await;
    let schedule = json!({
        "topic": "t", "schedule": "tick", "every": "1s",
        "content": {"sn": crate::SERVICE, "url": "/"},
    });
    delayd.post_until_confirmed("/delay/schedule/set", &schedule).await.ok();
    let full = tokio::task::block_in_place(|| Full::of(&disk));
    watched.begins("DiskReserveReached", "").await;
    watched.begins("SchedulesNotPlanned", "").await;
    watched.begins("AddsRejected", "").await;
    drop(full);
    std::fs::remove_file(disk.join("other")).unwrap();
    watched.ends("DiskReserveReached", "").await;
    watched.ends("SchedulesNotPlanned", "").await;
    watched.ends("AddsRejected", "").await;
    caller.stop().await;
    watched.row.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_calls_on_an_embedded_store() {
    let folder = folder();
    no_instance_calls("embedded", fleet::embedded(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_calls_on_redis() {
    let server = Server::start();
    no_instance_calls("Redis", fleet::redis(&server)).await;
}

/// The only instance makes no callbacks. It is stopped, and its successor calls the tasks.
async fn no_instance_calls(on: &str, store: StoreAt) {
    let receiver = Receiver::start().await;
    let mut sets = vec![
        crate::service(crate::SERVICE, &receiver.endpoint()),
        quiet(),
        // The successor listens at the same address.
        format!("http.bind=\"127.0.0.1:{}\"", ports::take()),
        "worker.enabled=false".into(),
    ];
    let idle = Program::start(&store, &sets).await;
    let drill = format!("alerts for an instance that makes no callbacks and ends, {on}");
    let mut watched = Watched::new(drill, &idle).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": crate::SERVICE, "url": "/"}});
    idle.add_all(&vec![task; 20]).await;
    watched.begins("OverdueStuck", "culprit=\"delayd\"").await;
    watched.begins("LatenessBudgetBurn", "").await;
    idle.kill();
    watched.begins("DelaydDown", "").await;
    sets.pop();
    let _calling = Program::start(&store, &sets).await;
    watched.ends("DelaydDown", "").await;
    watched.ends("OverdueStuck", "").await;
    watched.row.finish();
}

/// The clock of Redis is half a minute ahead.
#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_redis_is_wrong() {
    let folder = folder();
    let clock = FakeTime::right(folder.path());
    let server = Server::in_surroundings(&[], &clock.variables());
    let receiver = Receiver::start().await;
    let sets = [crate::service(crate::SERVICE, &receiver.endpoint()), quiet()];
    let delayd = Program::start(&fleet::redis(&server), &sets).await;
    let mut watched = Watched::new("alerts for the clock of Redis".into(), &delayd).await;
    // The claims bring Redis' time.
    let caller = caller(&delayd);
    clock.set(30);
    watched.begins("ClockOffset", "").await;
    clock.set(0);
    watched.ends("ClockOffset", "").await;
    caller.stop().await;
    watched.row.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_of_an_embedded_store() {
    every_query_has_a_result("embedded", &["delayd_store_breaker"], fleet::embedded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dashboard_of_redis() {
    let server = Server::start();
    let absent = ["delayd_disk_", "delayd_fsync_"];
    every_query_has_a_result("Redis", &absent, |_| fleet::redis(&server)).await;
}

/// After some load, each query of the dashboard has a result, and each rule can be evaluated.
/// `absent` are the metrics that the store does not have.
async fn every_query_has_a_result(on: &str, absent: &[&str], store: impl FnOnce(&Path) -> StoreAt) {
    let scene = Scene::set(store).await;
    let mut watched = Watched::new(format!("queries of the dashboard, {on}"), &scene.delayd).await;
    scene.add(20, "takes", "/", "0s").await;
    scene.add(20, "takes", "/refuse", "0s").await;
    scene.add(20, "limited", "/", "30m").await;
    assert_eq!(scene.delayd.post("/delay/task/add", "{}").await.status, 400);
    scene.receiver.wait_for(40).await;
    let queries = grafana::queries("10s", "1m");
    for query in queries.iter().filter(|query| !absent.iter().any(|name| query.contains(name))) {
        let answered = watched.prometheus.answers(query).await;
        watched.row.promise(answered, format!("no result: {query}"));
    }
    let all_work = poll::until(async || {
        let rules = watched.prometheus.rules().await;
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok")
    });
    let all_work = all_work.await;
    watched.row.promise(all_work, format!("{:?}", watched.prometheus.rules().await));
    watched.row.note(format!("{} queries", queries.len()));
    watched.row.finish();
}

/// The example configuration of Prometheus works with a token.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_reads_with_a_token() {
    let folder = folder();
    let (token, hash) = ("secret of the test", TokenHash::of("secret of the test").to_hex());
    let token_of = format!(
        "http.auth.tokens=[{{name=\"p\",token_sha256=\"{hash}\",scopes=[\"view\"],topics=[\"*\"]}}]"
    );
    let delayd = Program::start(&fleet::embedded(folder.path()), &[token_of, quiet()]).await;
    let prometheus = Prometheus::scraping_with(delayd.address, token).await;
    assert!(prometheus.answers("up{job=\"delayd\"} == 1").await, "{}", delayd.log());
}

/// An alert that no drill provokes would not be known to work.
#[test]
fn every_alert_is_provoked() {
    let rules = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/prometheus/alerts.yml"));
    let drills = include_str!("alerts.rs");
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        assert!(drills.contains(&format!("\"{name}\"")), "{name}");
    }
}
