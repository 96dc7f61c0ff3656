//! The occurrence of a recurring schedule: the task of one nominal moment.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{InvalidName, Lane, StoreId, TaskId, Topic, is_made_of};
use crate::model::clock::UnixMillis;

/// The name of a recurring schedule, unique within its topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScheduleName(Box<str>);

impl ScheduleName {
    /// The longest name, in bytes.
    pub const MAX: usize = 128;

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The lane of the schedule and its occurrences, in a topic with `shards` lanes.
    pub fn lane_in(&self, topic: &Topic, shards: u16) -> Lane {
        Lane { topic: topic.clone(), shard: Lane::shard_of_key(&self.0, shards) }
    }
}

impl FromStr for ScheduleName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text.is_empty() || text.len() > Self::MAX || !is_made_of(text, "._:-") {
            return Err(InvalidName("must be 1 to 128 characters of A-Z a-z 0-9 . _ : -".into()));
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for ScheduleName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<ScheduleName> for String {
    fn from(name: ScheduleName) -> Self {
        name.0.into()
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which occurrence a task is. Stored with the task's options as compact JSON; scripts of the Redis
/// store replace the numbers of `after` and `missed` in that text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occurrence {
    /// The schedule.
    pub name: ScheduleName,
    /// The nominal moment.
    pub moment: UnixMillis,
    /// The nominal local time, its fold and its zone, as text. It names the occurrence, because two
    /// programs with different zone data resolve it to different moments. Empty for an occurrence
    /// that a caller asked for beside the plan.
    pub cursor: String,
    /// With `overlap: skip`: the last occurrence that was handed out, or 0. If that has not ended
    /// when this one falls due, this one expires. The store fills it in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<TaskId>,
    /// How many moments were missed, for which this occurrence stands too.
    pub missed: u64,
}

impl Occurrence {
    /// The `webhook-id` of the occurrence: `<store>-s<32 hexadecimal digits>`. The digits depend on
    /// the topic, the schedule and the cursor alone, so a store that forgot an occurrence and plans
    /// it again uses the same.
    pub fn webhook_id(&self, store: StoreId, topic: &Topic) -> String {
        let mut digest = Sha256::new();
        for part in [topic.as_str(), self.name.as_str(), &self.cursor] {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let digits: String =
            digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{store}-s{digits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(name: &str, cursor: &str) -> Occurrence {
        Occurrence {
            name: name.parse().unwrap(),
            moment: UnixMillis(1_795_268_529_000),
            cursor: cursor.into(),
            after: None,
            missed: 0,
        }
    }

    #[test]
    fn a_name_is_1_to_128_plain_characters() {
        let check = |name: &str, allowed: bool| {
            assert_eq!(name.parse::<ScheduleName>().is_ok(), allowed, "{name:?}");
        };
        check("nightly.report:v2_eu-1", true);
        check(&"a".repeat(128), true);
        check("", false);
        check(&"a".repeat(129), false);
        check("with space", false);
    }

    /// Receivers recognize a moment that a store has planned again by it.
    #[test]
    fn a_webhook_id_is_made_of_the_store_the_topic_the_schedule_and_the_cursor() {
        let topic: Topic = "t".parse().unwrap();
        let id = |store, name, cursor| occurrence(name, cursor).webhook_id(StoreId(store), &topic);
        let first = id(1, "a", "2026-11-01T01:30:00");
        assert_eq!(first, "0000000000000001-s5f6b0325e604cb8c5001db8851ba65fc");
        let others = [
            id(2, "a", "2026-11-01T01:30:00"),
            id(1, "b", "2026-11-01T01:30:00"),
            id(1, "a", "2026-11-01T01:30:00/1"),
            occurrence("a", "2026-11-01T01:30:00").webhook_id(StoreId(1), &"u".parse().unwrap()),
        ];
        assert!(others.iter().all(|other| *other != first && other.len() == first.len()));
    }

    /// The scripts of the Redis store look for these texts.
    #[test]
    fn the_stored_text_ends_with_the_missed_moments() {
        let occurrence = Occurrence { after: Some(TaskId(0)), ..occurrence("a", "c") };
        let text = serde_json::to_string(&occurrence).unwrap();
        assert!(text.ends_with(",\"after\":0,\"missed\":0}"), "{text}");
        assert_eq!(serde_json::from_str::<Occurrence>(&text).unwrap(), occurrence);
    }
}
