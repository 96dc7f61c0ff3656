//! One line of an export: a waiting task, and how it is added again.
//!
//! # Invariants
//!
//! - The key that makes the second add of a line harmless depends on the task alone, so that another export of it, or another import, stores
//!   nothing twice. Its moment of creation is in it because two stores may give the same id.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::fields;

/// A task as it waits.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Exported {
    topic: String,
    task_id: u64,
    created_ms: i64,
    due_ms: i64,
    mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(default)]
    options: Map<String, Value>,
    content: String,
}

impl Exported {
    /// What `/delay/task/get` says of a task, if it still waits.
    ///
    /// # Errors
    /// The answer is another one than delayd's.
    pub(super) fn of(topic: &str, mut task: Value) -> serde_json::Result<Option<Self>> {
        if !matches!(task["state"].as_str(), Some("scheduled" | "leased")) {
            return Ok(None);
        }
        task["topic"] = json!(topic);
        serde_json::from_value(task).map(Some)
    }

    /// The task of an add.
    pub(super) fn into_task(self) -> Map<String, Value> {
        let Self { topic, task_id, created_ms, due_ms, mode, key, options, content } = self;
        // Exact: a double holds milliseconds as seconds far beyond the latest moment that an add takes.
        let moment = due_ms as f64 / 1000.0;
        let mut task = fields([
            ("topic", Some(json!(topic))),
            ("timing_moment", Some(json!(moment))),
            ("mode", Some(json!(mode))),
            ("key", key.map(|key| json!(key))),
            ("idempotency_key", Some(json!(format!("import-{task_id}-{created_ms}")))),
            ("content", Some(json!(content))),
        ]);
        for (name, value) in options {
            // What a line says of itself is not overruled by an option that somebody wrote into it.
            task.entry(name).or_insert(value);
        }
        task
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_added_as_it_waited() {
        let task = json!({
            "task_id": 7, "state": "scheduled", "mode": "pull", "sn": null, "key": "k", "due_ms": 1_795_234_567_042_i64,
            "attempts": 1, "created_ms": 1_795_234_000_000_i64, "finished_ms": null, "last_outcome": "nacked",
            "options": {"max_attempts": 3, "timeout": "5000ms"}, "content": "any \"text\"", "log": [],
        });
        let exported = Exported::of("orders", task).unwrap().unwrap();
        let line = serde_json::to_string(&exported).unwrap();
        let read: Exported = serde_json::from_str(&line).unwrap();
        assert_eq!(read, exported);
        assert_eq!(
            Value::Object(read.into_task()),
            json!({
                "topic": "orders", "timing_moment": 1_795_234_567.042, "mode": "pull", "key": "k", "max_attempts": 3,
                "timeout": "5000ms", "idempotency_key": "import-7-1795234000000", "content": "any \"text\"",
            })
        );
    }

    #[test]
    fn what_has_ended_is_not_exported() {
        let of = |state: &str| Exported::of("t", json!({"state": state})).map(|found| found.is_some());
        assert!(!of("delivered").unwrap() && !of("dead").unwrap());
        assert!(of("scheduled").is_err());
    }
}
