//! The topic registry: a hash topic → `{"shards":n,"created_by":token}`, written before the topic's
//! first lane. `created_by` is absent if no token created the topic.
//!
//! A failover may lose an entry while the tasks survive. So adds that open a lane write it again
//! (`opening`), instances re-assert the entries that they know, and `recover` searches for lanes
//! that are not registered or that the registry contradicts.

use std::collections::HashMap;

use deadpool_redis::redis::{self, Cmd, FromRedisValue, cmd};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::model::task::{Lane, Topic};
use crate::store::redis::answer::text;
use crate::store::redis::script;
use crate::store::redis::session::Session;
use crate::store::redis::transport::link::Repeat;
use crate::store::redis::transport::node::{Node, Purpose};
use crate::store::redis::transport::refusal::CommandRefusal;
use crate::store::{Creator, Error, Result, TopicEntry};

/// The value of an entry. Fields may be added; unknown fields of a newer version are kept.
#[derive(Serialize, Deserialize)]
struct StoredTopic {
    shards: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_by: Option<String>,
}

impl Session {
    /// A concurrent deletion does not remove the topic afterwards.
    pub(crate) async fn create(
        &self,
        entry: TopicEntry,
        creator: Option<Creator>,
    ) -> Result<TopicEntry> {
        let answer = self.confirming.run_one(register(self, &entry, creator.as_ref())).await;
        read_answer(&entry, answer)
    }
}

/// As [`Session::create`], for many entries without a creator in one pipeline. One answer each.
pub(crate) async fn assert_all(
    session: &Session,
    entries: &[&TopicEntry],
) -> Vec<Result<TopicEntry>> {
    let commands: Vec<_> = entries.iter().map(|entry| register(session, entry, None)).collect();
    let answers = session.confirming.run_repeatable(&commands).await;
    entries.iter().zip(answers).map(|(entry, answer)| read_answer(entry, answer)).collect()
}

fn register(session: &Session, entry: &TopicEntry, creator: Option<&Creator>) -> Cmd {
    let created_by = creator.map(|creator| creator.token.to_string());
    let value = serde_json::to_string(&StoredTopic { shards: entry.shards, created_by })
        .expect("an entry is plain data");
    let most = creator.and_then(|creator| creator.most).map(|most| most.to_string());
    session
        .call(&script::REGISTER, &session.keys.of_registry())
        .arg(entry.topic.as_str())
        .arg(value)
        .arg(creator.map_or("", |creator| &creator.token))
        .arg(most.unwrap_or_default())
        .take()
}

fn read_answer(entry: &TopicEntry, answer: Result<redis::Value>) -> Result<TopicEntry> {
    match text(answer?)?.as_str() {
        "" => Err(Error::CreatorLimit),
        entry_now => read_entry(entry.topic.as_str(), entry_now),
    }
}

/// All entries, without policies and pauses.
pub(crate) async fn entries(session: &Session) -> Result<Vec<TopicEntry>> {
    let answer = session.working.run_one(cmd("HGETALL").arg(session.keys.topics()).take()).await?;
    let entries = HashMap::<String, String>::from_redis_value(answer)
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    Ok(read_all(session, &entries).map(|(entry, _)| entry).collect())
}

/// The entries that can be read, with their creators: an unreadable one must not hide the others.
pub(crate) fn read_all(
    session: &Session,
    entries: &HashMap<String, String>,
) -> impl Iterator<Item = (TopicEntry, Option<String>)> {
    entries.iter().filter_map(|(topic, value)| read_known(session, topic, value))
}

/// An entry, and the token that created it. `None` if it cannot be read, which is logged once.
pub(crate) fn read_known(
    session: &Session,
    topic: &str,
    value: &str,
) -> Option<(TopicEntry, Option<String>)> {
    let read = read_with_creator(topic, value);
    read.inspect_err(|error| session.log_once.error(&format!("A topic is skipped: {error}"))).ok()
}

pub(crate) fn read_entry(topic: &str, value: &str) -> Result<TopicEntry> {
    read_with_creator(topic, value).map(|(entry, _)| entry)
}

fn read_with_creator(topic: &str, value: &str) -> Result<(TopicEntry, Option<String>)> {
    let corrupt =
        || Error::Corrupt(format!("the registry's entry of topic {topic:?} cannot be read"));
    let stored: StoredTopic = serde_json::from_str(value).map_err(|_| corrupt())?;
    if !(1..=TopicEntry::MAX_SHARDS).contains(&stored.shards) {
        return Err(corrupt());
    }
    let topic = topic.parse().map_err(|_| corrupt())?;
    Ok((TopicEntry { topic, shards: stored.shards }, stored.created_by))
}

/// One SCAN step over about `count` keys of a server: where to continue, and the keys that match a
/// pattern.
pub(crate) async fn scan(
    node: &Node,
    cursor: u64,
    pattern: &str,
    count: usize,
) -> Result<(Option<u64>, Vec<String>)> {
    let scan = cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(count).take();
    let mut answers = node.link(Purpose::Working).run(&[scan], Repeat::Once).await?.into_iter();
    let answer =
        answers.next().transpose().map_err(CommandRefusal::into_error)?.unwrap_or_default();
    let (next, keys): (u64, Vec<Vec<u8>>) = FromRedisValue::from_redis_value(answer)
        .map_err(|error| Error::Corrupt(error.to_string()))?;
    let keys = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    Ok(((next != 0).then_some(next), keys))
}

/// The number of lanes of a topic: the number that its lanes with content remember. If none of them
/// remembers one, the lowest number that covers all of them. If some do, a lane without a number is
/// not a real lane: its key only looks like content.
pub(crate) async fn shards_of(
    session: &Session,
    topic: &Topic,
    lanes: impl Iterator<Item = u16>,
) -> Result<u16> {
    let (mut remembered, mut enough) = (0, 1);
    for shard in lanes {
        enough = enough.max(shard.saturating_add(1));
        match remembered_by(session, &Lane { topic: topic.clone(), shard }).await? {
            Some(shards) if shards > shard => remembered = remembered.max(shards),
            _ => {}
        }
    }
    let shards = if remembered == 0 { enough } else { remembered };
    Ok(shards.min(TopicEntry::MAX_SHARDS))
}

/// The number of lanes of the topic, which each lane remembers from its first task.
pub(crate) async fn remembered_by(session: &Session, lane: &Lane) -> Result<Option<u16>> {
    let read = cmd("HGET").arg(session.keys.offsets(lane)).arg("#shards").take();
    let answer = Option::<u16>::from_redis_value(session.working.run_one(read).await?);
    Ok(answer.ok().flatten())
}

/// Replaces a topic's entry if it is still `before`. Keeps fields that a newer version may have
/// added.
pub(crate) async fn rewrite(
    session: &Session,
    entry: &TopicEntry,
    before: &[u8],
    mut fields: Map<String, Value>,
) -> Result<bool> {
    fields.insert("shards".into(), json!(entry.shards));
    let call = session
        .call(&script::FSCK_TOPIC, &session.keys.of_registry())
        .arg(entry.topic.as_str())
        .arg(before)
        .arg(Value::Object(fields).to_string())
        .take();
    let rewritten = u8::from_redis_value(session.working.run_one(call).await?);
    Ok(rewritten.map_err(|error| Error::Corrupt(error.to_string()))? == 1)
}
