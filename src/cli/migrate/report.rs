//! The summary of `delayd move`: the results per topic.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::table;

/// The results of one topic.
#[derive(Debug, Default)]
pub(super) struct TopicTally {
    /// Recurring schedules that were moved.
    pub(super) schedules: u64,
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

impl TopicTally {
    /// Each result: its heading in the table, its name in JSON, and the number.
    fn results(&self) -> [(&'static str, &'static str, u64); 9] {
        let Self { schedules, moved, known, superseded, withdrawn, dead, ended, refused, left } =
            *self;
        [
            ("schedules", "schedules", schedules),
            ("moved", "moved", moved),
            ("there already", "known", known),
            ("superseded", "superseded", superseded),
            ("withdrawn", "withdrawn", withdrawn),
            ("dead copied", "dead", dead),
            ("history copied", "history", ended),
            ("refused", "refused", refused),
            ("left", "left", left),
        ]
    }
}

/// The results of all topics, by name.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<String, TopicTally>);

impl Tallies {
    pub(super) fn knows(&self, topic: &str) -> bool {
        self.0.contains_key(topic)
    }

    /// The results of a topic, initially zero.
    pub(super) fn of(&mut self, topic: &str) -> &mut TopicTally {
        self.0.entry(topic.to_string()).or_default()
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
        let heads = TopicTally::default().results().map(|(head, ..)| head);
        let row = |(topic, tally): (&String, &TopicTally)| {
            let numbers = tally.results().map(|(.., number)| number.to_string());
            [vec![topic.clone()], numbers.to_vec()].concat()
        };
        let rows: Vec<_> = self.0.iter().map(row).collect();
        table::columns(&[&["topic"], &heads[..]].concat(), &rows)
    }

    pub(super) fn json(&self) -> Value {
        let (moved, left) = self.totals();
        let topic = |(topic, tally): (&String, &TopicTally)| {
            let numbers = tally.results().map(|(_, name, number)| (name.to_owned(), number.into()));
            let topic = ("topic".to_owned(), topic.as_str().into());
            Value::Object([topic].into_iter().chain(numbers).collect())
        };
        let topics: Vec<Value> = self.0.iter().map(topic).collect();
        json!({"moved": moved, "left": left, "topics": topics})
    }
}
