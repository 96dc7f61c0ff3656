//! The names of all keys of delayd in Redis.
//!
//! `<p>` is `store.redis.key_prefix`, and `R` is the registry's key.
//!
//! | role | key | type |
//! |---|---|---|
//! | topic registry | `R` = `<p>:DELAY_TOPIC_LIST` | hash topic → JSON, see `registry/entry.rs` |
//! | policies | `<p>:DELAY_TOPIC_POLICY-{R}` | hash topic → JSON |
//! | pauses | `<p>:DELAY_TOPIC_PAUSES-{R}` | hash topic → see `lua/lib/registry.lua` |
//! | the store | `<p>:DELAY_STORE-{R}` | hash: `id`, `since`, …; see `identity` |
//! | topics being deleted | `<p>:DELAY_TOPIC_LEAVING-{R}` | hash topic → token of the deletion |
//! | topics with recurring schedules | `<p>:DELAY_TOPIC_SCHEDULED-{R}` | hash topic → 1 |
//! | topics by their creators | `<p>:DELAY_TOPIC_CREATED-{R}` | zset `token topic` → 0 |
//! | the registry's revision | `<p>:DELAY_TOPIC_REVISION-{R}` | string, a number |
//! | instances | `<p>:DELAY_INSTANCES-{R}` | hash instance → see `lua/heartbeat.lua` |
//! | the audit log | `<p>:DELAY_AUDIT-{R}` | stream of entries, each with JSON as `entry` |
//! | last task id | `I` = `<p>:DELAY_TASK_ID` | string, a number |
//! | its server's run | `<p>:DELAY_TASK_ID_RUN-{I}` | string; see `lua/ids.lua` |
//! | manual holds | `H` = `<p>:DELAY_DESTINATION_HOLDS` | hash destination → since, Unix ms |
//! | manual releases | `<p>:DELAY_DESTINATION_RELEASES-{H}` | zset destination → when, Unix ms |
//! | a confirmation | `<p>:DELAY_CONFIRMATION-{…}` | only within one step; see `lua/confirm.lua` |
//! | hints | `<p>:DELAY_HINT` | channel; its messages are below |
//! | a lane's keys | see `lua/lib/keys.lua` | |
//!
//! The messages of the hints' channel. Each version ignores the forms that it does not know:
//!
//! - `lane due_ms`: workers of other instances have work from that moment on.
//! - `lane due_ms pull origin`: consumers that wait at other instances have.
//! - `* 0 leaves origin`: the sender has stopped working.
//!
//! A lane's keys end in its hash tag `{topic:shard}`, so one node of a cluster holds them all. The
//! tag `{R}` gives a key the registry's slot, and `{I}` that of the last task id.

use super::transport::slot;
use crate::model::task::{Destination, Lane};

/// The names of the keys of one deployment.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

const BODIES: &str = "DELAY_REALL_TOPIC_TASK";
const SCHEDULE: &str = "DELAY_SIMPLE_TOPIC_TASK";
const ENTRIES: &str = "DELAY_ATTEMPTS_TOPIC_TASK";
const LEASED: &str = "DELAY_LEASED_TOPIC_TASK";
const DESTINATIONS: &str = "DELAY_TOPIC_DESTINATIONS";
const OFFSETS: &str = "DELAY_TOPIC_OFFSET";
const DELIVERED: &str = "DELAY_DELIVERED_TOPIC_TASK";
const DEAD: &str = "DELAY_DEAD_TOPIC_TASK";
const CANCELLED: &str = "DELAY_CANCELLED_TOPIC_TASK";
const EXPIRED: &str = "DELAY_EXPIRED_TOPIC_TASK";
const EXPIRIES: &str = "DELAY_EXPIRIES_TOPIC_TASK";
const KEYS: &str = "DELAY_KEYS_TOPIC_TASK";
const IDEMPOTENCY: &str = "DELAY_IDEMPOTENCY_TOPIC_TASK";
const WINDOWS: &str = "DELAY_WINDOWS_TOPIC_TASK";
const NOTES: &str = "DELAY_NOTES_TOPIC_TASK";
const RECURRING: &str = "DELAY_RECURRING_TOPIC_TASK";
const PLANS: &str = "DELAY_PLANS_TOPIC_TASK";
const LOCK: &str = "DELAY_TOPIC_RELOAD_LOCK";

/// The roles of a lane's keys that hold tasks or keys of tasks.
const ROLES: [&str; 17] = [
    BODIES,
    SCHEDULE,
    ENTRIES,
    LEASED,
    DESTINATIONS,
    OFFSETS,
    DELIVERED,
    DEAD,
    CANCELLED,
    EXPIRED,
    EXPIRIES,
    KEYS,
    IDEMPOTENCY,
    WINDOWS,
    NOTES,
    RECURRING,
    PLANS,
];

/// The roles of the keys of a lane script.
const OF_SCRIPT: [&str; 18] = [
    BODIES,
    OFFSETS,
    DESTINATIONS,
    SCHEDULE,
    ENTRIES,
    LEASED,
    LOCK,
    DELIVERED,
    DEAD,
    CANCELLED,
    EXPIRED,
    EXPIRIES,
    KEYS,
    IDEMPOTENCY,
    WINDOWS,
    NOTES,
    RECURRING,
    PLANS,
];

/// What the name of a key says.
#[derive(Debug, PartialEq)]
pub(super) enum NamedKey {
    /// A lane's content.
    Bodies(Lane),
    /// A lane's recurring schedules.
    Recurring(Lane),
    /// A lane's schedule, and its destination.
    Schedule(Lane, String),
    /// Another structure of a lane's tasks.
    OfLane(Lane),
    /// The name begins like a lane's key, but there is no such lane.
    Stray,
    /// Not a lane's key.
    Foreign,
}

/// The key of a confirmation, in the slot of another key.
pub(super) fn confirmation(prefix: &str, other: &[u8]) -> Vec<u8> {
    [prefix.as_bytes(), b":DELAY_CONFIRMATION-{", slot::tag(other), b"}"].concat()
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn topics(&self) -> String {
        format!("{}:DELAY_TOPIC_LIST", self.prefix)
    }

    /// The keys of a registry script: registry, policies, pauses, deletions, revision, topics with
    /// recurring schedules, topics by their creators.
    pub(super) fn of_registry(&self) -> [String; 7] {
        [
            self.topics(),
            self.policies(),
            self.pauses(),
            self.beside_topics("DELAY_TOPIC_LEAVING"),
            self.revision(),
            self.beside_topics("DELAY_TOPIC_SCHEDULED"),
            self.beside_topics("DELAY_TOPIC_CREATED"),
        ]
    }

    pub(super) fn revision(&self) -> String {
        self.beside_topics("DELAY_TOPIC_REVISION")
    }

    pub(super) fn policies(&self) -> String {
        self.beside_topics("DELAY_TOPIC_POLICY")
    }

    pub(super) fn pauses(&self) -> String {
        self.beside_topics("DELAY_TOPIC_PAUSES")
    }

    /// The hash of the store's identity.
    pub(super) fn store(&self) -> String {
        self.beside_topics("DELAY_STORE")
    }

    /// The hash of the heartbeats.
    pub(super) fn instances(&self) -> String {
        self.beside_topics("DELAY_INSTANCES")
    }

    /// The stream of the audit log.
    pub(super) fn audit(&self) -> String {
        self.beside_topics("DELAY_AUDIT")
    }

    fn beside_topics(&self, role: &str) -> String {
        format!("{}:{role}-{{{}}}", self.prefix, self.topics())
    }

    pub(super) fn last_id(&self) -> String {
        format!("{}:DELAY_TASK_ID", self.prefix)
    }

    /// The run of the server that has drawn the last id, in the slot of that id.
    pub(super) fn id_run(&self) -> String {
        format!("{}:DELAY_TASK_ID_RUN-{{{}}}", self.prefix, self.last_id())
    }

    pub(super) fn hints(&self) -> String {
        format!("{}:DELAY_HINT", self.prefix)
    }

    pub(super) fn holds(&self) -> String {
        format!("{}:DELAY_DESTINATION_HOLDS", self.prefix)
    }

    /// The releases, in the slot of the holds.
    pub(super) fn releases(&self) -> String {
        format!("{}:DELAY_DESTINATION_RELEASES-{{{}}}", self.prefix, self.holds())
    }

    pub(super) fn schedule(&self, lane: &Lane, destination: &Destination) -> String {
        format!("{}{destination}", self.schedules(lane))
    }

    pub(super) fn destinations(&self, lane: &Lane) -> String {
        self.of_lane(DESTINATIONS, lane)
    }

    pub(super) fn recurring(&self, lane: &Lane) -> String {
        self.of_lane(RECURRING, lane)
    }

    pub(super) fn notes(&self, lane: &Lane) -> String {
        self.of_lane(NOTES, lane)
    }

    pub(super) fn offsets(&self, lane: &Lane) -> String {
        self.of_lane(OFFSETS, lane)
    }

    /// Where a repair puts bytes that it could not read, so that they are not lost.
    pub(super) fn aside(&self, lane: &Lane) -> String {
        self.of_lane("DELAY_ASIDE_TOPIC_TASK", lane)
    }

    pub(super) fn bodies(&self, lane: &Lane) -> String {
        self.of_lane(BODIES, lane)
    }

    fn of_lane(&self, role: &str, lane: &Lane) -> String {
        format!("{}:{role}-{{{lane}}}", self.prefix)
    }

    /// The cluster slot of all of a lane's keys.
    pub(super) fn slot_of(lane: &Lane) -> u16 {
        slot::of_key(lane.to_string().as_bytes())
    }

    /// The first keys of a lane script, in the order of `lua/lib/keys.lua`.
    pub(super) fn of_script(&self, lane: &Lane, count: usize) -> Vec<String> {
        // Built piece by piece, because every script call needs them.
        let tag = format!("-{{{lane}}}");
        let key = |role: &&str| {
            let end = if *role == SCHEDULE { ":" } else { "" };
            [self.prefix.as_str(), ":", role, &tag, end].concat()
        };
        OF_SCRIPT[..count].iter().map(key).collect()
    }

    /// The prefix of the names of the lane's schedules.
    fn schedules(&self, lane: &Lane) -> String {
        format!("{}:", self.of_lane(SCHEDULE, lane))
    }

    /// A SCAN pattern for every lane's tasks and recurring schedules: [`BODIES`] and
    /// [`RECURRING`].
    pub(super) fn any_contents(&self) -> String {
        format!("{}:DELAY_RE*_TOPIC_TASK-{{*}}", self.escaped_prefix())
    }

    /// A SCAN pattern for every key of every lane.
    pub(super) fn any_of_lanes(&self) -> String {
        format!("{}:DELAY_*-{{*}}*", self.escaped_prefix())
    }

    fn escaped_prefix(&self) -> String {
        self.prefix
            .chars()
            .flat_map(|c| if "*?[]\\".contains(c) { vec!['\\', c] } else { vec![c] })
            .collect()
    }

    /// Reads the name of a key.
    pub(super) fn read(&self, key: &str) -> NamedKey {
        let parts = || {
            let (role, rest) =
                key.strip_prefix(&self.prefix)?.strip_prefix(':')?.split_once("-{")?;
            let (tag, tail) = rest.split_once('}')?;
            ROLES.contains(&role).then_some((role, tag, tail))
        };
        let Some((role, tag, tail)) = parts() else { return NamedKey::Foreign };
        match (tag.parse::<Lane>(), role, tail.strip_prefix(':')) {
            // A shard has only one spelling.
            (Ok(lane), ..) if lane.to_string() != tag => NamedKey::Stray,
            (Ok(lane), SCHEDULE, Some(name)) => NamedKey::Schedule(lane, name.to_owned()),
            (Ok(lane), BODIES, None) if tail.is_empty() => NamedKey::Bodies(lane),
            (Ok(lane), RECURRING, None) if tail.is_empty() => NamedKey::Recurring(lane),
            (Ok(lane), other, None) if tail.is_empty() && other != SCHEDULE => {
                NamedKey::OfLane(lane)
            }
            _ => NamedKey::Stray,
        }
    }

    /// The lane whose tasks this key holds, or whose recurring schedules: then `true`.
    pub(super) fn content_of(&self, key: &str) -> Option<(Lane, bool)> {
        match self.read(key) {
            NamedKey::Bodies(lane) => Some((lane, false)),
            NamedKey::Recurring(lane) => Some((lane, true)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_as_documented_and_read_back() {
        let keys = Keys::new("delay");
        let lane: Lane = "order:0".parse().unwrap();
        let of_script = keys.of_script(&lane, 18);
        assert_eq!(of_script[0], "delay:DELAY_REALL_TOPIC_TASK-{order:0}");
        assert_eq!(of_script[6], "delay:DELAY_TOPIC_RELOAD_LOCK-{order:0}");
        assert_eq!(of_script[7], "delay:DELAY_DELIVERED_TOPIC_TASK-{order:0}");
        assert_eq!(of_script[3], "delay:DELAY_SIMPLE_TOPIC_TASK-{order:0}:");
        assert_eq!(keys.of_script(&lane, 4), of_script[..4]);
        assert_eq!(keys.content_of(&of_script[0]), Some((lane.clone(), false)));
        assert_eq!(keys.content_of(&of_script[16]), Some((lane, true)));
        assert_eq!(keys.pauses(), "delay:DELAY_TOPIC_PAUSES-{delay:DELAY_TOPIC_LIST}");
        for beside in keys.of_registry().into_iter().chain([keys.store(), keys.audit()]) {
            assert_eq!(
                slot::of_key(beside.as_bytes()),
                slot::of_key(keys.topics().as_bytes()),
                "{beside}"
            );
        }
        assert_eq!(Keys::new("a[b").any_contents(), "a\\[b:DELAY_RE*_TOPIC_TASK-{*}");
        for other in [&of_script[3], &keys.topics(), &keys.audit(), &keys.holds()] {
            let confirmation = confirmation("delay", other.as_bytes());
            assert_eq!(slot::of_key(&confirmation), slot::of_key(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_key_says_whose_it_is() {
        let keys = Keys::new("delay");
        let lane: Lane = "order:eu:3".parse().unwrap();
        let of_script = keys.of_script(&lane, 18);
        let check = |key: &str, named: NamedKey| assert_eq!(keys.read(key), named, "{key}");
        check(&of_script[0], NamedKey::Bodies(lane.clone()));
        check(&of_script[16], NamedKey::Recurring(lane.clone()));
        for i in [1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17] {
            check(&of_script[i], NamedKey::OfLane(lane.clone()));
        }
        check(
            &format!("{}message.call", of_script[3]),
            NamedKey::Schedule(lane.clone(), "message.call".into()),
        );
        check("delay:DELAY_REALL_TOPIC_TASK-{order}", NamedKey::Stray);
        check("delay:DELAY_REALL_TOPIC_TASK-{order:07}", NamedKey::Stray);
        check("delay:DELAY_SIMPLE_TOPIC_TASK-{order:0}", NamedKey::Stray);
        check(&of_script[6], NamedKey::Foreign);
        check(&keys.aside(&lane), NamedKey::Foreign);
        check(&keys.policies(), NamedKey::Foreign);
        check("other:DELAY_REALL_TOPIC_TASK-{order:0}", NamedKey::Foreign);
    }
}
