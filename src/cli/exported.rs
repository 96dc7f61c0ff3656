//! One line of an export: the settings of a topic, a recurring schedule, or a task. Also how it is
//! read from a service.

use delayd_wire::{
    AtMost, ListRequest, Record, RecordsRequest, ScheduleRecordsRequest, TaskId, TaskState, Topic,
};
use serde::{Deserialize, Serialize};

use super::topic_settings::TopicSettings;

/// Tasks per page of the list.
const PAGE: u16 = 1000;

/// Reads the next page of the tasks of a topic in one state.
pub(super) fn list_of(topic: &Topic, state: TaskState, cursor: Option<String>) -> impl Serialize {
    ListRequest {
        topic: topic.clone(),
        state,
        limit: Some(PAGE.into()),
        cursor,
        from: None,
        to: None,
        order: None,
        sn: None,
        outcome: None,
        due_from: None,
        due_to: None,
    }
}

/// Reads the records of tasks without leasing them.
pub(super) fn records_of(topic: &Topic, ids: &[TaskId]) -> impl Serialize {
    let task_ids = AtMost(ids.to_vec());
    RecordsRequest { topic: topic.clone(), task_ids, lend: None, receipt: None }
}

/// Reads the next page of the recurring schedules of a topic, without pausing them.
pub(super) fn schedules_of(topic: &Topic, cursor: Option<String>) -> impl Serialize {
    ScheduleRecordsRequest { topic: topic.clone(), hold: None, limit: None, cursor }
}

pub(super) use delayd_wire::{ScheduleRecord as ExportedSchedule, ScheduleRecords as SchedulePage};

/// One line of an export.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum ExportLine {
    Task(Box<Exported>),
    Schedule(Box<ExportedSchedule>),
    Topic(TopicSettings),
}

/// A record, with the fields that this version does not know. They are passed on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Exported {
    pub(super) record: Record,
}

impl Exported {
    pub(super) fn all(records: Vec<Record>) -> impl Iterator<Item = Self> {
        records.into_iter().map(|record| Self { record })
    }

    /// The record to export, if the task is still in that state or waits as before. A lease that
    /// holds during the export is not imported.
    pub(super) fn standing(mut self, state: TaskState) -> Option<Self> {
        let record = &mut self.record;
        // The task is not retried.
        if record.cancelling {
            return None;
        }
        if !record.state.is_final() && !state.is_final() {
            record.state = TaskState::Scheduled;
            return Some(self);
        }
        (record.state == state).then_some(self)
    }

    /// Its id.
    pub(super) fn id(&self) -> TaskId {
        self.record.task_id
    }

    /// Whether the task is still to be delivered.
    pub(super) fn waits(&self) -> bool {
        self.record.state == TaskState::Scheduled
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_exported_as_it_waits() {
        let record = json!({
            "topic": "orders", "task_id": 7, "state": "leased", "mode": "pull", "key": "k",
            "due_ms": 1_795_234_567_000_i64,
            "waits_ms": 1_795_234_567_042_i64, "attempts": 1, "created_ms": 1_795_234_000_000_i64,
            "last_outcome": "nacked",
            "options": {"origin": "00c0ffee00c0ffee", "max_attempts": 3,
                "on_dead": {"sn": "s", "url": "/", "task_id": 8}},
            "content": "any \"text\"", "unknown_ms": 5,
        });
        let exported: Exported = serde_json::from_value(record.clone()).unwrap();
        let exported = exported.standing(TaskState::Scheduled).unwrap();
        let line = serde_json::to_string(&exported).unwrap();
        let ExportLine::Task(read) = serde_json::from_str(&line).unwrap() else { panic!("{line}") };
        assert_eq!(*read, exported);
        let mut expected = record;
        expected["state"] = json!("scheduled");
        assert_eq!(serde_json::to_value(&read).unwrap(), expected);
    }

    #[test]
    fn what_stands_elsewhere_by_now_is_not_exported() {
        let record = |state: TaskState, cancelling: bool| {
            let record = json!({
                "topic": "t", "task_id": 1, "state": state, "created_ms": 1, "due_ms": 2,
                "mode": "push", "content": "{}",
                "cancelling": cancelling,
            });
            serde_json::from_value::<Exported>(record).unwrap()
        };
        let check = |now: TaskState, listed: TaskState, expected: Option<TaskState>| {
            let exported = record(now, false).standing(listed);
            assert_eq!(
                exported.map(|exported| exported.record.state),
                expected,
                "{now:?}, {listed:?}"
            );
        };
        check(TaskState::Delivered, TaskState::Scheduled, None);
        check(TaskState::Dead, TaskState::Leased, None);
        check(TaskState::Scheduled, TaskState::Dead, None);
        check(TaskState::Scheduled, TaskState::Leased, Some(TaskState::Scheduled));
        check(TaskState::Dead, TaskState::Dead, Some(TaskState::Dead));
        assert!(record(TaskState::Scheduled, true).standing(TaskState::Scheduled).is_none());
    }

    #[test]
    fn a_line_says_what_it_is() {
        let task = r#"{"topic":"t","task_id":1,"state":"scheduled","created_ms":1,"due_ms":2,
            "mode":"push","content":"{}"}"#;
        assert!(matches!(serde_json::from_str(task), Ok(ExportLine::Task(_))));
        let topic = r#"{"topic":"t","shards":1,"policy":{},"paused":false}"#;
        assert!(matches!(serde_json::from_str(topic), Ok(ExportLine::Topic(_))));
        let schedule = r#"{"topic":"t","schedule":"a","revision":"00","set_ms":1,"since_ms":2,
            "origin":"0","definition":{"cron":"@daily"}}"#;
        assert!(matches!(serde_json::from_str(schedule), Ok(ExportLine::Schedule(_))));
        assert!(serde_json::from_str::<ExportLine>("{}").is_err());
    }
}
