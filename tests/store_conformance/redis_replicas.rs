//! `wait_replicas` with a replica that does not answer.

use std::fmt::Debug;
use std::time::Duration;

use delayd::model::clock::Clock;
use delayd::model::task::{State, TopicPolicy};
use delayd::store::redis::{Params, Redis, Topology};
use delayd::store::{
    Admin, Asker, Claimed, Delivery, Error, Idempotency, Intake, NewTask, Pause, Result, Schedules,
    Settle, Store, Topics,
};

use crate::bench::{claim_of, delivered, fresh_prefix, lane, ms, new_task, topic, topic_of};
use crate::poll;
use crate::redis_many::{shared_cluster, until, until_followed};
use crate::redis_server::Server;
use crate::schedules;
use crate::transfer::stranger;

/// The timeout of calls that are to be confirmed.
const LONG: Duration = Duration::from_secs(60);

/// An instance that confirms what one replica has.
async fn instance(server: &Server, prefix: &str, timeout: Duration) -> Redis {
    let params = Params {
        key_prefix: prefix.into(),
        timeout,
        clock: Clock::system(),
        wait_replicas: 1,
        ..Params::standalone(server.url())
    };
    Redis::connect(params).await.unwrap()
}

/// A primary and the replica that follows it.
fn pair(options: &[&str]) -> (Server, Server) {
    let primary = Server::with_options(options);
    let port = primary.port().to_string();
    let follows = ["--replicaof", primary.host(), &port, "--repl-diskless-sync-delay", "0"];
    let replica = Server::with_options(&follows);
    until_followed(&primary, 1);
    (primary, replica)
}

fn once(key: &str) -> NewTask {
    let idempotency = Some(Idempotency { key: key.into(), fingerprint: 7, window: ms(86_400_000) });
    NewTask { idempotency, ..new_task("message.call", 3_600_000) }
}

/// Adds one task.
async fn add(store: &Redis, task: NewTask) -> Result<()> {
    store.add(vec![task]).await.remove(0).map(drop)
}

/// The answer, if a call was confirmed.
fn unless_refused<T: Debug>(answer: Result<T>) -> String {
    match answer {
        Err(Error::Unavailable(_)) => String::new(),
        other => format!("{other:?}"),
    }
}

/// Moves and health checks shared the connection of adds. Each waited for the replica, one after
/// the other, until the last of them took the connection for silent: adds failed, and the circuit
/// breaker opened.
#[tokio::test]
async fn adds_do_not_wait_behind_moves_and_health_checks() {
    let server = Server::start();
    let store = instance(&server, &fresh_prefix(), Duration::from_secs(10)).await;
    for round in 0..2_u64 {
        let adds = store.add(vec![new_task("message.call", 0)]);
        let moves = |n: u64| store.adopt(vec![stranger(1_700_000_000_000_000 + 10 * round + n)]);
        let (added, ..) = tokio::join!(adds, moves(0), moves(1), moves(2), moves(3), store.ping());
        let error = added[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("0 of 1 replicas"), "{error}");
    }
}

/// From Redis 7.2 on, `WAIT` counts from the last *write* of its connection. A call that found its
/// work done by another instance wrote nothing, and was confirmed although no replica had that
/// work.
#[tokio::test]
async fn a_call_that_finds_its_work_done_is_not_confirmed_before_a_replica_has_that_work() {
    let (primary, replica) = pair(&[]);
    let prefix = fresh_prefix();
    let before = instance(&primary, &prefix, LONG).await;
    let (lane, topic) = (lane(), topic());
    add(&before, new_task("message.call", 0)).await.unwrap();
    let Claimed::Granted(grant) = before.claim(claim_of(&[("message.call", 1)])).await.unwrap()
    else {
        panic!("nobody else claims");
    };
    let (receipt, id) = (grant.receipt.clone(), grant.tasks[0].id);
    let settle = Settle { lane: lane.clone(), id, receipt, transition: delivered() };
    let cancelled = before.add(vec![once("cancelled")]).await.remove(0).unwrap().id;
    before.set_schedule(&topic, schedules::new("paused", "1")).await.unwrap();
    let schedule = schedules::new("nightly", "1");
    until_followed(&primary, 1);

    replica.signal("STOP");
    let mut confirmed = Vec::new();
    let policy = TopicPolicy { quota: Some(9), ..TopicPolicy::default() };
    let held = "shop".parse().unwrap();
    let paused = schedules::name("paused");
    // Each call has its own instance, whose connections have written nothing, and waits for half a
    // second. In the first round it does its work, and in the second one it finds it done.
    let other = async || instance(&primary, &prefix, Duration::from_secs(1)).await;
    for round in ["first", "again"] {
        let mut check = |what: &str, is_confirmed: String| {
            if !is_confirmed.is_empty() {
                confirmed.push(format!("{what}, {round}: {is_confirmed}"));
            }
        };
        check("add", unless_refused(add(&other().await, once("new")).await));
        let settles = vec![settle.clone()];
        let settled = other().await.settle(Asker::Caller, settles).await.remove(0);
        check("ack", unless_refused(settled));
        check("cancel", unless_refused(other().await.cancel(&lane, cancelled, None).await));
        let moved = vec![stranger(1_700_000_000_000_000)];
        check("adopt", unless_refused(other().await.adopt(moved).await.remove(0)));
        let set = other().await.set_policy(&topic.topic, &policy).await;
        check("set policy", unless_refused(set));
        check("pause", unless_refused(other().await.pause(&topic.topic).await));
        check("hold", unless_refused(other().await.set_hold(&held, true).await));
        let set = other().await.set_schedule(&topic, schedule.clone()).await;
        check("set schedule", unless_refused(set));
        let pause = Some(Pause::Operator);
        let set = other().await.pause_schedule(&lane, &paused, pause).await;
        check("pause schedule", unless_refused(set));
        let gone = other().await.discard(&lane, State::Cancelled, vec![cancelled], None).await;
        check("discard", unless_refused(gone));
        check("register", unless_refused(other().await.create(topic.clone(), None).await));
        check("raise format", unless_refused(other().await.raise_format().await));
        check("ping", unless_refused(other().await.ping().await));
    }
    assert!(confirmed.is_empty(), "no replica has these:\n{}", confirmed.join("\n"));

    replica.signal("CONT");
    until_followed(&primary, 1);
    add(&before, once("new")).await.unwrap();
    before.pause(&topic.topic).await.unwrap();
    before.ping().await.unwrap();
}

/// A batch whose connection breaks is sent again on a new one, and finds its tasks stored. It was
/// then confirmed at once, because the new connection had written nothing.
#[tokio::test]
async fn a_batch_that_is_repeated_is_not_confirmed_before_a_replica_has_its_tasks() {
    let (primary, replica) = pair(&[]);
    let store = instance(&primary, &fresh_prefix(), Duration::from_secs(10)).await;
    add(&store, new_task("message.call", 0)).await.unwrap();
    replica.signal("STOP");
    let adding = tokio::spawn(async move { add(&store, new_task("message.call", 0)).await });
    let _primary = tokio::task::spawn_blocking(move || {
        // Only the connection of the add: with all of them, the circuit breaker may open.
        let waiting = || -> Option<String> {
            let clients = primary.command(&["CLIENT", "LIST"]);
            let client = clients.lines().find(|client| client.contains(" flags=b "))?;
            client.split(' ').find_map(|field| field.strip_prefix("id=")).map(str::to_owned)
        };
        until("the add waits for the replica", || waiting().is_some());
        primary.command(&["CLIENT", "KILL", "ID", &waiting().expect("it still waits")]);
        primary
    })
    .await
    .unwrap();
    let error = adding.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("0 of 1 replicas"), "{error}");
}

/// What confirmations write is in a slot of the server that they ask, whatever is confirmed.
#[tokio::test]
async fn each_server_of_a_cluster_confirms() {
    let params = Params {
        topology: Topology::Cluster,
        urls: shared_cluster(),
        key_prefix: fresh_prefix(),
        timeout: LONG,
        clock: Clock::system(),
        wait_replicas: 1,
        ..Params::standalone("")
    };
    let store = Redis::connect(params).await.unwrap();
    // Some nodes of a new cluster may not know it yet.
    assert!(poll::until(async || store.ping().await.is_ok()).await, "the cluster does not answer");
    let topic = topic_of("orders", 8);
    let tasks = (0..16).map(|n| NewTask { topic: topic.clone(), ..once(&n.to_string()) });
    let tasks: Vec<NewTask> = tasks.collect();
    for _ in 0..2 {
        for added in store.add(tasks.clone()).await {
            added.unwrap();
        }
        store.pause(&topic.topic).await.unwrap();
        store.set_hold(&"shop".parse().unwrap(), true).await.unwrap();
    }
}

/// Acks are confirmed at `maxmemory` too: otherwise a full server would never be emptied.
#[tokio::test]
async fn an_ack_is_confirmed_at_maxmemory() {
    let (primary, _replica) = pair(&["--maxmemory-policy", "noeviction"]);
    let store = instance(&primary, &fresh_prefix(), LONG).await;
    add(&store, new_task("message.call", 0)).await.unwrap();
    let Claimed::Granted(grant) = store.claim(claim_of(&[("message.call", 1)])).await.unwrap()
    else {
        panic!("nobody else claims");
    };
    primary.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = add(&store, new_task("message.call", 0)).await.unwrap_err();
    assert!(matches!(refused, Error::Full(_)), "{refused}");
    let (lane, receipt, id) = (lane(), grant.receipt.clone(), grant.tasks[0].id);
    let settle = Settle { lane, id, receipt, transition: delivered() };
    for _ in 0..2 {
        store.settle(Asker::Caller, vec![settle.clone()]).await.remove(0).unwrap();
    }
}
