//! The topic registry: a hash topic → `{"shards":n}`, written before the topic's first lane.
//!
//! A failover may lose an entry while the tasks survive. So adds that open a lane write it again
//! (`opening`), instances re-assert what they know, and [`recover`] looks for lanes that nobody
//! registered, or that the registry contradicts (`reconcile`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use deadpool_redis::redis::{FromRedisValue, cmd};
use serde::{Deserialize, Serialize};

use super::reconcile;
use crate::store::redis::Inner;
use crate::store::redis::ids::script_call;
use crate::store::redis::script;
use crate::store::redis::transport::link::Repeat;
use crate::store::redis::transport::node::{Node, Purpose};
use crate::store::redis::transport::refusal::Refusal;
use crate::store::{Error, Result, TopicEntry};
use crate::task::{Lane, Topic};

/// Keys looked at by one SCAN call.
const SCAN_COUNT: usize = 500;

/// An entry's value. Fields may be added; unknown ones of a newer version are left alone.
#[derive(Serialize, Deserialize)]
struct Stored {
    shards: u16,
}

/// Registers a topic unless it is there, and reads the winner back. A deletion that is under way
/// does not remove it after this.
pub(crate) async fn assert(inner: &Inner, entry: &TopicEntry) -> Result<TopicEntry> {
    assert_all(inner, &[entry])
        .await
        .pop()
        .unwrap_or_else(|| Err(Error::Corrupt("no answer".into())))
}

/// The same of many, in one pipeline. One answer each.
pub(crate) async fn assert_all(inner: &Inner, entries: &[&TopicEntry]) -> Vec<Result<TopicEntry>> {
    let keys = inner.keys.of_registry();
    let command = |entry: &&TopicEntry| {
        let value = serde_json::to_string(&Stored { shards: entry.shards })
            .expect("a number is plain data");
        script_call(&script::REGISTER, &keys, &inner.clock)
            .arg(entry.topic.as_str())
            .arg(value)
            .take()
    };
    let answers =
        inner.confirming.run_repeatable(&entries.iter().map(command).collect::<Vec<_>>()).await;
    let read = |(entry, answer): (&&TopicEntry, Result<_>)| {
        let text =
            String::from_redis_value(answer?).map_err(|error| Error::Corrupt(error.to_string()))?;
        read_entry(entry.topic.as_str(), &text)
    };
    entries.iter().zip(answers).map(read).collect()
}

/// All entries, without policies and pauses.
pub(crate) async fn entries(inner: &Inner) -> Result<Vec<TopicEntry>> {
    let answer = inner.working.run_one(cmd("HGETALL").arg(inner.keys.topics()).take()).await?;
    let entries = HashMap::<String, String>::from_redis_value(answer)
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(read_all(inner, &entries))
}

/// One unreadable entry must not hide the others.
pub(crate) fn read_all(inner: &Inner, entries: &HashMap<String, String>) -> Vec<TopicEntry> {
    entries.iter().filter_map(|(topic, value)| read_known(inner, topic, value)).collect()
}

/// An entry; nothing if it cannot be read, which is said once.
pub(crate) fn read_known(inner: &Inner, topic: &str, value: &str) -> Option<TopicEntry> {
    let read = read_entry(topic, value);
    read.inspect_err(|error| inner.complaints.once(&format!("A topic is passed over: {error}")))
        .ok()
}

pub(crate) fn read_entry(topic: &str, value: &str) -> Result<TopicEntry> {
    let corrupt =
        || Error::Corrupt(format!("the registry's entry of topic {topic:?} cannot be read"));
    let stored: Stored = serde_json::from_str(value).map_err(|_| corrupt())?;
    if !(1..=TopicEntry::MAX_SHARDS).contains(&stored.shards) {
        return Err(corrupt());
    }
    Ok(TopicEntry { topic: topic.parse().map_err(|_| corrupt())?, shards: stored.shards })
}

/// Finds lanes that nobody registered and registers their topics, and lanes that the registry
/// contradicts. Answers the entries that it wrote. A server that is away is passed over: the next
/// search finds its lanes.
pub(crate) async fn recover(inner: &Inner) -> Result<Vec<TopicEntry>> {
    let known: HashMap<Topic, TopicEntry> =
        entries(inner).await?.into_iter().map(|entry| (entry.topic.clone(), entry)).collect();
    let mut found: BTreeMap<Topic, BTreeSet<u16>> = BTreeMap::new();
    for node in inner.servers.map().nodes() {
        if let Err(error) = look_for_lanes(inner, node, &mut found).await {
            tracing::debug!(server = %node.name, %error, "Could not search a server for lanes");
        }
    }
    let mut entries = Vec::new();
    for (topic, lanes) in found {
        match known.get(&topic) {
            None => {
                let shards = shards_of(inner, &topic, lanes.into_iter()).await?;
                tracing::warn!(%topic, "Topic {topic} holds tasks but was not registered; it is again");
                entries.push(assert(inner, &TopicEntry { topic, shards }).await?);
            }
            Some(entry) => {
                if reconcile::is_needed(inner, entry, lanes.into_iter()).await? {
                    entries.extend(reconcile::reconcile(inner, &topic).await?);
                }
            }
        }
    }
    Ok(entries)
}

async fn look_for_lanes(
    inner: &Inner,
    node: &Node,
    found: &mut BTreeMap<Topic, BTreeSet<u16>>,
) -> Result<()> {
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let (next, keys) = scan(node, from, &inner.keys.any_bodies()).await?;
        for lane in keys.iter().filter_map(|key| inner.keys.lane_of(key)) {
            found.entry(lane.topic).or_default().insert(lane.shard);
        }
        cursor = next;
    }
    Ok(())
}

/// One step through the keys of a server that fit a pattern: where to go on, and what was found.
pub(crate) async fn scan(
    node: &Node,
    cursor: u64,
    pattern: &str,
) -> Result<(Option<u64>, Vec<String>)> {
    let scan =
        cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT).take();
    let mut answers = node.link(Purpose::Working).run(&[scan], Repeat::Once).await?.into_iter();
    let answer = answers.next().transpose().map_err(Refusal::into_error)?.unwrap_or_default();
    let (next, keys): (u64, Vec<Vec<u8>>) = FromRedisValue::from_redis_value(answer)
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    let keys = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    Ok(((next != 0).then_some(next), keys))
}

/// The topic's number of lanes: what those that hold bodies remember. Where none of them does, as
/// many as it takes to have them all; but beside one that does, one that does not is no lane of
/// ours: what stands there looks like bodies, and no more.
pub(crate) async fn shards_of(
    inner: &Inner,
    topic: &Topic,
    lanes: impl Iterator<Item = u16>,
) -> Result<u16> {
    let (mut remembered, mut enough) = (0, 1);
    for shard in lanes {
        enough = enough.max(shard.saturating_add(1));
        match remembered_by(inner, &Lane { topic: topic.clone(), shard }).await? {
            Some(shards) if shards > shard => remembered = remembered.max(shards),
            _ => {}
        }
    }
    let shards = if remembered == 0 { enough } else { remembered };
    Ok(shards.min(TopicEntry::MAX_SHARDS))
}

/// The topic's number of lanes, which each lane remembers from its first task.
pub(crate) async fn remembered_by(inner: &Inner, lane: &Lane) -> Result<Option<u16>> {
    let read = cmd("HGET").arg(inner.keys.offsets(lane)).arg("#shards").take();
    let answer = Option::<u16>::from_redis_value(inner.working.run_one(read).await?);
    Ok(answer.ok().flatten())
}
