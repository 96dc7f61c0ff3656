//! The summary of `delayd move`: the results per topic.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::table;

const HEADS: [&str; 9] = [
    "topic",
    "moved",
    "there already",
    "superseded",
    "withdrawn",
    "dead copied",
    "history copied",
    "refused",
    "left",
];

/// The results of one topic.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) moved: u64,
    /// Adopted by an earlier run.
    pub(super) known: u64,
    /// Ended at the old service, because the new one has a task of the same key that was set later.
    pub(super) superseded: u64,
    /// Ended at the new service as well, because they ended at the old one while they were moved.
    pub(super) withdrawn: u64,
    pub(super) dead: u64,
    pub(super) ended: u64,
    pub(super) refused: u64,
    pub(super) left: u64,
}

/// The results of all topics, by name.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<String, Tally>);

impl Tallies {
    pub(super) fn knows(&self, topic: &str) -> bool {
        self.0.contains_key(topic)
    }

    /// The results of a topic, initially zero.
    pub(super) fn of(&mut self, topic: &str) -> &mut Tally {
        self.0.entry(topic.to_owned()).or_default()
    }

    /// The numbers of moved and of remaining tasks.
    pub(super) fn totals(&self) -> (u64, u64) {
        self.0
            .values()
            .fold((0, 0), |(moved, left), tally| (moved + tally.moved, left + tally.left))
    }

    pub(super) fn text(&self) -> String {
        if self.0.is_empty() {
            return "no topics".into();
        }
        let row = |(topic, tally): (&String, &Tally)| {
            let Tally { moved, known, superseded, withdrawn, dead, ended, refused, left } = tally;
            let numbers = [moved, known, superseded, withdrawn, dead, ended, refused, left]
                .map(ToString::to_string);
            [vec![topic.clone()], numbers.to_vec()].concat()
        };
        let rows: Vec<_> = self.0.iter().map(row).collect();
        table::columns(&HEADS, &rows)
    }

    pub(super) fn json(&self) -> Value {
        let (moved, left) = self.totals();
        let topic = |(topic, tally): (&String, &Tally)| {
            let Tally { moved, known, superseded, withdrawn, dead, ended, refused, left } = tally;
            json!({
                "topic": topic, "moved": moved, "known": known, "superseded": superseded,
                "withdrawn": withdrawn,
                "dead": dead, "history": ended, "refused": refused, "left": left,
            })
        };
        let topics: Vec<Value> = self.0.iter().map(topic).collect();
        json!({"moved": moved, "left": left, "topics": topics})
    }
}
