//! The store's own id and format in Redis, which several instances share; and when an import has to
//! look into other topics.

use std::time::Duration;

use delayd::model::clock::Clock;
use delayd::model::task::{Options, StoreId, TaskId};
use delayd::store::redis::{self, Redis};
use delayd::store::{
    Admin, Adopted, AdoptedStanding, Adoptee, Delivery, Error, FORMAT, Formats, Intake, Look,
    Signals, Store,
};

use crate::bench::{START, at, claim_of, connect, fresh_prefix, new_task, topic_of};
use crate::poll;
use crate::redis_alone::{connect_to, raw};
use crate::redis_server::{self, Server};

fn key_of(prefix: &str) -> String {
    format!("{prefix}:DELAY_STORE-{{{prefix}:DELAY_TOPIC_LIST}}")
}

/// Asks an instance until it returns this id. It may return what it read less than a second ago.
async fn wait_for(store: &Redis, id: StoreId) {
    assert!(
        poll::until(async || store.id().await.unwrap() == id).await,
        "the instance never took up the id {id}"
    );
}

#[tokio::test]
async fn instances_that_start_at_the_same_time_draw_one_id() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let mut instances = Vec::new();
    for _ in 0..12 {
        instances.push(connect(&prefix, &clock).await);
    }
    let ids = futures_util::future::join_all(instances.iter().map(Signals::id)).await;
    let first = *ids[0].as_ref().unwrap();
    for id in ids {
        assert_eq!(id.unwrap(), first);
    }
    assert_eq!(raw::<String>(&["HGET", &key_of(&prefix), "id"]), first.to_string());
    let other = connect(&fresh_prefix(), &clock).await;
    assert_ne!(other.id().await.unwrap(), first);
}

#[tokio::test]
async fn another_id_reaches_every_instance() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let (one, two) = (connect(&prefix, &clock).await, connect(&prefix, &clock).await);
    let first = one.id().await.unwrap();
    assert_eq!(two.id().await.unwrap(), first);
    let (before, id) = one.replace_id().await.unwrap();
    assert_eq!(before, Some(first));
    assert_ne!(id, first);
    wait_for(&one, id).await;
    wait_for(&two, id).await;
}

/// Servers of a cluster that kept their tasks may have calls in flight.
#[tokio::test]
async fn instances_write_a_lost_id_again() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let (one, two) = (connect(&prefix, &clock).await, connect(&prefix, &clock).await);
    let first = one.id().await.unwrap();
    raw::<i64>(&["DEL", &key_of(&prefix)]);
    wait_for_key(&one, &prefix).await;
    // An instance that starts now reads the id.
    wait_for(&two, first).await;
    assert_eq!(raw::<String>(&["HGET", &key_of(&prefix), "id"]), first.to_string());
}

async fn wait_for_key(store: &Redis, prefix: &str) {
    let is_there = async || {
        store.id().await.unwrap();
        raw::<i64>(&["EXISTS", &key_of(prefix)]) == 1
    };
    assert!(poll::until(is_there).await, "the id is not put back");
}

#[tokio::test]
async fn the_last_id_is_answered_while_the_server_is_away_and_after_it() {
    let mut server = Server::start();
    let store = connect_to(&server, &Clock::manual(START)).await;
    let id = store.id().await.unwrap();
    server.kill();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(store.id().await.unwrap(), id);
    server.restart();
    assert!(poll::until(async || store.ping().await.is_ok()).await);
    assert_eq!(store.id().await.unwrap(), id);
}

fn stranger(id: u64, origin: u64, topic: &str) -> Adoptee {
    Adoptee {
        topic: topic_of(topic, 1),
        id: TaskId(id),
        destination: "message.call".parse().unwrap(),
        created: at(-3_600_000),
        due: at(60_000),
        standing: AdoptedStanding::Waiting { due: at(60_000) },
        attempts: 0,
        outcome: String::new(),
        options: Options { origin: Some(StoreId(origin)), ..Options::default() },
        key_set: None,
        lent: false,
        content: "{}".into(),
    }
}

/// A move into a new store takes the same time, however many topics it has.
#[tokio::test]
async fn only_ids_that_may_have_been_given_twice_are_looked_for_in_other_topics() {
    let server = Server::start();
    let store = connect_to(&server, &Clock::manual(START)).await;
    store.id().await.unwrap();
    for n in 0..20 {
        let task = delayd::store::NewTask {
            topic: topic_of(&format!("t{n}"), 1),
            ..new_task("message.call", 0)
        };
        store.add(vec![task]).await.remove(0).unwrap();
    }
    let mut looks = 0;
    let mut looks_for = async |task: Adoptee| {
        assert_eq!(store.adopt(vec![task]).await.remove(0).unwrap(), Adopted::New);
        let stats = server.command(&["INFO", "commandstats"]);
        let line =
            stats.lines().find(|line| line.starts_with("cmdstat_hexists:")).unwrap_or_default();
        let calls: usize = line.split(['=', ',']).nth(1).map_or(0, |calls| calls.parse().unwrap());
        calls - std::mem::replace(&mut looks, calls)
    };
    let old = 1_700_000_000_000_000;
    assert_eq!(
        looks_for(stranger(old, 7, "t0")).await,
        0,
        "an id older than all of this store was looked for"
    );
    assert_eq!(
        looks_for(stranger(old + 10, 7, "t1")).await,
        0,
        "an id of the same store was looked for"
    );
    assert_eq!(
        looks_for(stranger(old + 5, 8, "t2")).await,
        20,
        "an id among those of another store was not looked for"
    );
    assert_eq!(
        looks_for(stranger(old + 11, 8, "t2")).await,
        0,
        "an id beside those of another store was looked for"
    );
    let now = START.0.unsigned_abs() * 1_000;
    assert_eq!(
        looks_for(stranger(now + 999_999, 7, "t3")).await,
        20,
        "an id as young as those of this store was not looked for"
    );
}

fn params(prefix: &str) -> redis::Params {
    redis::Params {
        key_prefix: prefix.into(),
        ..redis::Params::standalone(redis_server::shared().url())
    }
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let says = format!(
        "has format {}, and this version of delayd knows formats up to {FORMAT}",
        FORMAT + 1
    );
    assert!(
        matches!(&answer, Err(Error::Misconfigured(text)) if text.contains(&says)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_new_store_has_the_newest_format_and_a_newer_one_is_refused() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let store = connect(&prefix, &clock).await;
    store.id().await.unwrap();
    assert_eq!(raw::<u32>(&["HGET", &key_of(&prefix), "format"]), FORMAT);
    assert_eq!(store.formats().await.unwrap(), Formats { stored: FORMAT, newest: FORMAT });
    drop(store);
    raw::<i64>(&["HSET", &key_of(&prefix), "format", &(FORMAT + 1).to_string()]);
    assert_refused(Redis::connect(params(&prefix)).await);
    assert_refused(Redis::probe(params(&prefix)).await);
}

/// Its entries have fewer fields, and would be read wrongly.
#[tokio::test]
async fn a_store_of_a_build_before_format_1_is_refused() {
    let prefix = fresh_prefix();
    raw::<i64>(&["HSET", &key_of(&prefix), "id", "0123456789abcdef"]);
    for refused in [
        Redis::connect(params(&prefix)).await.map(drop),
        Redis::probe(params(&prefix)).await.map(drop),
    ] {
        assert!(
            matches!(&refused, Err(Error::Misconfigured(text)) if text.contains("before format 1")),
            "{refused:?}"
        );
    }
    assert_eq!(
        raw::<Option<u32>>(&["HGET", &key_of(&prefix), "format"]),
        None,
        "a refused start wrote something"
    );
}

/// The instance would go on writing data that only programs of its own format read.
#[tokio::test]
async fn an_instance_stops_when_the_format_is_raised_beyond_what_it_knows() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let store = connect(&prefix, &clock).await;
    store.add(vec![new_task("message.call", 0)]).await.remove(0).unwrap();
    store.id().await.unwrap();
    raw::<i64>(&["HSET", &key_of(&prefix), "format", &(FORMAT + 1).to_string()]);
    // Each instance does this every second.
    drop(store.look(Look::default()).await);
    assert_refused(store.add(vec![new_task("message.call", 0)]).await.remove(0));
    assert_refused(store.claim(claim_of(&[("message.call", 1)])).await);
    assert_refused(store.id().await);
    assert_refused(store.ping().await);
}

#[tokio::test]
async fn a_format_is_raised_under_running_instances_and_kept_with_the_id() {
    let (prefix, clock) = (fresh_prefix(), Clock::manual(START));
    let store = connect(&prefix, &clock).await;
    store.id().await.unwrap();
    let old = (FORMAT - 1).to_string();
    raw::<i64>(&["HSET", &key_of(&prefix), "format", &old]);
    let before = Formats { stored: FORMAT - 1, newest: FORMAT };
    assert_eq!(store.formats().await.unwrap(), before);
    // A lost hash is written again as it was.
    drop(store.look(Look::default()).await);
    raw::<i64>(&["DEL", &key_of(&prefix)]);
    wait_for_key(&store, &prefix).await;
    assert_eq!(store.formats().await.unwrap(), before);
    assert_eq!(store.raise_format().await.unwrap(), before);
    assert!(!store.raise_format().await.unwrap().can_rise());
    store.add(vec![new_task("message.call", 0)]).await.remove(0).unwrap();
}
