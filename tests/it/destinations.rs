//! Services that fail, services that the operator holds, and services with a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, StoreAt, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores, redis_server};

on_both_stores!(
    a_failing_service_is_not_called_until_probes_succeed,
    an_open_breaker_delays_no_other_service,
    a_held_service_is_not_called_until_it_is_released,
    a_rate_spreads_the_calls_of_a_service,
    a_release_ends_a_retry_after_hold,
    hosts_that_callers_name_leave_nothing_in_the_store,
    an_open_breaker_probes_when_an_operator_says_so,
    the_lateness_of_the_others_begins_with_the_start,
);

/// Circuit breakers that open and close within a test.
fn quick_breaker() -> [String; 3] {
    [
        "callback.breaker.open=\"300ms\"",
        "callback.breaker.open_max=\"300ms\"",
        "callback.retry.backoff={kind=\"fixed\",every=\"10ms\"}",
    ]
    .map(str::to_owned)
}

fn tasks(sn: &str, count: usize) -> Vec<Value> {
    (0..count)
        .map(|n| json!({"topic": "t", "delay": 0, "content": {"sn": sn, "url": format!("/{n}")}}))
        .collect()
}

async fn listed(delayd: &Program, sn: &str) -> Value {
    let answer = delayd.post("/delay/destination/list", "{}").await.ok();
    let all = answer.body["destinations"].as_array().unwrap();
    all.iter()
        .find(|one| one["sn"] == sn)
        .unwrap_or_else(|| panic!("{sn} is not in {all:?}"))
        .clone()
}

async fn wait_for_breaker(delayd: &Program, sn: &str, state: &str) -> Value {
    let is_in = async || Some(listed(delayd, sn).await).filter(|one| one["breaker"] == state);
    match poll::answer(is_in).await {
        Some(one) => one,
        None => {
            panic!(
                "the breaker of {sn} did not become {state}: {}\n{}",
                listed(delayd, sn).await,
                delayd.log()
            )
        }
    }
}

async fn a_failing_service_is_not_called_until_probes_succeed(kept: Kept) {
    let is_well = Arc::new(AtomicBool::new(false));
    let answers = is_well.clone();
    let receiver = Receiver::answering(move |_| {
        Answer::Status(if answers.load(Ordering::SeqCst) { 200 } else { 500 })
    })
    .await;
    let mut settings = vec![service("message.call", &receiver)];
    settings.extend(quick_breaker());
    // Long enough to see that nothing is called meanwhile.
    settings
        .extend(["callback.breaker.open=\"2s\"".into(), "callback.breaker.open_max=\"2s\"".into()]);
    let delayd = kept.start(&settings).await;
    delayd.add_all(&tasks("message.call", 500)).await;
    let open = wait_for_breaker(&delayd, "message.call", "open").await;
    assert_eq!(open["last_error"], "500 Internal Server Error", "{open}");
    assert!(open["last_error_ms"].as_i64().unwrap() > 0 && open["configured"] == true, "{open}");
    // Running calls end. Then nothing is called, and the waiting tasks have spent no attempt.
    let calls = receiver.seen().len();
    assert!(calls <= 16 + 16, "{calls} calls before the breaker opened");
    let waiting = listed(&delayd, "message.call").await["waiting"].as_u64().unwrap();
    assert!(waiting >= 500 - 32, "{waiting} of 500 wait");
    is_well.store(true, Ordering::SeqCst);
    receiver.wait_for(calls + 500).await;
    let closed = wait_for_breaker(&delayd, "message.call", "closed").await;
    assert_eq!(closed["waiting"], 0, "{closed}");
    let attempts = receiver.seen().iter().filter(|call| call.attempt > 1).count();
    assert!(attempts <= 40, "{attempts} tasks spent an attempt although the breaker was open");
    let log = delayd.log();
    assert!(log.contains("keeps failing") && log.contains("is healthy again"), "{log}");
}

async fn an_open_breaker_delays_no_other_service(kept: Kept) {
    let well = Receiver::start().await;
    let mut settings =
        vec![service("well", &well), "services.gone.endpoints=[\"http://127.0.0.1:1\"]".into()];
    settings.extend(quick_breaker());
    let delayd = kept.start(&settings).await;
    delayd.add_all(&tasks("gone", 1_000)).await;
    wait_for_breaker(&delayd, "gone", "open").await;
    delayd.add_all(&tasks("well", 300)).await;
    well.wait_for(300).await;
    assert_eq!(listed(&delayd, "well").await["breaker"], "closed");
    assert!(listed(&delayd, "gone").await["waiting"].as_u64().unwrap() >= 900);
}

async fn a_held_service_is_not_called_until_it_is_released(kept: Kept) {
    let (held, free) = (Receiver::start().await, Receiver::start().await);
    let settings = [service("held", &held), service("free", &free)];
    let delayd = kept.start(&settings).await;
    let answer = delayd.post("/delay/destination/hold", r#"{"sn":"held"}"#).await.ok();
    assert_eq!((&answer.body["sn"], &answer.body["held"]), (&json!("held"), &json!(true)));
    delayd.add_all(&tasks("held", 20)).await;
    delayd.add_all(&tasks("free", 20)).await;
    free.wait_for(20).await;
    let one = listed(&delayd, "held").await;
    assert_eq!((&one["held"], &one["waiting"]), (&json!(true), &json!(20)), "{one}");
    drop(delayd);
    // The hold outlasts the process.
    let delayd = kept.start(&settings).await;
    delayd.add_all(&tasks("free", 20)).await;
    free.wait_for(40).await;
    assert!(held.seen().is_empty());
    let answer = delayd.post("/delay/destination/release", r#"{"sn":"held"}"#).await.ok();
    assert_eq!(answer.body["held"], false);
    held.wait_for(20).await;
    assert_eq!(listed(&delayd, "held").await["held"], false);
    for (verb, body, says) in [
        ("hold", r#"{"sn":"nobody"}"#, "sn: there is no such service"),
        ("release", r#"{"sn":"nobody"}"#, "sn: there is no such service"),
        ("hold", "{}", "sn: is missing"),
        ("hold", r#"{"sn":"@pull"}"#, "sn: must be a service"),
        ("list", r#"{"sn":"held"}"#, "unknown field"),
    ] {
        let answer = delayd.post(&format!("/delay/destination/{verb}"), body).await;
        assert!(answer.status == 400 || answer.status == 404, "{answer:?}");
        assert!(answer.body["error_msg"].as_str().unwrap().contains(says), "{answer:?}");
    }
}

async fn a_rate_spreads_the_calls_of_a_service(kept: Kept) {
    let (slow, free) = (Receiver::start().await, Receiver::start().await);
    let settings =
        [service("slow", &slow), "services.slow.rate=\"50/s\"".into(), service("free", &free)];
    let delayd = kept.start(&settings).await;
    let since = Instant::now();
    let mut mixed = tasks("slow", 100);
    mixed.extend(tasks("free", 100));
    delayd.add_all(&mixed).await;
    free.wait_for(100).await;
    let early = slow.seen().len();
    let elapsed = since.elapsed();
    assert!(
        early as f64 <= 50.0 * elapsed.as_secs_f64() + 6.0,
        "{early} calls in {elapsed:?} at 50/s"
    );
    slow.wait_for(100).await;
    let elapsed = since.elapsed();
    assert!(elapsed >= Duration::from_millis(1_850), "100 calls in {elapsed:?} at 50/s");
    assert_eq!(listed(&delayd, "slow").await["rate"], "50/s");
}

/// The other instance follows within a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_is_kept_by_every_instance() {
    let kept = Kept::redis();
    let receiver = Receiver::start().await;
    let settings = [service("message.call", &receiver), service("other", &receiver)];
    let (one, two) = (kept.start(&settings).await, kept.start(&settings).await);
    one.post("/delay/destination/hold", r#"{"sn":"message.call"}"#).await.ok();
    two.lives_for(Duration::from_secs(4)).await;
    two.add_all(&tasks("message.call", 50)).await;
    two.add_all(&tasks("other", 50)).await;
    let seen = receiver.wait_for(50).await;
    assert_eq!(seen.len(), 50);
    assert_eq!(listed(&two, "message.call").await["held"], true);
    two.post("/delay/destination/release", r#"{"sn":"message.call"}"#).await.ok();
    receiver.wait_for(100).await;
}

/// Answers every call with a wait that is longer than the default of `callback.retry_after_max`.
fn busy(_: &crate::receiver::Seen) -> Answer {
    Answer::With(503, vec![("retry-after", "86400")], "")
}

/// Waits until a `Retry-After` holds the service in this instance, or no longer holds it.
async fn wait_for_retry_after(delayd: &Program, sn: &str, is_held: bool) -> Value {
    let is_so = async || {
        Some(listed(delayd, sn).await).filter(|one| one["retry_after_ms"].is_u64() == is_held)
    };
    match poll::answer(is_so).await {
        Some(one) => one,
        None => panic!(
            "a Retry-After hold of {sn}: expected {is_held}, got {}",
            listed(delayd, sn).await
        ),
    }
}

async fn a_release_ends_a_retry_after_hold(kept: Kept) {
    let receiver = Receiver::answering(busy).await;
    let settings =
        [service("message.call", &receiver), "services.\"message.call\".concurrency=1".into()];
    let delayd = kept.start(&settings).await;
    delayd.add_all(&tasks("message.call", 5)).await;
    let held = wait_for_retry_after(&delayd, "message.call", true).await;
    let overview = async || delayd.post("/delay/overview", "{}").await.ok().body;
    let is_shown =
        async || overview().await["destinations"][0]["retry_after_ms"].as_u64() > Some(800_000);
    assert!(poll::until(is_shown).await, "{}", overview().await);
    assert!(
        (800_000..=900_000).contains(&held["retry_after_ms"].as_u64().unwrap()),
        "15 minutes at most: {held}"
    );
    receiver.answer(|_| Answer::Status(200));
    let calls = receiver.seen().len();
    let answer = delayd.post("/delay/destination/release", r#"{"sn":"message.call"}"#).await.ok();
    assert_eq!(answer.body["held"], false);
    // The task that was answered with Retry-After keeps its own wait. The others do not.
    assert_eq!(receiver.wait_for(calls + 4).await.len(), 5);
    assert!(listed(&delayd, "message.call").await["retry_after_ms"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_ends_a_retry_after_hold_on_every_instance() {
    let kept = Kept::redis();
    let receiver = Receiver::answering(busy).await;
    let settings =
        [service("message.call", &receiver), "services.\"message.call\".concurrency=1".into()];
    let (one, two) = (kept.start(&settings).await, kept.start(&settings).await);
    for round in 1..=2 {
        receiver.answer(busy);
        one.add_all(&tasks("message.call", 5)).await;
        wait_for_retry_after(&one, "message.call", true).await;
        wait_for_retry_after(&two, "message.call", true).await;
        receiver.answer(|_| Answer::Status(200));
        one.post("/delay/destination/release", r#"{"sn":"message.call"}"#).await.ok();
        wait_for_retry_after(&two, "message.call", false).await;
        assert_eq!(receiver.wait_for(round * 5).await.len(), round * 5);
    }
}

/// The number of destinations of topic `t` that the store holds.
fn destinations_kept(kept: &Kept) -> usize {
    match &kept.store {
        StoreAt::Embedded(folder) => {
            let db = rusqlite::Connection::open(folder.join("delayd.db")).unwrap();
            let count: i64 =
                db.query_row("SELECT count(*) FROM destination", [], |row| row.get(0)).unwrap();
            usize::try_from(count).unwrap()
        }
        StoreAt::Redis(_, prefix) => {
            let offsets = format!("{prefix}:DELAY_TOPIC_OFFSET-{{t:0}}");
            let names = redis_server::shared().command(&["HKEYS", &offsets]);
            names.lines().filter(|name| !name.is_empty() && *name != "#shards").count()
        }
        StoreAt::Set(_) => panic!("this test runs on a store of its own"),
    }
}

/// Each host used to leave a row or a field behind for ever.
async fn hosts_that_callers_name_leave_nothing_in_the_store(kept: Kept) {
    let receiver = Receiver::answering_at([0, 0, 0, 0].into(), |_| Answer::Status(200)).await;
    let settings =
        ["callback.allow_hosts=[\"127.*\"]".into(), "callback.deny_private_hosts=false".into()];
    let delayd = kept.start(&settings).await;
    let task = |n: usize| {
        let url =
            format!("http://127.0.{}.{}:{}/", 1 + n / 200, 1 + n % 200, receiver.address.port());
        json!({"topic": "t", "delay": 0, "content": {"url": url}})
    };
    let ids = delayd.add_all(&(0..2_000).map(task).collect::<Vec<_>>()).await;
    receiver.wait_for(2_000).await;
    for id in ids {
        delayd.wait_for_state("t", id, "delivered").await;
    }
    delayd.post("/delay/topic/purge", r#"{"topic":"t","confirm":"t"}"#).await.ok();
    assert_eq!(destinations_kept(&kept), 0);
    // The same hosts can be called again.
    delayd.add_all(&(0..5).map(task).collect::<Vec<_>>()).await;
    receiver.wait_for(2_005).await;
}

async fn an_open_breaker_probes_when_an_operator_says_so(kept: Kept) {
    let receiver = Receiver::start().await;
    receiver.answer(|_| Answer::Status(500));
    let mut settings = vec![service("message.call", &receiver)];
    settings.extend(quick_breaker());
    // No time of this test ends it.
    settings.extend(
        ["callback.breaker.open=\"10m\"", "callback.breaker.open_max=\"10m\""].map(str::to_owned),
    );
    let delayd = kept.start(&settings).await;
    let get = async || {
        let answer = delayd.post("/delay/destination/get", r#"{"sn":"message.call"}"#).await;
        answer.ok().body
    };
    let idle = get().await;
    assert_eq!((&idle["breaker"], &idle["recent"]["p99_ms"]), (&json!("closed"), &Value::Null));
    assert_eq!((&idle["slots"], &idle["transitions"]), (&json!(256), &json!([])), "{idle}");
    delayd.add_all(&tasks("message.call", 100)).await;
    wait_for_breaker(&delayd, "message.call", "open").await;
    let open = get().await;
    assert!(open["recent"]["failures"].as_u64().unwrap() >= 5, "{open}");
    assert!(open["recent"]["p50_ms"].is_u64() && open["last_error"].is_string(), "{open}");
    assert!(open["probes_in_ms"].as_u64().unwrap() > 500_000, "{open}");
    assert_eq!(open["transitions"][0]["to"], "open", "{open}");
    let is_counted = async || get().await["overdue"].as_u64().unwrap() >= 60;
    assert!(poll::until(is_counted).await, "{}", get().await);

    receiver.answer(|_| Answer::Status(200));
    let before = receiver.seen().len();
    let probed = delayd.post("/delay/destination/probe", r#"{"sn":"message.call"}"#).await.ok();
    assert_eq!(probed.body["breaker"], "half_open", "{probed:?}");
    receiver.wait_for(before + 100).await;
    wait_for_breaker(&delayd, "message.call", "closed").await;
    let closed = get().await;
    let to: Vec<&str> = closed["transitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["to"].as_str().unwrap())
        .collect();
    assert_eq!(to, ["open", "half_open", "closed"], "{closed}");
    assert_eq!((&closed["probes_in_ms"], &closed["instances"]), (&Value::Null, &json!([])));
    for verb in ["get", "probe"] {
        let path = format!("/delay/destination/{verb}");
        assert_eq!(delayd.post(&path, r#"{"sn":"nobody"}"#).await.status, 404, "{verb}");
        assert_eq!(delayd.post(&path, r#"{"sn":"@pull"}"#).await.status, 400, "{verb}");
    }
}

/// After a restart, the time in which nothing ran looked as if one destination delayed the others.
async fn the_lateness_of_the_others_begins_with_the_start(kept: Kept) {
    let receiver = Receiver::start().await;
    let settings = vec![service("message.call", &receiver)];
    let idle = kept.start(&[&settings[..], &["worker.enabled=false".into()]].concat()).await;
    idle.add_all(&tasks("message.call", 3)).await;
    idle.kill();
    let delayd = kept.start(&settings).await;
    receiver.wait_for(3).await;
    let others =
        async || delayd.post("/delay/destination/list", "{}").await.ok().body["unharmed"].clone();
    assert_eq!(others().await, json!({"calls": 0, "lateness_p99_ms": null}));
    delayd.add_all(&tasks("message.call", 2)).await;
    assert!(poll::until(async || others().await["calls"] == 2).await, "{}", others().await);
}

/// The settings of an instance whose breaker of this receiver stays open for the whole test.
fn with_lasting_breaker(receiver: &Receiver) -> Vec<String> {
    let mut settings = vec![service("message.call", receiver)];
    settings.extend(quick_breaker());
    settings.extend(
        ["callback.breaker.open=\"10m\"", "callback.breaker.open_max=\"10m\""].map(str::to_owned),
    );
    settings
}

/// Two instances: one that calls a receiver that fails until its breaker is open, and one that
/// makes no calls.
pub(crate) async fn one_fails(kept: &Kept) -> (Receiver, Program, Program) {
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let settings = with_lasting_breaker(&receiver);
    let calls = kept.start(&settings).await;
    let looks = kept.start(&[settings, vec!["worker.enabled=false".into()]].concat()).await;
    looks.add_all(&tasks("message.call", 50)).await;
    wait_for_breaker(&calls, "message.call", "open").await;
    (receiver, calls, looks)
}

/// The instance that made no calls showed a closed breaker. Behind round robin, the state changed
/// from answer to answer.
#[tokio::test(flavor = "multi_thread")]
async fn every_instance_shows_the_breaker_that_is_open_on_one() {
    let kept = Kept::redis();
    let (_receiver, calls, looks) = one_fails(&kept).await;
    wait_for_breaker(&looks, "message.call", "open").await;
    let id = calls.post("/delay/whoami", "{}").await.ok().body["instance"].clone();
    let get = async |of: &Program| {
        of.post("/delay/destination/get", r#"{"sn":"message.call"}"#).await.ok().body
    };
    for (answers, instance) in [(true, &calls), (false, &looks)] {
        let shows_both = async || get(instance).await["instances"].as_array().unwrap().len() == 1;
        assert!(poll::until(shows_both).await, "{}", get(instance).await);
        for shown in [listed(instance, "message.call").await, get(instance).await] {
            assert_eq!(shown["breaker"], "open", "{shown}");
            assert_eq!(shown["last_error"], "500 Internal Server Error", "{shown}");
            assert!(shown["recent"]["failures"].as_u64().unwrap() >= 5, "{shown}");
            let [one] = &shown["instances"].as_array().unwrap()[..] else {
                panic!("one instance calls it: {shown}")
            };
            assert_eq!((&one["instance"], &one["answers"]), (&id, &json!(answers)), "{one}");
            assert_eq!((&one["breaker"], &one["probed_ms"]), (&json!("open"), &Value::Null));
            assert!(one["probes_in_ms"].as_u64().unwrap() > 400_000, "{one}");
        }
        assert!(get(instance).await["probes_in_ms"].as_u64().unwrap() > 400_000);
        let post = async |path| instance.post(path, "{}").await.ok().body;
        let is_open =
            async || post("/delay/overview").await["destinations"][0]["breaker"] == "open";
        assert!(poll::until(is_open).await, "{}", post("/delay/overview").await);
        let counts = async || {
            let living =
                post("/delay/instance/list").await["instances"].as_array().unwrap().clone();
            let one = living.iter().find(|one| one["id"] == id);
            one.is_some_and(|one| one["failing"] == 1)
                && living.iter().filter(|one| one["failing"] == 1).count() == 1
        };
        assert!(poll::until(counts).await, "{}", post("/delay/instance/list").await);
        let forecast = post("/delay/forecast").await;
        let service = &forecast["services"][0];
        assert_eq!(service["sn"], "message.call", "{forecast}");
        assert_eq!(service["breaker"], "open", "{answers}: {forecast}");
        assert_eq!(service["figures"]["calls_per_second"], 0.0, "{answers}: {forecast}");
    }
    assert_eq!(get(&calls).await["transitions"][0]["to"], "open");
    // What a killed instance knew goes with its heartbeat.
    calls.kill();
    let closed = wait_for_breaker(&looks, "message.call", "closed").await;
    assert_eq!(closed["instances"], json!([]));
}

/// An instance that was not asked kept its breaker open.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_through_one_instance_reaches_the_others() {
    let kept = Kept::redis();
    let (receiver, calls, looks) = one_fails(&kept).await;
    wait_for_breaker(&looks, "message.call", "open").await;
    receiver.answer(|_| Answer::Status(200));
    let probe = r#"{"sn":"message.call"}"#;
    let probed = looks.post("/delay/destination/probe", probe).await.ok().body;
    assert_eq!(probed["breaker"], "closed", "its own: {probed}");
    assert_eq!(probed["instances"][0]["breaker"], "open", "{probed}");
    wait_for_breaker(&calls, "message.call", "closed").await;
    let heard = async || {
        let one = wait_for_breaker(&looks, "message.call", "closed").await;
        one["instances"][0]["probed_ms"].is_i64()
    };
    assert!(poll::until(heard).await, "{}", listed(&looks, "message.call").await);
    assert!(calls.log().contains("Service message.call is probed by hand"), "{}", calls.log());
}

/// Each instance has a breaker of its own, and a probe ends the wait of all of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_ends_the_wait_on_both_of_two_instances_that_call() {
    let kept = Kept::redis();
    let receiver = Receiver::answering(|_| Answer::Status(500)).await;
    let settings = with_lasting_breaker(&receiver);
    let (one, two) = (kept.start(&settings).await, kept.start(&settings).await);
    one.add_all(&tasks("message.call", 200)).await;
    let on_each = async |of: &Program| {
        let shown = listed(of, "message.call").await;
        shown["instances"].as_array().unwrap().clone()
    };
    // Each knows the other by its heartbeat, which may be a second old.
    for instance in [&one, &two] {
        let both_open = async || {
            let each = on_each(instance).await;
            each.len() == 2 && each.iter().all(|on| on["breaker"] == "open")
        };
        assert!(poll::until(both_open).await, "{:?}", on_each(instance).await);
    }
    receiver.answer(|_| Answer::Status(200));
    let probe = r#"{"sn":"message.call"}"#;
    let probed = two.post("/delay/destination/probe", probe).await.ok().body;
    assert_eq!(probed["instances"].as_array().unwrap().len(), 2, "{probed}");
    for instance in [&one, &two] {
        let heard = async || {
            let each = on_each(instance).await;
            let has_heard = |on: &Value| on["probed_ms"].is_i64() && on["breaker"] != "open";
            each.len() == 2 && each.iter().all(has_heard)
        };
        assert!(poll::until(heard).await, "{:?}", on_each(instance).await);
    }
}
