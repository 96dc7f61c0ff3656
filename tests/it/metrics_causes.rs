//! Each metric of the process moves when its cause happens.

use serde_json::{Value, json};

use crate::fake_time::FakeTime;
use crate::metrics::value;
use crate::poll;
use crate::program::{self, Program, StoreAt, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::{Kept, on_both_stores};

on_both_stores!(
    each_end_of_a_task_has_its_cause,
    an_open_breaker_is_shown,
    running_calls_are_shown_until_they_end,
    a_scrape_is_bounded_whatever_the_number_of_topics_and_services,
);

async fn wait_for(delayd: &Program, series: &str, expected: f64) {
    let is_so = poll::until(async || value(delayd, series).await == expected).await;
    assert!(is_so, "{series} is {}, not {expected}", value(delayd, series).await);
}

fn task(sn: &str, url: &str) -> Value {
    json!({"topic": "t", "delay": 0, "max_attempts": 1, "content": {"sn": sn, "url": url}})
}

fn ended(state: &str, cause: &str) -> String {
    format!("delayd_tasks_ended_total{{state={state:?},cause={cause:?}}}")
}

async fn pull(delayd: &Program, topic: &str, lease: Option<&str>) -> Value {
    let body = json!({"topic": topic, "lease": lease, "wait": "10s"});
    delayd.post("/delay/task/pull", body.to_string()).await.ok().body
}

async fn each_end_of_a_task_has_its_cause(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.path.as_str() {
        "/broken" => Answer::Status(503),
        "/gone" => Answer::Status(410),
        _ => Answer::Status(200),
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    assert_eq!(value(&delayd, &ended("delivered", "callback")).await, 0.0);
    for url in ["/fine", "/broken", "/gone"] {
        delayd.add(task("message.call", url)).await.ok();
    }
    let later = json!({"topic": "t", "delay": "1h", "content": {"sn": "message.call", "url": "/"}});
    let cancelled = delayd.add(later.clone()).await.ok().id();
    let cancel = json!({"topic": "t", "task_id": cancelled});
    delayd.post("/delay/task/cancel", cancel.to_string()).await.ok();
    let moved = delayd.add(later).await.ok().id();
    let lend = json!({"topic": "t", "task_ids": [moved], "lend": "10m", "receipt": "mover"});
    delayd.post("/delay/task/records", lend.to_string()).await.ok();
    let moved = json!({"topic": "t", "task_ids": [moved], "receipt": "mover"});
    delayd.post("/delay/task/moved", moved.to_string()).await.ok();

    let pulled =
        json!({"topic": "p", "delay": 0, "mode": "pull", "max_attempts": 2, "content": {}});
    for _ in 0..2 {
        delayd.add(pulled.clone()).await.ok();
    }
    pull(&delayd, "p", None).await;
    let first = pull(&delayd, "p", Some("1s")).await;
    let nack = |lease: &Value| {
        let (id, receipt) = (&lease["task_id"], &lease["receipt"]);
        json!({"topic": "p", "task_id": id, "receipt": receipt, "delay": "0s"}).to_string()
    };
    // The lease runs out, and the task is pulled again.
    let second = pull(&delayd, "p", Some("1h")).await;
    assert_eq!(first["task_id"], second["task_id"]);
    assert_eq!(delayd.post("/delay/task/nack", nack(&first)).await.status, 409);
    delayd.post("/delay/task/nack", nack(&second)).await.ok();
    for _ in 0..2 {
        delayd.add(pulled.clone()).await.ok();
    }
    let third = pull(&delayd, "p", Some("1h")).await;
    let ack = json!({"topic": "p", "task_id": third["task_id"], "receipt": third["receipt"]});
    delayd.post("/delay/task/ack", ack.to_string()).await.ok();
    let fourth = pull(&delayd, "p", Some("1h")).await;
    let cancel = json!({"topic": "p", "task_id": fourth["task_id"]});
    assert_eq!(delayd.post("/delay/task/cancel", cancel.to_string()).await.status, 409);
    delayd.post("/delay/task/nack", nack(&fourth)).await.ok();

    for (series, expected) in [
        (ended("delivered", "callback"), 1.0),
        (ended("delivered", "ack"), 1.0),
        (ended("delivered", "pull"), 1.0),
        (ended("delivered", "moved"), 1.0),
        (ended("dead", "attempts_used_up"), 2.0),
        (ended("dead", "refused"), 1.0),
        (ended("cancelled", "cancel"), 1.0),
        (ended("cancelled", "pending_cancel"), 1.0),
        ("delayd_leases_expired_total{mode=\"pull\"}".into(), 1.0),
        ("delayd_leases_expired_total{mode=\"push\"}".into(), 0.0),
        ("delayd_stale_settles_total{mode=\"pull\"}".into(), 1.0),
        ("delayd_settles_pending".into(), 0.0),
    ] {
        wait_for(&delayd, &series, expected).await;
    }
    assert!(
        value(&delayd, "delayd_store_operation_duration_seconds_count{op=\"poll\"}").await > 0.0
    );
}

async fn an_open_breaker_is_shown(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::Status(503)).await;
    let sets = [
        service("down.server", &receiver),
        "callback.breaker.open=\"1h\"".into(),
        "callback.breaker.open_max=\"1h\"".into(),
    ];
    let delayd = kept.start(&sets).await;
    let breaker = |state: &str| {
        format!("delayd_destination_breaker{{service=\"down.server\",state={state:?}}}")
    };
    let opened = "delayd_destination_transitions_total{service=\"down.server\",to=\"open\"}";
    assert_eq!(value(&delayd, &breaker("closed")).await, 1.0, "it is shown from the start");
    assert_eq!(value(&delayd, opened).await, 0.0);
    let tasks: Vec<Value> = (0..10).map(|_| task("down.server", "/")).collect();
    delayd.add_all(&tasks).await;
    wait_for(&delayd, &breaker("open"), 1.0).await;
    assert_eq!(value(&delayd, &breaker("closed")).await, 0.0);
    assert_eq!(value(&delayd, &breaker("half_open")).await, 0.0);
    assert_eq!(value(&delayd, opened).await, 1.0);
}

async fn running_calls_are_shown_until_they_end(kept: Kept) {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let sets = [service("slow.server", &receiver), "callback.concurrency=50".into()];
    let delayd = kept.start(&sets).await;
    let of_service = |name: &str| format!("delayd_destination_{name}{{service=\"slow.server\"}}");
    assert_eq!(value(&delayd, &of_service("window")).await, 16.0, "it starts slowly");
    assert_eq!(value(&delayd, "delayd_calls_limit").await, 50.0);
    delayd.add_all(&[task("slow.server", "/"), task("slow.server", "/")]).await;
    receiver.wait_for(2).await;
    wait_for(&delayd, &of_service("in_flight"), 2.0).await;
    wait_for(&delayd, "delayd_calls_in_flight", 2.0).await;
    receiver.open_gate();
    wait_for(&delayd, &of_service("in_flight"), 0.0).await;
    wait_for(&delayd, "delayd_calls_in_flight", 0.0).await;
}

/// Callers can name any number of topics and hosts.
async fn a_scrape_is_bounded_whatever_the_number_of_topics_and_services(kept: Kept) {
    const TOPICS: usize = 10_000;
    const SERVICES: usize = 200;
    let receiver = Receiver::start().await;
    let names: Vec<String> = (0..SERVICES).map(|n| format!("service{n:03}.call")).collect();
    let sets: Vec<String> = names.iter().map(|name| service(name, &receiver)).collect();
    let delayd = kept.start(&sets).await;
    let tasks: Vec<Value> = (0..TOPICS)
        .map(|n| {
            let delay = if n < TOPICS - SERVICES { "1h" } else { "0s" };
            let content = json!({"sn": names[n % SERVICES], "url": "/"});
            json!({"topic": format!("topic{n}"), "delay": delay, "content": content})
        })
        .collect();
    delayd.add_all(&tasks).await;
    receiver.wait_for(SERVICES).await;
    wait_for(&delayd, &ended("delivered", "callback"), SERVICES as f64).await;
    let began = std::time::Instant::now();
    let text = delayd.get("/metrics").await.body;
    println!("a scrape takes {:?}", began.elapsed());
    let text = text.as_str().unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    println!("{series} series, {} bytes", text.len());
    assert!(series <= 3_000, "{series} series");
    let own = "delayd_attempts_total{service=\"service039.call\",outcome=\"delivered\"}";
    assert_eq!(value(&delayd, own).await, 1.0);
    let others = "delayd_attempts_total{service=\"other\",outcome=\"delivered\"}";
    assert_eq!(value(&delayd, others).await, 160.0);
    assert_eq!(value(&delayd, "delayd_label_overflow_total").await, 160.0);
    let closed = "delayd_destination_breaker{service=\"other\",state=\"closed\"}";
    assert_eq!(value(&delayd, closed).await, 160.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_redis_says_of_its_file_and_its_memory_is_shown() {
    for (file, is_volatile) in [("yes", 0.0), ("no", 1.0)] {
        let redis = Server::with_options(&["--appendonly", file, "--maxmemory", "100mb"]);
        let delayd = Program::start(&StoreAt::Redis(redis.port(), "said".into()), &[]).await;
        let of =
            |name: &str| format!("delayd_store_{name}{{server=\"127.0.0.1:{}\"}}", redis.port());
        wait_for(&delayd, &of("volatile"), is_volatile).await;
        assert_eq!(value(&delayd, &of("memory_limit_bytes")).await, f64::from(100 << 20));
        let used = value(&delayd, &of("memory_bytes")).await;
        assert!(used > f64::from(100 << 10) && used < f64::from(100 << 20), "{used}");
        // It is asked every ten seconds.
        redis.command(&["SETRANGE", "large", &(10 << 20).to_string(), "x"]);
        let grows = async || value(&delayd, &of("memory_bytes")).await > used + f64::from(10 << 20);
        assert!(poll::until(grows).await, "delayd shows the memory of its start");
    }
}

/// Redis stops while a call runs. Its end waits, and the note of its failure is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_does_not_answer_is_shown() {
    let receiver = Receiver::answering(|_| Answer::AtTheGate).await;
    let redis = Server::start();
    let store = StoreAt::Redis(redis.port(), "causes".into());
    let sets = [service("message.call", &receiver), "store.redis.timeout=\"200ms\"".into()];
    let delayd = Program::start(&store, &sets).await;
    let breaker = format!("delayd_store_breaker{{server=\"127.0.0.1:{}\"}}", redis.port());
    assert_eq!(value(&delayd, &breaker).await, 0.0);
    delayd.add(task("message.call", "/")).await.ok();
    receiver.wait_for(1).await;
    redis.signal("STOP");
    wait_for(&delayd, &breaker, 1.0).await;
    let failed = "delayd_store_errors_total{op=\"poll\",kind=\"unavailable\"}";
    // The breaker may have opened before the first poll failed.
    assert!(poll::until(async || value(&delayd, failed).await > 0.0).await);
    receiver.answer(|_| Answer::Status(503));
    receiver.open_gate();
    wait_for(&delayd, "delayd_settles_pending", 1.0).await;
    wait_for(&delayd, "delayd_notes_dropped_total", 1.0).await;
    redis.signal("CONT");
    wait_for(&delayd, "delayd_settles_pending", 0.0).await;
    wait_for(&delayd, &breaker, 0.0).await;
    wait_for(&delayd, &ended("dead", "attempts_used_up"), 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_clock_and_its_jumps_are_shown() {
    let folder = program::folder();
    let clock = FakeTime::right(folder.path());
    clock.set(3_600);
    let mut serve = program::serve(&Kept::redis().store, &[]);
    serve.envs(clock.variables());
    let delayd = Program::launch(serve).await;
    delayd.add(json!({"topic": "t", "delay": "1h", "content": {}})).await.ok();
    let offset = "delayd_clock_offset_seconds";
    let is_behind = async || (value(&delayd, offset).await + 3_600.0).abs() < 60.0;
    assert!(poll::until(is_behind).await, "{offset} is {}", value(&delayd, offset).await);
    assert_eq!(value(&delayd, "delayd_clock_jumps_total").await, 0.0);
    clock.set(0);
    wait_for(&delayd, "delayd_clock_jumps_total", 1.0).await;
    let is_right = async || value(&delayd, offset).await.abs() < 60.0;
    assert!(poll::until(is_right).await, "{offset} is {}", value(&delayd, offset).await);
}
