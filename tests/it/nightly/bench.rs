//! `delayd-bench`: a short run of each scenario, on both stores, prints the promised figures and
//! leaves nothing behind. The tests do not look at the size of the figures.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::poll;
use crate::program::{run, service};
use crate::receiver::Receiver;
use crate::redis_server::ports;
use crate::{Kept, redis_server};

/// A short run of a scenario, and some of the figures that it must print.
const SHORT: &[(&str, &[&str])] = &[
    ("add --for 200ms --connections 8", &["adds_per_s", "answer_p99_ms"]),
    ("add --for 200ms --batch 20 --topics 5", &["adds_per_s", "server_cpus"]),
    ("burst --tasks 300", &["arrived_per_s", "settled_per_s", "earliest_ms"]),
    (
        "lateness --rate 200 --for 300ms --purge",
        &["lateness_p50_ms", "lateness_p99_ms", "earliest_ms", "add_p99_ms", "server_cpu_percent"],
    ),
    ("pull --tasks 100 --connections 4", &["pulled_and_acked_per_s"]),
    ("idle --topics 20 --for 200ms", &["cpu_percent", "server_resident_mib"]),
    ("burst --topics 5 --tasks 100", &["arrived_per_s", "lateness_p99_ms"]),
    ("flood --tasks 500", &["flood_settled_per_s", "lateness_p99_ms", "server_resident_most_mib"]),
    (
        "pending --tasks 1000 --for 200ms --rate 100",
        &["bytes_per_task", "adds_per_s", "lateness_p99_ms"],
    ),
];

/// The bench, which starts the delayd of this test.
fn program() -> Command {
    let delayd = Path::new(env!("CARGO_BIN_EXE_delayd"));
    let bench = delayd.with_file_name("delayd-bench");
    assert!(bench.exists(), "first run: cargo build --package delayd-bench");
    let mut command = Command::new(bench);
    command.env_clear().stdin(Stdio::null()).arg("--delayd").arg(delayd);
    command
}

/// Runs a scenario and returns what it printed. It runs again if the bench asks for that: this
/// machine took longer to add the tasks than the bench foresaw.
async fn play(words: &str, store: &[&str]) -> Value {
    for _ in 0..3 {
        let mut bench = program();
        bench.args(words.split(' ')).arg("--json").args(store);
        let (code, output, error) = run(bench).await;
        if code == 1 && error.contains("try again") {
            continue;
        }
        assert_eq!(code, 0, "{words}: {output}{error}");
        return serde_json::from_str(&output).unwrap_or_else(|_| panic!("{words}: {output}"));
    }
    panic!("{words}: the bench asks three times to try again");
}

async fn each_prints_its_figures(store: &[&str], name: &str) {
    for (words, expected) in SHORT {
        let told = play(words, store).await;
        assert_eq!((&told["store"], &told["verified"]), (&json!(name), &json!(true)), "{told}");
        assert_eq!(told["scenario"], words.split(' ').next().unwrap());
        assert!(told["options"].is_object(), "{told}");
        for figure in *expected {
            assert!(told["figures"][figure].is_number(), "{words} tells no {figure}: {told}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scenario_prints_its_figures_on_the_embedded_store() {
    each_prints_its_figures(&[], "embedded").await;
    assert!(play("bare --for 200ms", &[]).await["figures"]["requests_per_s"].is_number());
    assert!(play("calls --for 200ms", &[]).await["figures"]["calls_per_s"].is_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scenario_prints_its_figures_on_redis_and_leaves_no_key() {
    let redis = redis_server::Server::start();
    let store = ["--store", "redis", "--redis", &redis.url()];
    each_prints_its_figures(&store, "redis").await;
    let told = play("idle --topics 20 --instances 2 --for 200ms", &store).await;
    assert!(told["figures"]["redis_reads_per_s"].is_number(), "{told}");
    assert_eq!(redis.command(&["DBSIZE"]).trim(), "0");
}

/// On a service that already runs, the bench removes what it has added, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn the_bench_leaves_a_running_service_as_it_was() {
    let bind = format!("127.0.0.1:{}", ports::take());
    let kept = Kept::embedded();
    let delayd = kept
        .start_as_shipped(&[format!("services.\"message.call\".endpoints=[\"http://{bind}\"]")])
        .await;
    delayd.add(json!({"topic": "orders", "delay": "1h", "content": {"a": 1}})).await;
    let (server, bind) = (delayd.url(""), bind);
    let running = ["--server", &server, "--service", "message.call", "--receiver", &bind];
    let told = play("lateness --rate 100 --for 200ms", &running).await;
    assert!(told["figures"]["lateness_p99_ms"].is_number(), "{told}");
    let topics = delayd.post("/delay/topic/list", "{}").await.ok().body["topics"].clone();
    assert_eq!(
        (topics.as_array().unwrap().len(), &topics[0]["topic"]),
        (1, &json!("orders")),
        "{topics}"
    );
}

/// If the service refuses the load, the bench prints one line and no figures.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_load_is_a_failure_and_no_figure() {
    let receiver = Receiver::start().await;
    let delayd = Kept::embedded().start_as_shipped(&[service("message.call", &receiver)]).await;
    let mut bench = program();
    bench.args(["add", "--for", "200ms", "--service", "nobody", "--receiver", "127.0.0.1:0"]);
    bench.arg("--server").arg(delayd.url(""));
    let (code, output, error) = run(bench).await;
    assert_eq!((code, output.as_str(), error.lines().count()), (1, "", 1), "{output}{error}");
    assert!(error.contains("400") && error.contains("nobody"), "{error}");
}

/// No call arrives in this test. The bench says what is missing and prints no figures.
#[tokio::test(flavor = "multi_thread")]
async fn missing_calls_are_reported_instead_of_figures() {
    let mut bench = program();
    bench.args(["lateness", "--rate", "50", "--for", "200ms", "--set", "worker.enabled=false"]);
    let (code, output, error) = run(bench).await;
    assert_eq!((code, output.as_str(), error.lines().count()), (1, "", 1), "{output}{error}");
    assert!(error.contains("of 10 tasks: 10 never arrived"), "{error}");
}

/// Ctrl-C ends the bench and its service, with one line and without leftover keys in Redis.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_it_and_removes_what_it_made() {
    let redis = redis_server::Server::start();
    let mut bench = program();
    bench.args(["add", "--for", "60s", "--store", "redis", "--redis", &redis.url()]);
    let bench =
        bench.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let has_keys = async || redis.command(&["DBSIZE"]).trim() != "0";
    assert!(poll::until(has_keys).await);
    let sent = std::process::Command::new("kill")
        .args(["-INT", &bench.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    let ended =
        tokio::task::spawn_blocking(move || bench.wait_with_output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(
        (ended.status.code(), said.trim()),
        (Some(1), "delayd-bench: interrupted by SIGINT")
    );
    assert!(poll::until(async || !has_keys().await).await, "keys are left");
}
