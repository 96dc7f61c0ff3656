//! Topics with their policies and pauses. These lie in one slot with the registry's entries, so
//! that a script can check whether the topic exists.
//!
//! A policy that cannot be read counts as an empty one. A pause that cannot be read counts as a
//! pause: what was to be held is not delivered. Either affects its own topic alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deadpool_redis::redis::{Cmd, FromRedisValue, Value, cmd};

use super::entry;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, Receipt, Topic, TopicPolicy};
use crate::store::redis::answer::{corrupt, text};
use crate::store::redis::claim::name_of;
use crate::store::redis::script::{self, Script};
use crate::store::redis::session::Session;
use crate::store::{MAX_MISFIRES, Misfire, Misfired, Registered, Result, TopicEntry};

impl Session {
    pub(crate) async fn topics(&self) -> Result<Vec<Registered>> {
        let [topics, policies, pauses, _, _, scheduled, _] = self.keys.of_registry();
        let commands =
            [topics, policies, pauses, scheduled].map(|key| cmd("HGETALL").arg(key).take());
        let mut tables = Vec::with_capacity(commands.len());
        for answer in self.reading.run_repeatable(&commands).await {
            let pairs = HashMap::<Vec<u8>, Vec<u8>>::from_redis_value(answer?).map_err(corrupt)?;
            let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
            tables.push(
                pairs
                    .into_iter()
                    .map(|(name, value)| (text(name), text(value)))
                    .collect::<HashMap<_, _>>(),
            );
        }
        let [entries, policies, pauses, scheduled] =
            <[_; 4]>::try_from(tables).map_err(|_| corrupt("too few answers"))?;
        let registered = entry::read_all(self, &entries).map(|entry| {
            let name = entry.0.topic.as_str();
            let asked =
                (policies.get(name).map(String::as_str), pauses.get(name).map(String::as_str));
            let has_schedules = scheduled.contains_key(name);
            Registered { has_schedules, ..registered(self, entry, asked) }
        });
        Ok(registered.collect())
    }

    /// One topic, if it is registered.
    pub(crate) async fn topic(&self, topic: &Topic) -> Result<Option<Registered>> {
        let [topics, policies, pauses, _, _, scheduled, _] = self.keys.of_registry();
        let commands = [topics, policies, pauses, scheduled]
            .map(|key| cmd("HGET").arg(key).arg(topic.as_str()).take());
        let mut fields = Vec::with_capacity(commands.len());
        for answer in self.working.run_repeatable(&commands).await {
            let field = Option::<Vec<u8>>::from_redis_value(answer?).map_err(corrupt)?;
            fields.push(field.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        }
        let [entry, policy, pauses, scheduled] =
            <[_; 4]>::try_from(fields).map_err(|_| corrupt("too few answers"))?;
        let entry = entry.and_then(|text| entry::read_known(self, topic.as_str(), &text));
        Ok(entry.map(|entry| Registered {
            has_schedules: scheduled.is_some(),
            ..registered(self, entry, (policy.as_deref(), pauses.as_deref()))
        }))
    }

    pub(crate) async fn set_policy(&self, topic: &Topic, policy: &TopicPolicy) -> Result<bool> {
        let policy = serde_json::to_string(policy).expect("a policy is plain data");
        let call = call(self, &script::POLICY, topic).arg(policy).take();
        bool::from_redis_value(self.confirming.run_one(call).await?).map_err(corrupt)
    }

    pub(crate) async fn pause(&self, topic: &Topic) -> Result<Option<UnixMillis>> {
        match self.confirming.run_one(call(self, &script::PAUSE, topic)).await? {
            Value::Int(since) => Ok(Some(UnixMillis(since))),
            _ => Ok(None),
        }
    }

    pub(crate) async fn resume(
        &self,
        topic: &Topic,
        becomes: Option<Misfired>,
    ) -> Result<Option<bool>> {
        let call = call(self, &script::RESUME, topic)
            .arg(becomes.map_or("", name_of))
            .arg(MAX_MISFIRES)
            .take();
        let answer =
            i64::from_redis_value(self.confirming.run_one(call).await?).map_err(corrupt)?;
        Ok((answer >= 0).then_some(answer == 1))
    }

    pub(crate) async fn mark_schedules(&self, topic: &Topic) -> Result<bool> {
        let answer = self.confirming.run_one(call(self, &script::SCHEDULED, topic)).await?;
        bool::from_redis_value(answer).map_err(corrupt)
    }

    pub(crate) async fn forget_misfire(&self, topic: &Topic, misfire: Misfire) -> Result<()> {
        let Misfire { from, to, becomes } = misfire;
        let call = call(self, &script::FORGET_MISFIRE, topic)
            .arg(format!("{} {} {}", from.0, to.0, name_of(becomes)))
            .take();
        self.working.run_one(call).await.map(drop)
    }

    /// Announces the deletion, closes all lanes, and then removes the topic, unless it was
    /// registered again meanwhile: see `opening`.
    pub(crate) async fn unregister(&self, entry: &TopicEntry) -> Result<bool> {
        let count = |key: String| cmd("HLEN").arg(key).take();
        let lanes: Vec<Lane> = entry.lanes().collect();
        let keys =
            lanes.iter().flat_map(|lane| [self.keys.bodies(lane), self.keys.recurring(lane)]);
        if !all_say(self, &keys.map(count).collect::<Vec<_>>(), 0).await? {
            return Ok(false);
        }
        let token = Receipt::random();
        let registered = call(self, &script::DEPART, &entry.topic).arg(token.as_str()).take();
        let lanes = match text(self.confirming.run_one(registered).await?)?.as_str() {
            "" => lanes,
            // The caller's entry may be out of date.
            actual => entry::read_entry(entry.topic.as_str(), actual)?.lanes().collect(),
        };
        let leave = |lane| self.lane_call(&script::LEAVE, lane);
        if !all_say(self, &lanes.iter().map(leave).collect::<Vec<_>>(), 1).await? {
            return Ok(false);
        }
        let remove = call(self, &script::UNREGISTER, &entry.topic).arg(token.as_str()).take();
        bool::from_redis_value(self.confirming.run_one(remove).await?).map_err(corrupt)
    }
}

/// An entry, with its policy and pauses.
fn registered(
    session: &Session,
    (entry, created_by): (TopicEntry, Option<String>),
    (policy, pauses): (Option<&str>, Option<&str>),
) -> Registered {
    let name = entry.topic.as_str();
    let policy = policy.map_or_else(Arc::default, |text| read_policy(session, name, text));
    let Pauses { since, over } = pauses.map_or_else(Pauses::default, |text| {
        Pauses::read(text).unwrap_or_else(|| {
            session
                .log_once
                .error(&format!("The pauses of topic {name} cannot be read: it counts as paused"));
            Pauses { since: Some(UnixMillis(0)), over: Vec::new() }
        })
    });
    let created_by = created_by.map(Into::into);
    Registered { entry, created_by, policy, paused: since, misfires: over, has_schedules: false }
}

fn read_policy(session: &Session, topic: &str, text: &str) -> Arc<TopicPolicy> {
    let read = serde_json::from_str(text).inspect_err(|_| {
        session.log_once.error(&format!(
            "The policy of topic {topic} cannot be read: it counts as if it had none"
        ));
    });
    Arc::new(read.unwrap_or_default())
}

/// A topic's pauses: `<since, or -> <from> <to> <becomes> ...`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    since: Option<UnixMillis>,
    over: Vec<Misfire>,
}

impl Pauses {
    /// Reads what the scripts write. `None` for any other text.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let moment = |word: &str| word.parse().ok().map(UnixMillis);
        let since = match words.next()? {
            "-" => None,
            since => Some(moment(since)?),
        };
        let words: Vec<&str> = words.collect();
        let (triples, []) = words.as_chunks::<3>() else { return None };
        let read = |[from, to, becomes]: &[&str; 3]| {
            let becomes = [Misfired::Expired, Misfired::Dead]
                .into_iter()
                .find(|known| name_of(*known) == *becomes)?;
            Some(Misfire { from: moment(from)?, to: moment(to)?, becomes })
        };
        Some(Self { since, over: triples.iter().map(read).collect::<Option<_>>()? })
    }
}

fn call(session: &Session, script: &Script, topic: &Topic) -> Cmd {
    session.call(script, &session.keys.of_registry()).arg(topic.as_str()).take()
}

/// The names of the topics that may have recurring schedules.
pub(crate) async fn with_schedules(session: &Session) -> Result<HashSet<String>> {
    let [.., scheduled, _] = session.keys.of_registry();
    let answer = session.working.run_one(cmd("HKEYS").arg(scheduled).take()).await?;
    let names = Vec::<Vec<u8>>::from_redis_value(answer).map_err(corrupt)?;
    Ok(names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

async fn all_say(session: &Session, commands: &[Cmd], what: i64) -> Result<bool> {
    let mut do_all = true;
    for answer in session.confirming.run_repeatable(commands).await {
        do_all &= i64::from_redis_value(answer?).map_err(corrupt)? == what;
    }
    Ok(do_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read_as_the_scripts_write_them() {
        let misfire =
            |from, to, becomes| Misfire { from: UnixMillis(from), to: UnixMillis(to), becomes };
        let check = |text: &str, since: Option<i64>, over: &[Misfire]| {
            let expected = Pauses { since: since.map(UnixMillis), over: over.to_vec() };
            assert_eq!(Pauses::read(text), Some(expected), "{text}");
        };
        check("-", None, &[]);
        check("17", Some(17), &[]);
        check("- 5 6 dead", None, &[misfire(5, 6, Misfired::Dead)]);
        let over = [misfire(5, 6, Misfired::Expired), misfire(7, 9, Misfired::Dead)];
        check("17 5 6 expired 7 9 dead", Some(17), &over);
    }

    #[test]
    fn what_no_script_wrote_is_no_pause() {
        for text in ["", "x", "17 5", "17 5 6 gone", "- a 6 dead", "17  "] {
            assert_eq!(Pauses::read(text), None, "{text:?}");
        }
    }
}
