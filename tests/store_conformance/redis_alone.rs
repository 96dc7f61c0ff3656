//! Properties of Redis alone: several instances, the lane lock, scripts that can be forgotten, a
//! registry that can be lost.

use std::time::{Duration, Instant};

use deadpool_redis::redis::{self, FromRedisValue};
use delayd::model::clock::Clock;
use delayd::model::task::{State, TaskId};
use delayd::store::redis::Redis;
use delayd::store::{
    Admin, Asker, Claim, Claimed, Cleared, Delivery, Error, Grant, Hint, Intake, LockToken,
    Maintenance, Message, NewTask, Reader, Registered, Settle, Settled, Signals, Spread, Store,
    TopicEntry, Topics,
};

use crate::bench::{
    START, at, claim_of, connect, dead, delivered, fresh_prefix, hear, ids, lane, ms, new_task,
    retry, topic, topic_of,
};
use crate::redis_server::{self, Server};

/// A deployment: a key prefix, a manual clock, and the instances that share them.
struct Deployment {
    prefix: String,
    clock: Clock,
}

impl Deployment {
    fn new() -> Self {
        Self { prefix: fresh_prefix(), clock: Clock::manual(START) }
    }

    async fn instance(&self) -> Redis {
        connect(&self.prefix, &self.clock).await
    }

    /// A key outside of all lanes.
    fn key(&self, role: &str) -> String {
        format!("{}:{role}", self.prefix)
    }

    /// A key of the lane `orders:0`.
    fn lane_key(&self, role: &str) -> String {
        format!("{}:{role}-{{orders:0}}", self.prefix)
    }

    fn lock(&self) -> String {
        self.lane_key("DELAY_TOPIC_RELOAD_LOCK")
    }
}

/// One command on the Redis of the test process.
pub(crate) fn raw<T: FromRedisValue>(words: &[&str]) -> T {
    let client = redis::Client::open(redis_server::shared().url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).unwrap()
}

/// The tasks are leased before the answer is read. They used to be dropped by claim after claim,
/// until they died.
#[tokio::test]
async fn an_unreadable_destination_drops_no_task_of_a_claim() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    let added = add(&store, 1).await;
    raw::<()>(&["ZADD", &deployment.lane_key("DELAY_TOPIC_DESTINATIONS"), "5", "no name"]);
    let granted = grant(&store, claim_by("first", 1, false)).await;
    assert_eq!(ids(&granted), added);
    assert!(granted.outlook.due.is_empty(), "{:?}", granted.outlook.due);
}

fn claim_by(holder: &str, slots: usize, more: bool) -> Claim {
    Claim { holder: Some(LockToken(holder.into())), more, ..claim_of(&[("message.call", slots)]) }
}

async fn grant(store: &Redis, claim: Claim) -> Grant {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => grant,
        Claimed::Refused { retry_in } => panic!("refused for {retry_in:?}"),
    }
}

async fn refusal(store: &Redis, claim: Claim) -> Duration {
    match store.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => panic!("granted {} tasks", grant.tasks.len()),
        Claimed::Refused { retry_in } => retry_in,
    }
}

async fn add(store: &Redis, count: usize) -> Vec<TaskId> {
    let added = store.add(vec![new_task("message.call", 0); count]).await;
    added.into_iter().map(|added| added.unwrap().id).collect()
}

#[tokio::test]
async fn a_second_holder_is_refused_while_the_first_has_more_to_claim() {
    let deployment = Deployment::new();
    let (first, second) = (deployment.instance().await, deployment.instance().await);
    let added = add(&first, 4).await;
    assert_eq!(ids(&grant(&first, claim_by("first", 1, true)).await), added[..1]);
    let retry_in = refusal(&second, claim_by("second", 1, true)).await;
    assert!(ms(1) <= retry_in && retry_in <= ms(2_000), "{retry_in:?}");
    assert_eq!(
        ids(&grant(&first, claim_by("first", 1, true)).await),
        added[1..2],
        "the holder was refused for its own lock"
    );
    refusal(&second, claim_by("second", 1, true)).await;
    let pulls = Claim { holder: None, ..claim_of(&[("message.call", 1)]) };
    assert_eq!(
        grant(&second, pulls).await.tasks.len(),
        1,
        "a claim without a holder was refused for the lock"
    );
}

#[tokio::test]
async fn the_lock_is_given_back_by_a_holder_that_is_full() {
    let deployment = Deployment::new();
    let (first, second) = (deployment.instance().await, deployment.instance().await);
    let added = add(&first, 3).await;
    grant(&first, claim_by("first", 1, false)).await;
    assert_eq!(raw::<i64>(&["EXISTS", &deployment.lock()]), 0);
    assert_eq!(ids(&grant(&second, claim_by("second", 1, true)).await), added[1..2]);
    // The claim at the end of a drain has no destinations.
    grant(&second, Claim { wants: Vec::new(), more: false, ..claim_by("second", 1, false) }).await;
    assert_eq!(ids(&grant(&first, claim_by("first", 1, true)).await), added[2..]);
}

#[tokio::test]
async fn the_lock_is_given_back_by_a_holder_that_finds_the_lane_idle() {
    let deployment = Deployment::new();
    let (first, second) = (deployment.instance().await, deployment.instance().await);
    add(&first, 2).await;
    assert_eq!(grant(&first, claim_by("first", 10, true)).await.tasks.len(), 2);
    assert_eq!(raw::<i64>(&["EXISTS", &deployment.lock()]), 0);
    add(&first, 1).await;
    assert_eq!(grant(&second, claim_by("second", 1, true)).await.tasks.len(), 1);
}

/// The end of a lock is a moment of the server's clock. With the clock set back by an hour, a dead
/// holder's lock would last for an hour.
#[tokio::test]
async fn a_lock_from_before_the_clock_was_set_back_blocks_no_claim() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    add(&store, 1).await;
    let () = raw(&["SET", &deployment.lock(), "dead", "PX", "3600000"]);
    assert_eq!(grant(&store, claim_by("alive", 1, false)).await.tasks.len(), 1);
    let () = raw(&["SET", &deployment.lock(), "busy", "PX", "2000"]);
    assert!(refusal(&store, claim_by("alive", 1, false)).await <= Duration::from_secs(2));
}

#[tokio::test]
async fn a_holder_renews_its_lock_with_each_claim() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    add(&store, 5).await;
    grant(&store, claim_by("first", 1, true)).await;
    raw::<()>(&["PEXPIRE", &deployment.lock(), "500"]);
    grant(&store, claim_by("first", 1, true)).await;
    let left = raw::<i64>(&["PTTL", &deployment.lock()]);
    assert!((1_001..=2_000).contains(&left), "{left} ms");
}

/// The only wait in real time: the lock runs by Redis' own clock.
#[tokio::test]
async fn a_dead_holder_gives_way_to_another() {
    let deployment = Deployment::new();
    let (first, second) = (deployment.instance().await, deployment.instance().await);
    add(&first, 3).await;
    grant(&first, claim_by("first", 1, true)).await;
    drop(first);
    let mut tries = 0;
    loop {
        tries += 1;
        match second.claim(claim_by("second", 1, true)).await.unwrap() {
            Claimed::Granted(grant) => {
                assert_eq!(grant.tasks.len(), 1);
                break;
            }
            Claimed::Refused { retry_in } => tokio::time::sleep(retry_in.max(ms(1))).await,
        }
    }
    assert!(tries < 20, "{tries} tries: a refusal must say when to try again");
}

#[tokio::test]
async fn two_instances_share_everything() {
    let deployment = Deployment::new();
    let (first, second) = (deployment.instance().await, deployment.instance().await);
    let (here, there) = tokio::join!(add(&first, 300), add(&second, 300));
    let mut all: Vec<TaskId> = here.into_iter().chain(there).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 600, "an id was drawn twice");

    let leased = grant(&first, claim_by("first", 1, false)).await;
    let (id, receipt) = (leased.tasks[0].id, leased.receipt);
    assert_eq!(
        second.get(Reader::Worker, &lane(), id).await.unwrap().unwrap().state,
        State::Leased
    );
    let settle = Settle { lane: lane(), id, receipt, transition: delivered() };
    assert_eq!(
        second.settle(Asker::Worker, vec![settle.clone()]).await.remove(0).unwrap(),
        Settled::Done
    );
    assert_eq!(
        first.settle(Asker::Worker, vec![settle]).await.remove(0).unwrap(),
        Settled::Done,
        "the settle was repeated by the other instance"
    );
    assert_eq!(first.stats(&lane()).await.unwrap(), second.stats(&lane()).await.unwrap());
    assert_eq!(second.topics().await.unwrap(), [Registered::plain(topic())]);
}

#[tokio::test]
async fn prefixes_keep_deployments_apart() {
    let (one, other) = (Deployment::new(), Deployment::new());
    let (store, stranger) = (one.instance().await, other.instance().await);
    let id = add(&store, 1).await[0];
    assert!(stranger.get(Reader::Worker, &lane(), id).await.unwrap().is_none());
    assert!(stranger.topics().await.unwrap().is_empty());
    assert!(stranger.recover_topics().await.unwrap().is_empty());
}

/// What the workers of one instance say reaches those of the others, and not themselves.
#[tokio::test]
async fn messages_reach_the_workers_of_other_instances() {
    let deployment = Deployment::new();
    let (here, there) = (deployment.instance().await, deployment.instance().await);
    let [mut at_here, mut at_there] = [&here, &there].map(|store| store.messages().unwrap());
    let channel = deployment.key("DELAY_HINT");
    let deadline = Instant::now() + Duration::from_secs(60);
    while raw::<(String, i64)>(&["PUBSUB", "NUMSUB", &channel]).1 < 2 {
        assert!(Instant::now() < deadline, "the instances do not listen for messages");
        tokio::time::sleep(ms(5)).await;
    }
    let due = Message::Due { lane: lane(), due: at(700) };
    for message in [Message::Leaves, due] {
        here.tell_others(message.clone());
        let heard = tokio::time::timeout(Duration::from_secs(60), at_there.recv()).await;
        assert_eq!(heard.expect("it is heard in time").unwrap(), message);
    }
    there.tell_others(Message::Leaves);
    let heard = tokio::time::timeout(Duration::from_secs(60), async {
        // Its own message about due work has no origin.
        while matches!(at_here.recv().await.unwrap(), Message::Due { .. }) {}
    });
    heard.await.expect("only the other instance's message ends this");
    assert!(at_here.is_empty());
}

/// A consumer may wait at any instance, whichever takes the add. Without the hint it would get the
/// task at the next poll.
#[tokio::test]
async fn hints_for_consumers_reach_every_instance_once() {
    let deployment = Deployment::new();
    let (here, there) = (deployment.instance().await, deployment.instance().await);
    let (mut hints_here, mut hints_there) = (here.hints(), there.hints());
    let channel = deployment.key("DELAY_HINT");
    let deadline = Instant::now() + Duration::from_secs(60);
    while raw::<(String, i64)>(&["PUBSUB", "NUMSUB", &channel]).1 < 2 {
        assert!(Instant::now() < deadline, "the instances do not listen for hints");
        tokio::time::sleep(ms(5)).await;
    }
    here.add(vec![new_task("message.call", 5), new_task("@pull", 700)]).await;
    let pulled = |due| Hint { lane: lane(), due: at(due), is_pull: true };
    assert_eq!(
        hear(&mut hints_there).await,
        pulled(700),
        "a hint for workers came from the other instance"
    );
    let own = [hear(&mut hints_here).await, hear(&mut hints_here).await];
    assert!(own.contains(&pulled(700)), "{own:?}");
    there.add(vec![new_task("@pull", 900)]).await;
    assert_eq!(hear(&mut hints_here).await, pulled(900), "an instance received its own hint");
}

/// The hint named a moment after those of the tasks. Their lane read what fell due from it on, and
/// the tasks waited for the scan of all due destinations.
#[tokio::test]
async fn the_hint_of_a_replay_names_the_moment_of_its_first_task() {
    let store = connect(&fresh_prefix(), &Clock::system()).await;
    let added = add(&store, 1_000).await;
    let Grant { receipt, .. } = grant(&store, claim_by("first", 1_000, false)).await;
    let die = |id: &TaskId| Settle {
        lane: lane(),
        id: *id,
        receipt: receipt.clone(),
        transition: dead(),
    };
    store.settle(Asker::Worker, added.iter().map(die).collect()).await;
    let mut hints = store.hints();
    let count = store.replay(&lane(), added.clone(), None, Spread::default()).await.unwrap();
    assert_eq!(count, 1_000, "in several scripts");
    let due = store.get(Reader::Worker, &lane(), added[0]).await.unwrap().unwrap().due;
    assert_eq!(hear(&mut hints).await.due, due);
}

#[tokio::test]
async fn a_lost_registry_entry_is_written_again_by_an_add_into_an_empty_lane() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    let sharded = topic_of("sharded", 2);
    store.create(sharded.clone(), None).await.unwrap();
    raw::<()>(&["HDEL", &deployment.key("DELAY_TOPIC_LIST"), "sharded"]);
    assert!(store.topics().await.unwrap().is_empty());
    store
        .add(vec![NewTask { topic: sharded.clone(), ..new_task("message.call", 0) }])
        .await
        .remove(0)
        .unwrap();
    assert_eq!(store.topics().await.unwrap(), [Registered::plain(sharded)]);
}

#[tokio::test]
async fn a_recovery_finds_lanes_that_nobody_registered() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    let entries = [topic_of("sharded", 8), topic_of("order:eu", 1), topic()];
    for entry in &entries {
        store
            .add(vec![NewTask { topic: entry.clone(), ..new_task("@pull", 0) }])
            .await
            .remove(0)
            .unwrap();
    }
    raw::<()>(&["HDEL", &deployment.key("DELAY_TOPIC_LIST"), "sharded", "order:eu"]);
    let sorted = |mut entries: Vec<TopicEntry>| {
        entries.sort_by_key(|entry| entry.topic.clone());
        entries
    };
    let found = sorted(store.recover_topics().await.unwrap());
    assert_eq!(
        found,
        [topic_of("order:eu", 1), topic_of("sharded", 8)],
        "the topics were found with other lanes"
    );
    assert_eq!(
        sorted(store.topics().await.unwrap().into_iter().map(|topic| topic.entry).collect()),
        sorted(entries.to_vec())
    );
    assert!(store.recover_topics().await.unwrap().is_empty());
}

/// A failover lost the topic's entry, and the topic was registered again with fewer lanes. Its
/// tasks used to be in lanes that were never polled, until a check repaired that.
#[tokio::test]
async fn a_recovery_makes_the_registry_and_the_lanes_agree() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    let (old, new) = (topic_of("sharded", 4), topic_of("sharded", 2));
    let rewrite =
        || raw::<()>(&["HSET", &deployment.key("DELAY_TOPIC_LIST"), "sharded", r#"{"shards":2}"#]);
    let tasks = vec![NewTask { topic: old.clone(), ..new_task("message.call", 60_000) }; 40];
    let ids: Vec<TaskId> =
        store.add(tasks).await.into_iter().map(|added| added.unwrap().id).collect();
    store.cancel(&old.lane_of(ids[0]), ids[0], None).await.unwrap();
    rewrite();
    // All lanes agree.
    assert_eq!(store.recover_topics().await.unwrap(), std::slice::from_ref(&old));
    assert_eq!(store.topics().await.unwrap(), [Registered::plain(old.clone())]);
    // One lane was opened with the new number meanwhile.
    rewrite();
    raw::<()>(&["HSET", &deployment.key("DELAY_TOPIC_OFFSET-{sharded:0}"), "#shards", "2"]);
    assert!(store.recover_topics().await.unwrap().is_empty());
    assert_eq!(store.topics().await.unwrap(), [Registered::plain(new.clone())]);
    for (n, id) in ids.iter().enumerate() {
        let task = store
            .get(Reader::Worker, &new.lane_of(*id), *id)
            .await
            .unwrap()
            .expect("the task is in the lane of its id");
        assert_eq!(
            (task.state, task.due),
            (if n == 0 { State::Cancelled } else { State::Scheduled }, at(60_000))
        );
    }
    let mut scheduled = 0;
    for lane in new.lanes() {
        scheduled += store.stats(&lane).await.unwrap().scheduled;
    }
    assert_eq!(scheduled, 39, "each task must be scheduled once");
    for lane in old.lanes().skip(2) {
        assert_eq!(store.stats(&lane).await.unwrap(), Default::default(), "{lane}");
    }
    let more = store.add(vec![NewTask { topic: new, ..new_task("message.call", 0) }; 10]).await;
    assert!(more.iter().all(Result::is_ok), "{more:?}");
}

/// The topic was deleted and created again between the instance's read of the registry and its add.
/// To open a lane, the registry is read again after the lane.
#[tokio::test]
async fn a_deletion_during_an_add_fails_or_refuses_the_add() {
    let deployment = Deployment::new();
    let (adder, deleter) = (deployment.instance().await, deployment.instance().await);
    let (four, two) = (topic_of("sharded", 4), topic_of("sharded", 2));
    let lanes = |entry: &TopicEntry| entry.lanes().collect::<Vec<_>>();
    for round in 0..60_u32 {
        let (entry, other) = if round.is_multiple_of(2) { (&four, &two) } else { (&two, &four) };
        deleter.create(entry.clone(), None).await.unwrap();
        let adding =
            adder.add(vec![NewTask { topic: entry.clone(), ..new_task("message.call", 0) }; 8]);
        let deleting = async {
            let deleted = deleter.unregister(entry).await.unwrap();
            if deleted {
                deleter.create(other.clone(), None).await.unwrap();
            }
        };
        let (added, ()) = tokio::join!(adding, deleting);
        let registered = deleter.topic(&entry.topic).await.unwrap().unwrap().entry;
        for added in added {
            match added {
                Ok(added) => {
                    let found = deleter
                        .get(Reader::Worker, &registered.lane_of(added.id), added.id)
                        .await
                        .unwrap();
                    assert!(
                        found.is_some(),
                        "round {round}: stored by {entry:?}, registered {registered:?}"
                    );
                }
                Err(Error::StaleEntry) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        }
        for entry in [entry, other] {
            for lane in lanes(entry) {
                while deleter.clear(&lane, 100).await.unwrap().removed > 0 {}
            }
        }
        assert!(deleter.unregister(&registered).await.unwrap());
    }
}

#[tokio::test]
async fn keys_are_named_as_documented() {
    let deployment = Deployment::new();
    let store = deployment.instance().await;
    add(&store, 3).await;
    store.add(vec![new_task("@pull", 0)]).await;
    grant(&store, claim_by("first", 1, true)).await;
    let check = |key: String, kind: &str| assert_eq!(raw::<String>(&["TYPE", &key]), kind, "{key}");
    check(deployment.key("DELAY_TOPIC_LIST"), "hash");
    let counter = deployment.key("DELAY_TASK_ID");
    check(format!("{}-{{{counter}}}", deployment.key("DELAY_TASK_ID_RUN")), "string");
    check(counter, "string");
    check(
        deployment.key(&format!("DELAY_TOPIC_REVISION-{{{}}}", deployment.key("DELAY_TOPIC_LIST"))),
        "string",
    );
    let schedule = deployment.lane_key("DELAY_SIMPLE_TOPIC_TASK");
    check(format!("{schedule}:message.call"), "zset");
    check(format!("{schedule}:@pull"), "zset");
    check(deployment.lane_key("DELAY_REALL_TOPIC_TASK"), "hash");
    check(deployment.lane_key("DELAY_TOPIC_OFFSET"), "hash");
    check(deployment.lane_key("DELAY_TOPIC_DESTINATIONS"), "zset");
    check(deployment.lane_key("DELAY_LEASED_TOPIC_TASK"), "zset");
    check(deployment.lock(), "string");
    for key in raw::<Vec<String>>(&["KEYS", &format!("{}*", deployment.prefix)]) {
        let is_of_a_lane = key.contains("{orders:0}");
        let topics = deployment.key("DELAY_TOPIC_LIST");
        let is_of_the_registry = key.ends_with(&format!("-{{{topics}}}"));
        let counter = deployment.key("DELAY_TASK_ID");
        let is_of_the_counter = key.ends_with(&format!("-{{{counter}}}"));
        let is_common = is_of_the_counter || [topics, counter].contains(&key);
        assert!(is_of_a_lane || is_of_the_registry || is_common, "{key} has no hash tag");
    }
    let offset =
        raw::<String>(&["HGET", &deployment.lane_key("DELAY_TOPIC_OFFSET"), "message.call"]);
    assert_eq!(offset, START.to_string(), "the offset is not the moment of the claim");
}

/// A store on its own server, which the test may disturb.
pub(crate) async fn connect_to(server: &Server, clock: &Clock) -> Redis {
    let params = delayd::store::redis::Params {
        key_prefix: fresh_prefix(),
        timeout: Duration::from_secs(2),
        clock: clock.clone(),
        ..delayd::store::redis::Params::standalone(server.url())
    };
    Redis::connect(params).await.unwrap()
}

/// A Redis that restarted or failed over knows no script.
#[tokio::test]
async fn every_verb_survives_a_flushed_script_cache() {
    let server = Server::start();
    let clock = Clock::manual(START);
    let store = connect_to(&server, &clock).await;
    let flush = || assert_eq!(server.command(&["SCRIPT", "FLUSH", "SYNC"]).trim(), "OK");
    flush();
    let id = add(&store, 1).await[0];
    flush();
    let leased = grant(&store, claim_by("first", 1, false)).await;
    assert_eq!(ids(&leased), [id]);
    flush();
    assert_eq!(
        store.extend(Asker::Worker, &lane(), id, &leased.receipt, ms(1_000)).await.unwrap(),
        Settled::Done
    );
    flush();
    let settle = Settle { lane: lane(), id, receipt: leased.receipt, transition: retry(0) };
    assert_eq!(store.settle(Asker::Worker, vec![settle]).await.remove(0).unwrap(), Settled::Done);
    flush();
    assert_eq!(store.get(Reader::Worker, &lane(), id).await.unwrap().unwrap().attempts, 1);
    flush();
    assert_eq!(store.stats(&lane()).await.unwrap().scheduled, 1);
    flush();
    store.cancel(&lane(), id, None).await.unwrap();
    flush();
    assert_eq!(store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(), 0);
    clock.advance(ms(1));
    flush();
    assert_eq!(store.purge(&lane(), 0, State::Cancelled, clock.now(), 9).await.unwrap(), 1);
}

/// Work must go on at maxmemory. Otherwise memory would never fall.
#[tokio::test]
async fn a_full_redis_refuses_adds_and_delivers_tasks() {
    let server = Server::start();
    let clock = Clock::manual(START);
    let store = connect_to(&server, &clock).await;
    add(&store, 3).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = store.add(vec![new_task("message.call", 0)]).await.remove(0);
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    // An instance claims nothing before it has read the id of the store.
    store.id().await.unwrap();

    let leased = grant(&store, claim_by("first", 2, true)).await;
    assert_eq!(leased.tasks.len(), 2);
    let (first, second) = (leased.tasks[0].id, leased.tasks[1].id);
    assert_eq!(
        store.extend(Asker::Worker, &lane(), first, &leased.receipt, ms(60_000)).await.unwrap(),
        Settled::Done
    );
    let settle =
        |id, transition| Settle { lane: lane(), id, receipt: leased.receipt.clone(), transition };
    let settled = store
        .settle(Asker::Worker, vec![settle(first, delivered()), settle(second, retry(0))])
        .await;
    assert!(settled.iter().all(|settled| matches!(settled, Ok(Settled::Done))), "{settled:?}");
    store.cancel(&lane(), second, None).await.unwrap();
    clock.advance(ms(1));
    assert_eq!(store.purge(&lane(), 0, State::Delivered, clock.now(), 9).await.unwrap(), 1);

    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    add(&store, 1).await;
}

/// Each call began to scan the leased tasks anew, so a purge beside n of them cost n² steps.
#[tokio::test]
async fn a_clear_scans_the_leased_tasks_once() {
    let server = Server::start();
    let store = connect_to(&server, &Clock::system()).await;
    let count = 4_000;
    add(&store, count).await;
    let claim = claim_by("holder", count, false);
    assert_eq!(grant(&store, claim).await.tasks.len(), count);
    let mut marked = 0;
    loop {
        let Cleared { removed, cancelling } = store.clear(&lane(), 500).await.unwrap();
        if (removed, cancelling) == (0, 0) {
            break;
        }
        marked += cancelling;
    }
    assert_eq!(marked, count);
    let scans = server.calls("zscan");
    assert!(scans <= 3 * count as u64 / 500, "{scans} scans");
}

#[tokio::test]
async fn a_killed_redis_comes_back_with_every_task_and_repeats_no_id() {
    let mut server = Server::start();
    // With `everysec`, a kill may lose what was written in the last second.
    server.command(&["CONFIG", "SET", "appendfsync", "always"]);
    let clock = Clock::manual(START);
    let store = connect_to(&server, &clock).await;
    let before = add(&store, 10).await;
    server.kill();
    let lost = store.add(vec![new_task("message.call", 0)]).await.remove(0);
    assert!(matches!(lost, Err(Error::Unavailable(_))), "{lost:?}");
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.ping().await.is_err() {
        assert!(Instant::now() < deadline, "the store did not connect to its server again");
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(store.stats(&lane()).await.unwrap().scheduled, 10);
    let after = loop {
        match store.add(vec![new_task("message.call", 0)]).await.remove(0) {
            Ok(added) => break added.id,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(ms(20)).await;
    };
    assert!(after > before[9]);
}

/// Pings that wait for replicas one after another look like a silent server. They used to open the
/// circuit breaker for all work.
#[tokio::test]
async fn many_pings_without_replicas_do_not_open_the_breaker() {
    let server = Server::start();
    let params = delayd::store::redis::Params {
        wait_replicas: 1,
        ..delayd::store::redis::Params::standalone(server.url())
    };
    let store = Redis::connect(params).await.unwrap();
    for _ in 0..2 {
        let answers = futures_util::future::join_all((0..8).map(|_| store.ping())).await;
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        assert_eq!(store.breaker(), delayd::model::breaker::State::Closed);
    }
    store.next_due(vec![lane()]).await.unwrap();
}
