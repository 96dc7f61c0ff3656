//! The registry: `create`, `topics`, `set_policy`, `pause`, `resume`, `forget_misfire`,
//! `unregister`, `recover_topics`.

use std::collections::HashMap;
use std::sync::{Arc, Once};

use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use super::Embedded;
use super::rows::read_topic;
use super::schedules;
use super::sql::lane::lost_topics;
use super::sql::misfire::over;
use super::sql::topic::registered;
use super::sql::{self, only};
use super::values::{rows, state_number};
use super::write_tx::WriteTx;
use crate::model::clock::UnixMillis;
use crate::model::task::{State, Topic, TopicPolicy};
use crate::store::embedded::PER_TASK;
use crate::store::{
    Creator, Error, MAX_MISFIRES, Misfire, Misfired, Registered, Result, TopicEntry,
};

impl Embedded {
    pub(crate) async fn create(
        &self,
        entry: TopicEntry,
        creator: Option<Creator>,
    ) -> Result<TopicEntry> {
        // Known topics are registered repeatedly. That writes nothing, even on a full disk.
        let topic = entry.topic.clone();
        if let Some(known) = self.polls.run(move |db| entry_from(db, &topic)).await? {
            return Ok(known);
        }
        let create = move |tx: &mut WriteTx<'_>| create_in(tx, &entry, creator.as_ref());
        self.writes.add(1, PER_TASK, create).await?.ok_or(Error::CreatorLimit)
    }

    pub(crate) async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        let topic = topic.clone();
        let found = self.polls.run(move |db| topic_from(db, &topic)).await?;
        Ok(self.with_schedules(found.into_iter().collect()).pop())
    }

    pub(crate) async fn topics(&self) -> Result<Vec<Registered>> {
        Ok(self.with_schedules(self.reads.run(topics_from).await?))
    }

    pub(crate) async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        let (topic, policy) = (topic.clone(), policy.clone());
        self.writes.ask(1, move |tx| set_policy_in(tx, &topic, &policy)).await
    }

    pub(crate) async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        let topic = topic.clone();
        self.writes.ask(1, move |tx| pause_in(tx, &topic)).await
    }

    pub(crate) async fn resume(
        &self,
        topic: &Topic,
        becomes: Option<Misfired>,
    ) -> Result<Option<bool>> {
        let topic = topic.clone();
        self.writes.ask(1, move |tx| resume_in(tx, &topic, becomes)).await
    }

    pub(crate) async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        let entry = entry.clone();
        self.writes.ask(1, move |tx| unregister_in(tx, &entry)).await
    }

    /// Topics, with the note of those that have schedules.
    pub(super) fn with_schedules(&self, mut topics: Vec<Registered>) -> Vec<Registered> {
        self.recurring.mark(&mut topics);
        topics
    }

    pub(crate) async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        let topic = topic.clone();
        self.writes.run(1, move |tx| forget_misfire_in(tx, &topic, misfire)).await
    }

    pub(crate) async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        Ok(self.recurring.note(topic))
    }

    pub(crate) async fn recover_topics(&self) -> Result<Vec<TopicEntry>> {
        self.writes.run(1, recover_topics_in).await
    }
}

/// The entry that won; `None` if the creator may create no more topics.
pub(super) fn create_in(
    tx: &mut WriteTx<'_>,
    entry: &TopicEntry,
    creator: Option<&Creator>,
) -> rusqlite::Result<Option<TopicEntry>> {
    if let Some(known) = entry_from(tx.db, &entry.topic)? {
        return Ok(Some(known));
    }
    let token = creator.map(|creator| &*creator.token);
    if let Some(most) = creator.and_then(|creator| creator.most) {
        let created: i64 = tx.db.prepare_cached(sql::topic::CREATED)?.query_row([token], only)?;
        if usize::try_from(created).is_ok_and(|created| created >= most) {
            return Ok(None);
        }
    }
    tx.register(entry, token)?;
    Ok(Some(entry.clone()))
}

pub(super) fn entry_from(db: &Connection, topic: &Topic) -> rusqlite::Result<Option<TopicEntry>> {
    db.prepare_cached(sql::topic::SHARDS)?
        .query_row([topic.as_str()], |row| {
            Ok(TopicEntry { topic: topic.clone(), shards: only(row)? })
        })
        .optional()
}

/// Data that cannot be read affects only its topic: without an entry the topic is skipped, without
/// a policy it follows the configuration.
pub(super) fn topics_from(db: &Connection) -> rusqlite::Result<Vec<Registered>> {
    let mut misfires = misfires(db, None)?;
    let mut topics = Vec::new();
    let mut select = db.prepare_cached(sql::topic::ALL)?;
    let mut found = select.query([])?;
    while let Some(row) = found.next()? {
        let Some(entry) = read_topic(row, (registered::name, registered::shards))? else {
            continue;
        };
        let past = misfires.remove(entry.topic.as_str()).unwrap_or_default();
        topics.push(read_registered(row, entry, past)?);
    }
    Ok(topics)
}

/// One topic, if it is registered.
pub(super) fn topic_from(db: &Connection, topic: &Topic) -> rusqlite::Result<Option<Registered>> {
    let mut select = db.prepare_cached(sql::topic::ONE)?;
    let mut found = select.query([topic.as_str()])?;
    let Some(row) = found.next()? else { return Ok(None) };
    let Some(entry) = read_topic(row, (registered::name, registered::shards))? else {
        return Ok(None);
    };
    let past = misfires(db, Some(topic))?.remove(topic.as_str()).unwrap_or_default();
    read_registered(row, entry, past).map(Some)
}

fn read_registered(
    row: &Row<'_>,
    entry: TopicEntry,
    misfires: Vec<Misfire>,
) -> rusqlite::Result<Registered> {
    let created_by: Option<String> = row.get(registered::created_by)?;
    Ok(Registered {
        created_by: created_by.map(Into::into),
        policy: Arc::new(read_policy(row, registered::policy, &entry.topic)?),
        paused: row.get(registered::paused)?,
        misfires,
        has_schedules: false,
        entry,
    })
}

fn read_policy(row: &Row<'_>, column: usize, topic: &Topic) -> rusqlite::Result<TopicPolicy> {
    let Some(text) = row.get_ref(column)?.as_bytes_or_null()? else {
        return Ok(TopicPolicy::default());
    };
    Ok(serde_json::from_slice(text).unwrap_or_else(|error| {
        // The topics are read every second.
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            tracing::error!(
                "The policy of topic {topic} cannot be read; it follows the configuration: {error}"
            );
        });
        TopicPolicy::default()
    }))
}

/// The past pauses of a topic, or of all topics, the newest last. A pause with an unknown state has
/// its tasks delivered late.
fn misfires(
    db: &Connection,
    of: Option<&Topic>,
) -> rusqlite::Result<HashMap<String, Vec<Misfire>>> {
    let mut all: HashMap<String, Vec<Misfire>> = HashMap::new();
    let mut select = db.prepare_cached(match of {
        Some(_) => sql::misfire::OF_TOPIC,
        None => sql::misfire::ALL,
    })?;
    let mut found = select.query(params_from_iter(of.map(Topic::as_str)))?;
    while let Some(row) = found.next()? {
        let state: i64 = row.get(over::state)?;
        let becomes = [Misfired::Expired, Misfired::Dead]
            .into_iter()
            .find(|becomes| number(*becomes) == state);
        if let Some(becomes) = becomes {
            let topic = String::from_utf8_lossy(row.get_ref(over::topic)?.as_bytes()?).into_owned();
            all.entry(topic).or_default().push(Misfire {
                from: row.get(over::first)?,
                to: row.get(over::last)?,
                becomes,
            });
        }
    }
    Ok(all)
}

fn number(becomes: Misfired) -> i64 {
    state_number(match becomes {
        Misfired::Expired => State::Expired,
        Misfired::Dead => State::Dead,
    })
}

pub(super) fn set_policy_in(
    tx: &mut WriteTx<'_>,
    topic: &Topic,
    policy: &TopicPolicy,
) -> rusqlite::Result<bool> {
    let text = serde_json::to_string(policy).expect("a policy is plain data");
    let text = (*policy != TopicPolicy::default()).then_some(text);
    let changed = tx.db.prepare_cached(sql::topic::SET_POLICY)?.execute((text, topic.as_str()))?;
    Ok(changed == 1)
}

pub(super) fn pause_in(
    tx: &mut WriteTx<'_>,
    topic: &Topic,
) -> rusqlite::Result<Option<UnixMillis>> {
    tx.db.prepare_cached(sql::topic::PAUSE)?.query_row((tx.now, topic.as_str()), only).optional()
}

pub(super) fn resume_in(
    tx: &mut WriteTx<'_>,
    topic: &Topic,
    becomes: Option<Misfired>,
) -> rusqlite::Result<Option<bool>> {
    let name = topic.as_str();
    let paused: Option<Option<UnixMillis>> =
        tx.db.prepare_cached(sql::topic::PAUSED)?.query_row([name], only).optional()?;
    let Some(since) = paused else { return Ok(None) };
    let Some(since) = since else { return Ok(Some(false)) };
    tx.db.prepare_cached(sql::topic::RESUME)?.execute([name])?;
    if let Some(becomes) = becomes {
        remember(tx, name, Misfire { from: since, to: tx.now, becomes })?;
    }
    Ok(Some(true))
}

fn remember(tx: &WriteTx<'_>, topic: &str, misfire: Misfire) -> rusqlite::Result<()> {
    tx.db.prepare_cached(sql::misfire::INSERT)?.execute((
        topic,
        misfire.from,
        misfire.to,
        number(misfire.becomes),
    ))?;
    tx.db.prepare_cached(sql::misfire::DELETE_OLDEST)?.execute((topic, rows(MAX_MISFIRES)))?;
    Ok(())
}

pub(super) fn forget_misfire_in(
    tx: &mut WriteTx<'_>,
    topic: &Topic,
    misfire: Misfire,
) -> rusqlite::Result<()> {
    tx.db.prepare_cached(sql::misfire::DELETE)?.execute((
        topic.as_str(),
        misfire.from,
        misfire.to,
        number(misfire.becomes),
    ))?;
    Ok(())
}

/// Also removes the topic's lanes and what they remember: a topic that is registered anew may have
/// another number of lanes.
pub(super) fn unregister_in(tx: &mut WriteTx<'_>, entry: &TopicEntry) -> rusqlite::Result<bool> {
    let name = entry.topic.as_str();
    // The counts are read from the table, and the lanes' numbers will be given to others.
    tx.forget_names()?;
    let has_tasks: bool =
        tx.db.prepare_cached(sql::lane::TOPIC_HAS_TASKS)?.query_row([name], only)?;
    if has_tasks || schedules::topic_has(tx.db, name)? {
        return Ok(entry_from(tx.db, &entry.topic)?.is_none());
    }
    for statement in [
        sql::idempotency::DELETE_OF_TOPIC,
        sql::owed_call::DELETE_OF_TOPIC,
        sql::task_key::DELETE_OF_TOPIC,
        sql::destination::DELETE_OF_TOPIC,
        sql::lane::DELETE_OF_TOPIC,
        sql::misfire::DELETE_OF_TOPIC,
        sql::topic::DELETE,
    ] {
        tx.db.prepare_cached(statement)?.execute([name])?;
    }
    Ok(true)
}

/// An add registers its topic in the same transaction, so this finds nothing unless the file was
/// edited.
pub(super) fn recover_topics_in(tx: &mut WriteTx<'_>) -> rusqlite::Result<Vec<TopicEntry>> {
    let lost: Vec<TopicEntry> = tx
        .db
        .prepare_cached(lost_topics::SQL)?
        .query_map([], |row| read_topic(row, (lost_topics::topic, lost_topics::shards)))?
        .filter_map(rusqlite::Result::transpose)
        .collect::<rusqlite::Result<_>>()?;
    for entry in &lost {
        tx.register(entry, None)?;
    }
    Ok(lost)
}
