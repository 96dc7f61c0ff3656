//! Starts under wrong conditions, and orderly stops.

use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tokio::net::UnixDatagram;

use crate::poll;
use crate::program::{self, Program, StoreAt, run, serve_with, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores, redis_server};

on_both_stores!(
    a_drain_ends_running_calls_and_gives_back_unstarted_tasks,
    a_call_cut_off_by_the_grace_period_keeps_its_attempt,
    a_second_signal_ends_at_once,
    ended_tasks_are_purged_after_their_time_and_others_are_not,
    the_longest_history_is_cut_if_all_topics_hold_too_much,
);

/// Runs `serve` with settings that cannot work, and checks its exit code and the line that says
/// why.
pub async fn refuses(sets: &[String], code: i32, says: &[&str]) {
    let (status, _, log) = run(serve_with(sets)).await;
    assert_eq!(status, code, "{log}");
    for what in says {
        assert!(log.contains(what), "the log does not say {what:?}:\n{log}");
    }
    assert!(!log.contains("panicked") && !log.contains("secret"), "{log}");
}

#[tokio::test]
async fn a_bad_configuration_ends_with_78_and_names_the_key() {
    refuses(&["wroker.lease=\"3s\"".into()], 78, &["wroker", "worker"]).await;
    refuses(&["worker.lease=\"3 parsecs\"".into()], 78, &["worker.lease"]).await;
    refuses(&["store.kind=\"etcd\"".into()], 78, &["store.kind", "embedded"]).await;
    refuses(&["services.\"a b\".endpoints=[\"http://127.0.0.1:1\"]".into()], 78, &["a b"]).await;
}

/// A start beyond loopback without tokens used to admit everyone, with only a warning.
#[tokio::test]
async fn a_start_beyond_loopback_without_tokens_is_refused_before_anything_is_touched() {
    let folder = program::folder();
    let path = format!("store.embedded.path={:?}", folder.path().join("sub/delayd.db"));
    for bind in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        let sets = [format!("http.bind=\"{bind}\""), path.clone()];
        refuses(&sets, 78, &["http.auth.anonymous = true", "delayd token", bind]).await;
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // Setting both is refused as well: if the file were cut off after the first, everyone could
    // call.
    let token = format!(
        "http.auth.tokens=[{{name='a', token_sha256='{}', scopes=['admin'], topics=['*']}}]",
        "0".repeat(64)
    );
    refuses(&[path, token, "http.auth.anonymous=true".into()], 78, &["http.auth.anonymous"]).await;
}

/// It said of a Redis that is away that a start would fail.
#[tokio::test]
async fn a_check_says_whether_a_start_would_wait_or_fail() {
    let check = async |sets: [&str; 2], code: i32, says: &str| {
        let mut command = program::command(&sets.map(str::to_owned));
        command.arg("check");
        let (ended, _, said) = run(command).await;
        assert!(ended == code && said.contains(says), "{ended} {said}");
    };
    let urls = format!("store.redis.urls=[\"redis://127.0.0.1:{}\"]", redis_server::ports::take());
    check(["store.kind=redis", &urls], 1, "a start would wait for the store").await;
    let folder = program::folder();
    let file = folder.path().join("delayd.db");
    std::fs::write(&file, [b'x'; 8192]).unwrap();
    let path = format!("store.embedded.path={file:?}");
    check(["store.kind=embedded", &path], 78, "a start would fail").await;
}

/// What systemd hears of a service of `Type=notify` that has a watchdog.
#[tokio::test]
async fn systemd_hears_of_the_start_the_signs_of_life_and_the_drain() {
    let folder = program::folder();
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    let hear = async || {
        let mut message = [0; 64];
        let length = systemd.recv(&mut message).await.unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    };
    let notifying = |mut serve: Command| {
        serve.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
        serve
    };
    let mut delayd = Program::start_by(&Kept::embedded().store, &[], notifying).await;
    assert_eq!(hear().await, "READY=1\n");
    for _ in 0..3 {
        assert_eq!(hear().await, "WATCHDOG=1\n");
    }
    delayd.signal("TERM");
    while hear().await != "STOPPING=1\n" {}
    assert!(delayd.ended().await.success());
}

#[tokio::test]
async fn a_port_in_use_is_one_clear_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = program::folder();
    let address = taken.local_addr().unwrap();
    refuses(
        &[
            format!("http.bind=\"{address}\""),
            format!("store.embedded.path={:?}", folder.path().join("d.db")),
        ],
        1,
        &[&address.to_string(), "http.bind"],
    )
    .await;
}

#[tokio::test]
async fn an_unwritable_folder_is_one_clear_line() {
    let folder = program::folder();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let path = file.join("delayd.db");
    refuses(&[format!("store.embedded.path={path:?}")], 78, &[&file.display().to_string()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_same_file_is_refused() {
    let kept = Kept::embedded();
    let StoreAt::Embedded(folder) = &kept.store else { unreachable!() };
    let _first = kept.start(&[]).await;
    let path = folder.join("delayd.db");
    refuses(
        &[format!("store.embedded.path={path:?}")],
        78,
        &[&path.display().to_string(), "another process"],
    )
    .await;
}

#[tokio::test]
async fn a_wrong_password_is_one_clear_line_without_the_password() {
    let redis = redis_server::Server::start();
    redis.command(&["CONFIG", "SET", "requirepass", "right"]);
    refuses(
        &[
            "store.kind=\"redis\"".into(),
            format!("store.redis.urls=[\"redis://:secret@127.0.0.1:{}/0\"]", redis.port()),
        ],
        78,
        &["login"],
    )
    .await;
}

#[tokio::test]
async fn a_redis_that_evicts_is_refused() {
    let redis = redis_server::Server::start();
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    refuses(
        &[
            "store.kind=\"redis\"".into(),
            format!("store.redis.urls=[\"redis://127.0.0.1:{}/0\"]", redis.port()),
        ],
        78,
        &["noeviction"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_it_starts_says_so_and_is_ready_when_redis_is() {
    let mut redis = redis_server::Server::start();
    let receiver = Receiver::start().await;
    redis.kill();
    let store = StoreAt::Redis(redis.port(), "late".into());
    let delayd = Program::start(&store, &[service("message.call", &receiver)]).await;
    let ready = delayd.get("/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(ready.body.to_string().contains("store"), "{ready:?}");
    assert_eq!(delayd.get("/healthz").await.status, 200);
    assert!(delayd.log().contains("Redis"), "{}", delayd.log());
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    let refused = delayd.post("/delay/task/add", task.to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (503, &json!(2003)));
    assert!(refused.headers.contains_key("retry-after"));

    redis.restart();
    delayd.wait_until_ready(200).await;
    delayd.add(task).await;
    receiver.wait_for(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_restarts_is_found_again_with_its_scripts() {
    let mut redis = redis_server::Server::start();
    let receiver = Receiver::start().await;
    let store = StoreAt::Redis(redis.port(), "again".into());
    let delayd = Program::start(&store, &[service("message.call", &receiver)]).await;
    let task = |delay: &str| {
        json!({
            "topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/"},
        })
    };
    delayd.add(task("0s")).await;
    receiver.wait_for(1).await;
    let pending = delayd.add(task("4s")).await.id();
    // This test is about tasks that everysec has written. Redis does not promise those that it
    // still buffers.
    let is_written = || redis.command(&["INFO", "persistence"]).contains("aof_buffer_length:0\r\n");
    assert!(
        poll::until(async || is_written()).await,
        "{}",
        redis.command(&["INFO", "persistence"])
    );
    redis.kill();
    redis.restart();
    delayd.wait_until_ready(200).await;
    delayd.wait_for_state("t", pending, "delivered").await;
    let id = delayd.add(task("0s")).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
}

/// Settles that the store does not take must not delay the drain.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_though_redis_is_gone() {
    let mut redis = redis_server::Server::start();
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let store = StoreAt::Redis(redis.port(), "gone".into());
    let mut delayd = Program::start(
        &store,
        &[service("message.call", &receiver), "shutdown.grace=\"1s\"".into()],
    )
    .await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    delayd.add_all(&vec![task; 3]).await;
    receiver.wait_for(3).await;
    redis.kill();
    receiver.open_gate();
    delayd.wait_for_log("takes no settles").await;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
}

async fn a_drain_ends_running_calls_and_gives_back_unstarted_tasks(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let settings = [service("message.call", &receiver)];
    let mut delayd = kept.start(&settings).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    let ids = delayd.add_all(&vec![task.clone(); 100]).await;
    let running = receiver.wait_for(16).await;
    delayd.signal("TERM");
    delayd.wait_until_ready(503).await;
    let refused = delayd.post("/delay/task/add", task.to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (503, &json!(2003)), "{refused:?}");
    receiver.open_gate();
    assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
    assert_eq!(receiver.seen().len(), 16, "a call was started during the drain");

    let delayd = kept.start(&settings).await;
    for id in ids {
        let task = delayd.wait_for_state("t", id, "delivered").await;
        assert_eq!(task["attempts"], 1, "{task}");
    }
    assert_eq!(receiver.seen().len(), 100);
    assert_eq!(running.len(), 16);
}

async fn a_call_cut_off_by_the_grace_period_keeps_its_attempt(kept: Kept) {
    let receiver =
        Receiver::answering(
            |call| if call.attempt == 1 { Answer::Never } else { Answer::Status(200) },
        )
        .await;
    let settings = [
        service("message.call", &receiver),
        "shutdown.grace=\"200ms\"".into(),
        "worker.lease=\"3s\"".into(),
        "callback.timeout=\"1s\"".into(),
    ];
    let mut delayd = kept.start(&settings).await;
    let id = delayd
        .add(json!({
            "topic": "t", "delay": 0, "timeout": "1m",
            "content": {"sn": "message.call", "url": "/"},
        }))
        .await
        .id();
    receiver.wait_for(1).await;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
    let delayd = kept.start(&settings).await;
    if matches!(kept.store, StoreAt::Embedded(_)) {
        // The lease was long, for a call of a minute. The start voids it.
        let task = delayd.wait_for_state("t", id, "delivered").await;
        assert_eq!(task["attempts"], 2);
    } else {
        // No other instance can know that the holder is gone: the lease stands.
        assert_eq!(delayd.task("t", id).await["state"], "leased");
    }
}

async fn a_second_signal_ends_at_once(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Never).await;
    let mut delayd =
        kept.start(&[service("message.call", &receiver), "shutdown.grace=\"10m\"".into()]).await;
    delayd
        .add(json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}}))
        .await;
    receiver.wait_for(1).await;
    delayd.signal("TERM");
    delayd.wait_until_ready(503).await;
    delayd.signal("INT");
    assert_eq!(delayd.ended().await.code(), Some(1), "{}", delayd.log());
}

async fn ended_tasks_are_purged_after_their_time_and_others_are_not(kept: Kept) {
    let delayd = kept.start(&[]).await;
    let ended = delayd.add(json!({"topic": "t", "delay": 0, "content": {}})).await.id();
    let waits = delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.id();
    delayd.post("/delay/task/pull", r#"{"topic":"t"}"#).await.ok();
    delayd.wait_for_state("t", ended, "delivered").await;
    // The janitor's first round comes with the next start. By then the task is old enough.
    delayd.lives_for(Duration::from_millis(1_100)).await;
    delayd.kill();
    let delayd = kept.start(&["history.keep=\"1s\"".into()]).await;
    let get = json!({"topic": "t", "task_id": ended}).to_string();
    let is_gone = async || delayd.post("/delay/task/get", get.clone()).await.status == 404;
    assert!(poll::until(is_gone).await, "the ended task is still there:\n{}", delayd.log());
    assert_eq!(delayd.task("t", waits).await["state"], "scheduled");
}

/// A busy topic would remove the history of the others.
async fn the_longest_history_is_cut_if_all_topics_hold_too_much(kept: Kept) {
    let delayd = kept.start(&[]).await;
    for topic in ["quiet", "busy", "busy", "busy", "busy"] {
        let id = delayd.add(json!({"topic": topic, "delay": 0, "content": {}})).await.id();
        delayd.post("/delay/task/pull", json!({"topic": topic}).to_string()).await.ok();
        delayd.wait_for_state(topic, id, "delivered").await;
    }
    delayd.kill();
    let delayd = kept.start(&["history.max=3".into()]).await;
    let kept_of = async |topic: &str| {
        let get = json!({"topic": topic}).to_string();
        let got = delayd.post("/delay/topic/get", get).await.ok();
        got.body["counts"]["delivered"].as_u64().unwrap()
    };
    let is_cut = async || kept_of("busy").await == 2;
    assert!(poll::until(is_cut).await, "the history is too long:\n{}", delayd.log());
    assert_eq!(kept_of("quiet").await, 1);
    let line = "All topics together end more tasks than history.max: 2 of topic busy";
    assert!(poll::until(async || delayd.log().contains(line)).await, "{}", delayd.log());
}
