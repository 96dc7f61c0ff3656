//! Which topics have recurring schedules, in memory: planners look only at their lanes.
//!
//! The writer notes a topic with each schedule that it stores. With a deletion, it reads whether
//! the topic has schedules left. If not, the topic is forgotten after the commit, unless it was
//! noted again meanwhile. A topic that is noted without need costs a look each second. One that is
//! not noted is found by the janitor.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::rows::is_unreadable;
use super::schedules::exist;
use super::sql::recurring as sql;
use super::values::read_name;
use crate::model::task::Topic;
use crate::store::Registered;

/// The topics. A clone of the pointer is with the writer.
#[derive(Debug, Default)]
pub(super) struct RecurringTopics(Mutex<NotedTopics>);

/// A note of a topic, different from each other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicNote(u64);

#[derive(Debug, Default)]
struct NotedTopics {
    topics: HashMap<Topic, TopicNote>,
    count: u64,
}

impl RecurringTopics {
    /// These topics.
    pub(super) fn of(topics: Vec<Topic>) -> Self {
        let all = Self::default();
        for topic in &topics {
            all.note(topic);
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, NotedTopics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a topic has schedules. Returns whether it was not noted.
    pub(super) fn note(&self, topic: &Topic) -> bool {
        let mut noted = self.lock();
        noted.count += 1;
        let note = TopicNote(noted.count);
        noted.topics.insert(topic.clone(), note).is_none()
    }

    /// The note of a topic, for [`Self::forget`].
    pub(super) fn noted(&self, topic: &Topic) -> Option<TopicNote> {
        self.lock().topics.get(topic).copied()
    }

    /// Forgets a topic that has no schedules, unless it was noted after `note`.
    pub(super) fn forget(&self, topic: &Topic, note: Option<TopicNote>) {
        let Some(note) = note else { return };
        let mut noted = self.lock();
        if noted.topics.get(topic) == Some(&note) {
            noted.topics.remove(topic);
        }
    }

    /// Writes into the topics whether they have schedules.
    pub(super) fn mark(&self, topics: &mut [Registered]) {
        let noted = self.lock();
        if noted.topics.is_empty() {
            return;
        }
        for topic in topics {
            topic.has_schedules = noted.topics.contains_key(&topic.entry.topic);
        }
    }
}

/// The topics that have schedules. No topic has a name that cannot be read.
pub(super) fn read(db: &Connection) -> rusqlite::Result<Vec<Topic>> {
    if !exist(db)? {
        return Ok(Vec::new());
    }
    let mut select = db.prepare_cached(sql::TOPICS)?;
    let names = select.query_map([], |row| read_name(row, 0))?;
    names.filter(|name| !name.as_ref().is_err_and(is_unreadable)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set that is stored between the read of a deletion and its end.
    #[test]
    fn a_topic_that_is_noted_again_is_not_forgotten() {
        let topic: Topic = "t".parse().unwrap();
        let topics = RecurringTopics::of(vec![topic.clone()]);
        let note = topics.noted(&topic);
        assert!(!topics.note(&topic));
        topics.forget(&topic, note);
        let again = topics.noted(&topic);
        assert!(again.is_some());
        topics.forget(&topic, again);
        assert_eq!(topics.noted(&topic), None);
        assert!(topics.note(&topic));
        topics.forget(&topic, again);
        assert!(topics.noted(&topic).is_some(), "an old note is never valid again");
    }
}
