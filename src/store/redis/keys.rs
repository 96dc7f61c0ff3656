//! The names of everything delayd keeps in Redis.
//!
//! | role | key | type |
//! |---|---|---|
//! | topic registry | `<p>:DELAY_TOPIC_LIST` | hash topic → `{"shards":n}` |
//! | last task id | `<p>:DELAY_TASK_ID` | string |
//! | destinations held by hand | `<p>:DELAY_DESTINATION_HOLDS` | hash destination → since, Unix ms |
//! | hints | `<p>:DELAY_HINT` | channel, message `lane due_ms` |
//! | a lane's keys | see `lua/lane.lua` | |
//!
//! `<p>` is `store.redis.key_prefix`. A lane's keys end in its hash tag `{topic:shard}`, so that one node of a
//! cluster holds them all.

use crate::task::{Destination, Lane, State};

/// The keys of one deployment.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// How many keys a lane script is given.
pub(super) const LANE_KEYS: usize = 11;

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn topics(&self) -> String {
        format!("{}:DELAY_TOPIC_LIST", self.prefix)
    }

    pub(super) fn last_id(&self) -> String {
        format!("{}:DELAY_TASK_ID", self.prefix)
    }

    pub(super) fn hints(&self) -> String {
        format!("{}:DELAY_HINT", self.prefix)
    }

    pub(super) fn holds(&self) -> String {
        format!("{}:DELAY_DESTINATION_HOLDS", self.prefix)
    }

    pub(super) fn schedule(&self, lane: &Lane, destination: &Destination) -> String {
        format!("{}{destination}", self.schedules(lane))
    }

    pub(super) fn destinations(&self, lane: &Lane) -> String {
        self.of_lane("DELAY_TOPIC_DESTINATIONS", lane)
    }

    pub(super) fn leased(&self, lane: &Lane) -> String {
        self.of_lane("DELAY_LEASED_TOPIC_TASK", lane)
    }

    pub(super) fn offsets(&self, lane: &Lane) -> String {
        self.of_lane("DELAY_TOPIC_OFFSET", lane)
    }

    fn bodies(&self, lane: &Lane) -> String {
        self.of_lane("DELAY_REALL_TOPIC_TASK", lane)
    }

    fn of_lane(&self, role: &str, lane: &Lane) -> String {
        format!("{}:{role}-{{{lane}}}", self.prefix)
    }

    fn ended(&self, state: State, lane: &Lane) -> String {
        let role = format!("DELAY_{}_TOPIC_TASK", state.as_str().to_uppercase());
        self.of_lane(&role, lane)
    }

    /// The eleven keys of a lane script, in the order of `lua/lane.lua`.
    pub(super) fn of_script(&self, lane: &Lane) -> [String; LANE_KEYS] {
        [
            self.bodies(lane),
            self.of_lane("DELAY_ATTEMPTS_TOPIC_TASK", lane),
            self.leased(lane),
            self.destinations(lane),
            self.offsets(lane),
            self.of_lane("DELAY_TOPIC_RELOAD_LOCK", lane),
            self.ended(State::Delivered, lane),
            self.ended(State::Dead, lane),
            self.ended(State::Cancelled, lane),
            self.ended(State::Expired, lane),
            self.schedules(lane),
        ]
    }

    /// What the names of the lane's schedules begin with.
    fn schedules(&self, lane: &Lane) -> String {
        format!("{}:", self.of_lane("DELAY_SIMPLE_TOPIC_TASK", lane))
    }

    /// A SCAN pattern that every lane's body hash fits.
    pub(super) fn any_bodies(&self) -> String {
        let escaped: String =
            self.prefix.chars().flat_map(|c| if "*?[]\\".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
        format!("{escaped}:DELAY_REALL_TOPIC_TASK-{{*}}")
    }

    /// The lane of a body hash's key.
    pub(super) fn lane_of(&self, bodies: &str) -> Option<Lane> {
        let tag = bodies.strip_prefix(&format!("{}:DELAY_REALL_TOPIC_TASK-{{", self.prefix))?;
        tag.strip_suffix('}')?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_as_documented_and_read_back() {
        let keys = Keys::new("delay");
        let lane: Lane = "order:0".parse().unwrap();
        let of_script = keys.of_script(&lane);
        assert_eq!(of_script[0], "delay:DELAY_REALL_TOPIC_TASK-{order:0}");
        assert_eq!(of_script[5], "delay:DELAY_TOPIC_RELOAD_LOCK-{order:0}");
        assert_eq!(of_script[6], "delay:DELAY_DELIVERED_TOPIC_TASK-{order:0}");
        assert_eq!(of_script[10], "delay:DELAY_SIMPLE_TOPIC_TASK-{order:0}:");
        assert_eq!(keys.lane_of(&of_script[0]), Some(lane));
        assert_eq!(Keys::new("a[b").any_bodies(), "a\\[b:DELAY_REALL_TOPIC_TASK-{*}");
    }
}
