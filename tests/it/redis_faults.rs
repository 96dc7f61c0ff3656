//! Faults that only a Redis store has: a lost answer, a lost counter, memory at its limit.

use std::sync::Arc;
use std::time::Duration;

use delayd::model::clock::Clock;
use delayd::model::task::TaskId;
use delayd::store::redis::{Params, Redis};
use delayd::store::{
    Audit, AuditEntry, Claim, Claimed, Delivery, Error, Intake, Moment, NewTask, Store, TopicEntry,
    Topics, Want,
};
use delayd_wire::{AuditResult, AuditSource};
use serde_json::json;

use crate::poll;
use crate::program::service;
use crate::proxy::Proxy;
use crate::receiver::{Answer, Receiver};
use crate::redis_many::until_followed;
use crate::redis_server::{self, Server};
use crate::slow_wire::SlowWire;
use crate::{Program, StoreAt};

pub async fn connect(port: u16, prefix: &str) -> Redis {
    connect_within(port, prefix, Duration::from_secs(30)).await
}

async fn connect_within(port: u16, prefix: &str, timeout: Duration) -> Redis {
    let params = Params {
        key_prefix: prefix.to_owned(),
        timeout,
        clock: Clock::system(),
        ..Params::standalone(format!("redis://127.0.0.1:{port}/0"))
    };
    Redis::connect(params).await.unwrap()
}

pub fn topic() -> TopicEntry {
    TopicEntry { topic: "t".parse().unwrap(), shards: 1 }
}

pub fn task(n: usize) -> NewTask {
    NewTask {
        topic: topic(),
        destination: "message.call".parse().unwrap(),
        moment: Moment::After(Duration::ZERO),
        options: Default::default(),
        content: format!("{{\"n\":{n}}}"),
        idempotency: None,
        quota: None,
    }
}

async fn add(store: &Redis, count: usize) -> Vec<TaskId> {
    let tasks = (0..count).map(task).collect();
    store.add(tasks).await.into_iter().map(|added| added.unwrap().id).collect()
}

/// Opening a lane takes three round trips, and callers wait for one and a half. Later callers find
/// the lane open.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_opened_though_its_first_callers_have_given_up() {
    let server = redis_server::shared();
    let wire = SlowWire::to(server.port(), Duration::ZERO).await;
    let prefix = format!("far{:x}", rand::random::<u64>());
    let far = connect_within(wire.address.port(), &prefix, Duration::from_secs(3)).await;
    // With connections, ids and scripts, but a topic that is new.
    let new = || TopicEntry { topic: "new".parse().unwrap(), shards: 1 };
    let adding = async |topic| far.add(vec![NewTask { topic, ..task(1) }]).await.remove(0);
    let is_ready = async || adding(topic()).await.is_ok() && far.create(new(), None).await.is_ok();
    assert!(poll::until(is_ready).await, "the store never answers within its timeout");
    wire.set_delay(Duration::from_millis(1_800));
    let adding = async || adding(new()).await;
    let first = adding().await;
    assert!(matches!(first, Err(Error::Unavailable(_))), "{first:?}");
    assert!(poll::until(async || adding().await.is_ok()).await, "the lane stays closed");
}

/// The answer to an add is lost, and the task has been claimed before the add is repeated. The
/// repeat must not schedule it again: it would fire twice.
#[tokio::test(flavor = "multi_thread")]
async fn an_add_repeated_after_a_lost_answer_does_not_schedule_a_claimed_task_again() {
    let server = redis_server::shared();
    let prefix = format!("lost{:x}", rand::random::<u64>());
    let proxy = Proxy::before(server.port()).await;
    let behind = Arc::new(connect(proxy.address.port(), &prefix).await);
    let direct = connect(server.port(), &prefix).await;
    // Now the block of ids and the scripts exist, so the next request is the add itself.
    add(&behind, 1).await;

    let loss = proxy.lose_next().await;
    let adding = tokio::spawn({
        let behind = behind.clone();
        async move { add(&behind, 3).await }
    });
    loss.executed().await;
    let lane = topic().lanes().next().unwrap();
    let want = Want { destination: "message.call".parse().unwrap(), slots: 10 };
    let claim = Claim {
        lane: lane.clone(),
        wants: vec![want],
        lease: Duration::from_secs(60),
        holder: None,
        more: false,
        after: None,
        in_hand: 0,
        misfires: Vec::new(),
    };
    let Claimed::Granted(grant) = direct.claim(claim).await.unwrap() else {
        unreachable!("no lock was asked for")
    };
    loss.close();
    let mut ids = adding.await.unwrap();
    let claimed: Vec<TaskId> = grant.tasks.iter().map(|task| task.id).collect();
    ids.sort_unstable();
    assert_eq!(claimed[1..], ids, "the repeat returned other ids than the first try");
    let counts = direct.stats(&lane).await.unwrap();
    assert_eq!((counts.leased, counts.scheduled), (4, 0), "a claimed task was scheduled again");
}

/// A Redis that lost its last second has also lost ids that are in use. No instance may give out
/// one of them again, whether it drew its block before or draws it afterwards. The first draw skips
/// ahead, whichever instance it is of, and no other does.
#[tokio::test(flavor = "multi_thread")]
async fn ids_stay_unique_when_redis_has_lost_its_counter() {
    const SECOND: u64 = 1_000_000;
    let mut server = Server::with_options(&["--appendonly", "no"]);
    let (one, two) = (connect(server.port(), "ids").await, connect(server.port(), "ids").await);
    let mut ids = add(&one, 3).await;
    ids.extend(add(&two, 3).await);
    let last = ids.iter().max().unwrap().0;
    server.kill();
    server.restart();
    let mut fresh = Vec::new();
    for store in [&two, &one, &connect(server.port(), "ids").await] {
        // The first call may be the one that finds the connection broken.
        assert!(poll::until(async || store.ping().await.is_ok()).await);
        // Ids that were drawn before the loss stay valid for a second. The first ones after it are
        // ahead of these, and of the clock.
        let draws = poll::answer(async || {
            let ahead = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() + 3;
            let skipped = (ahead * SECOND).max(last + 2 * SECOND);
            let least = fresh.first().copied().unwrap_or(skipped);
            let id = add(store, 1).await[0];
            ids.push(id);
            (id.0 > least).then_some(id.0)
        });
        fresh.push(draws.await.expect("the counter did not skip ahead"));
    }
    assert!(fresh[2] < fresh[0] + 4 * SECOND, "several draws have skipped: {fresh:?}");
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id was drawn twice");
}

/// A server is replaced, and promoted again without a restart: its `run_id` is the one that it had
/// before. All that its successor wrote is lost.
#[tokio::test(flavor = "multi_thread")]
async fn ids_stay_unique_when_a_server_is_promoted_again_without_a_restart() {
    const LATER: Duration = Duration::from_secs(60);
    // Two failovers, each of which loses everything, have to be more than two seconds apart.
    const APART: Duration = Duration::from_secs(3);
    let (first, second) = (Server::with_options(&[]), Server::with_options(&[]));
    let follow = |replica: &Server, primary: &Server| {
        replica.command(&["REPLICAOF", primary.host(), &primary.port().to_string()]);
        until_followed(primary, 1);
    };
    let promote = |server: &Server| server.command(&["REPLICAOF", "NO", "ONE"]);
    let clock = Clock::manual(Clock::system().now());
    let add_to = async |server: &Server| {
        let params = Params {
            key_prefix: "ids".into(),
            clock: clock.clone(),
            ..Params::standalone(server.url())
        };
        add(&Redis::connect(params).await.unwrap(), 3).await
    };
    follow(&second, &first);
    let mut ids = add_to(&first).await;
    clock.advance(LATER);
    ids.extend(add_to(&first).await);
    until_followed(&first, 1);
    promote(&second);
    follow(&first, &second);
    // From here, the first server receives nothing of the second.
    promote(&first);
    ids.extend(add_to(&second).await);
    drop(second);
    clock.advance(APART);
    let again = add_to(&first).await;
    let (last, next) = (ids.iter().max().unwrap(), again.iter().min().unwrap());
    assert!(next > last, "{again:?} follow {ids:?}");
    assert!(next.0 - last.0 < 5_000_000, "{again:?} are far above {ids:?}");
}

/// A caller that disconnects while ids are drawn has been refused: none of its tasks may be stored.
/// The task of the other caller, in the same batch, is stored.
#[tokio::test]
async fn a_caller_that_disconnects_while_ids_are_drawn_leaves_no_task() {
    let server = Server::start();
    let store = Arc::new(connect(server.port(), "gone").await);
    server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let adding = |count| {
        let store = store.clone();
        tokio::spawn(async move { add(&store, count).await })
    };
    let (goes, stays) = (adding(3), adding(1));
    let is_drawing = || {
        server
            .command(&["CLIENT", "LIST"])
            .lines()
            .any(|line| line.contains("flags=b") && line.contains("cmd=evalsha"))
    };
    assert!(poll::until(async || is_drawing()).await, "no call draws ids");
    goes.abort();
    assert!(goes.await.unwrap_err().is_cancelled());
    server.command(&["CLIENT", "UNPAUSE"]);
    assert_eq!(stays.await.unwrap().len(), 1);
    let lane = topic().lanes().next().unwrap();
    assert_eq!(store.stats(&lane).await.unwrap().scheduled, 1);
}

/// A silent Redis costs each caller one or two timeouts, however many callers there are: they do
/// not queue for one attempt each. When it answers again, all calls work again.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_redis_is_an_error_soon_and_not_a_hang() {
    let server = Server::start();
    let receiver = Receiver::start().await;
    let store = StoreAt::Redis(server.port(), "silent".into());
    let settings = [service("message.call", &receiver), "store.redis.timeout=\"300ms\"".into()];
    let delayd = Program::start(&store, &settings).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "message.call", "url": "/"}});
    let id = delayd.add(task.clone()).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
    server.signal("STOP");
    let get = json!({"topic": "t", "task_id": id}).to_string();
    // Some at once, and some while the first ones time out.
    let calls = (0..60).map(|n| {
        let (delayd, get) = (&delayd, get.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(20 * (n / 2))).await;
            delayd.post("/delay/task/get", get).await.status
        }
    });
    for status in futures_util::future::join_all(calls).await {
        assert_eq!(status, 503);
    }
    server.signal("CONT");
    delayd.wait_until_ready(200).await;
    let id = delayd.add(task).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
}

/// At `maxmemory` adds are refused, but existing tasks are delivered. Otherwise memory would never
/// fall.
#[tokio::test(flavor = "multi_thread")]
async fn at_maxmemory_adds_are_refused_and_work_goes_on() {
    let server = Server::start();
    let receiver = Receiver::start().await;
    let store = StoreAt::Redis(server.port(), "full".into());
    let delayd = Program::start(&store, &[service("message.call", &receiver)]).await;
    let task = |delay: &str| {
        json!({
            "topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/"},
        })
    };
    let pushed = delayd.add_all(&vec![task("3s"); 50]).await;
    let pulled = delayd.add(json!({"topic": "p", "delay": 0, "content": {}})).await.id();
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);

    let refused = delayd.post("/delay/task/add", task("0s").to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (503, &json!(2003)), "{refused:?}");
    for id in pushed {
        delayd.wait_for_state("t", id, "delivered").await;
    }
    let leased = delayd.post("/delay/task/pull", r#"{"topic":"p","lease":"30s"}"#).await.ok();
    assert_eq!(leased.id(), pulled);
    let ack = json!({"topic": "p", "task_id": pulled, "receipt": leased.body["receipt"]});
    delayd.post("/delay/task/ack", ack.to_string()).await.ok();

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let id = delayd.add(task("0s")).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
}

/// A batch of entries that was stored in part was written again, so that entries were there twice.
#[tokio::test(flavor = "multi_thread")]
async fn at_maxmemory_audit_entries_are_stored_all_or_none() {
    const BATCH: usize = 64;
    let server = Server::start();
    let store = connect(server.port(), "full").await;
    let entry = AuditEntry::new(
        AuditSource::Api,
        &"a".repeat(4 << 10),
        AuditResult::Done,
        delayd_wire::UnixMillis(0),
    );
    let used = server.command(&["INFO", "memory"]);
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    // Four batches and a half.
    let limit = used.trim().parse::<usize>().unwrap() + (BATCH << 12) * 9 / 2;
    server.command(&["CONFIG", "SET", "maxmemory", &limit.to_string()]);
    let mut stored = 0;
    while store.record(vec![entry.clone(); BATCH]).await.is_ok() {
        stored += BATCH;
        assert!(stored < 100 * BATCH, "the memory has no limit");
    }
    assert!(stored > 0);
    let logged = async || store.audit(None, 10_000).await.unwrap().entries.len();
    assert_eq!(logged().await, stored);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    store.record(vec![entry; BATCH]).await.unwrap();
    assert_eq!(logged().await, stored + BATCH);
}

/// A record that cannot be read (for example of another version) must not stop the other tasks of
/// its claim.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_record_does_not_delay_other_tasks() {
    let server = redis_server::shared();
    let prefix = format!("odd{:x}", rand::random::<u64>());
    let receiver = Receiver::start().await;
    let store = StoreAt::Redis(server.port(), prefix.clone());
    let delayd = Program::start(&store, &[service("message.call", &receiver)]).await;
    let task = json!({"topic": "t", "delay": "2s", "content": {"sn": "message.call", "url": "/"}});
    let ids = delayd.add_all(&vec![task; 20]).await;
    let bodies = format!("{prefix}:DELAY_REALL_TOPIC_TASK-{{t:0}}");
    server.command(&["HSET", &bodies, &ids[7].to_string(), "9 of another version"]);
    let seen = receiver.wait_for(19).await;
    assert!(seen.iter().all(|call| call.attempt == 1 && call.id != ids[7]));
    assert!(delayd.log().contains("cannot be read"), "{}", delayd.log());
}

/// The store refuses settles for a while. When it takes them again, one lane's keys are damaged,
/// and the settles of that lane are given up. The other lanes must still learn that the store is
/// back; they used to wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lane_after_an_outage_does_not_stop_the_others() {
    let server = Server::start();
    let receiver = Receiver::answering(|call| {
        if call.path == "/gate" { Answer::AtTheGate } else { Answer::Status(200) }
    })
    .await;
    let delayd = Program::start(
        &StoreAt::Redis(server.port(), "broken".into()),
        &[service("message.call", &receiver)],
    )
    .await;
    let task = |topic: &str, url: &str| {
        json!({
            "topic": topic, "delay": 0, "content": {"sn": "message.call", "url": url},
        })
    };
    delayd.add(task("a", "/gate")).await;
    receiver.wait_for(1).await;
    server.command(&["ACL", "SETUSER", "default", "-evalsha"]);
    receiver.open_gate();
    delayd.wait_for_log("takes no settles").await;
    let entries = "broken:DELAY_ATTEMPTS_TOPIC_TASK-{a:0}";
    server.command(&["DEL", entries]);
    server.command(&["SET", entries, "no hash"]);
    server.command(&["ACL", "SETUSER", "default", "+evalsha"]);
    delayd.wait_until_ready(200).await;
    let id = delayd.add(task("b", "/")).await.id();
    delayd.wait_for_state("b", id, "delivered").await;
}

/// Redis refuses to publish. One line tells of it. What was refused is dropped, because the polls
/// of the others find it; what comes once Redis allows it again is published.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_redis_refuses_are_logged_once_and_later_ones_are_sent() {
    let server = Server::start();
    let receiver = Receiver::answering(|_| Answer::Status(200)).await;
    let delayd = Program::start(
        &StoreAt::Redis(server.port(), "it".into()),
        &[service("message.call", &receiver)],
    )
    .await;
    let pull = |topic: &str| json!({"topic": topic, "delay": "1h", "content": {"a": 1}});
    server.command(&["ACL", "SETUSER", "default", "-publish"]);
    let published = server.calls("publish");
    for topic in ["a", "b"] {
        delayd.add(pull(topic)).await;
        delayd.wait_for_log("refuses messages to other instances").await;
    }
    delayd.lives_for(Duration::from_secs(1)).await;
    assert_eq!(delayd.log().matches("refuses messages to other instances").count(), 1);
    assert_eq!(server.calls("publish"), published);
    server.command(&["ACL", "SETUSER", "default", "+publish"]);
    delayd.add(pull("c")).await;
    assert!(poll::until(async || server.calls("publish") > published).await);
}
