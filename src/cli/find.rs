//! `delayd find`: looks for a task in all topics.

use delayd_wire::{ErrorCode, FindRequest, FoundTask, FoundTasks};

use super::cell::Cell;
use super::client::{Refused, ServerArgs};
use super::{Code, output, table};
use crate::model::task::TaskId;

/// Find a task in all topics, by its id or a key.
///
/// It needs a token with the scope view or admin for all topics.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd find [OPTIONS] <TASK_ID>|--key <KEY>|--idempotency-key <KEY>",
    after_help = "\
Examples:
  delayd find 1795234567000042
  delayd find --key device-7
  delayd find --idempotency-key order-42"
)]
pub(super) struct Args {
    #[command(flatten)]
    name: TaskNameArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// What names a task.
#[derive(Debug, clap::Args)]
pub(super) struct TaskNameArgs {
    /// The task's id
    #[arg(
        required_unless_present_any = ["key", "idempotency_key"],
        conflicts_with_all = ["key", "idempotency_key"],
        value_parser = task_id
    )]
    pub(super) task_id: Option<TaskId>,
    #[command(flatten)]
    pub(super) keys: TaskKeyArgs,
}

/// The keys that name a task, instead of its id.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TaskKeyArgs {
    /// The task's key, instead of its id
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// The task's idempotency key, instead of its id; with --key, if the task has one
    #[arg(long, value_name = "KEY")]
    pub(super) idempotency_key: Option<String>,
}

impl TaskKeyArgs {
    /// Whether there is one.
    pub(super) fn is_given(&self) -> bool {
        self.key.is_some() || self.idempotency_key.is_some()
    }
}

/// Parses an id.
pub(super) fn task_id(text: &str) -> Result<TaskId, String> {
    text.parse().map_err(|error| format!("{error}; a key of your own belongs into --key"))
}

/// Says of an id that no task has that it may be a key of the user.
pub(super) fn or_key(id: Option<TaskId>) -> impl Fn(anyhow::Error) -> anyhow::Error {
    move |error| match (id, error.downcast::<Refused>()) {
        (Some(id), Ok(mut refused))
            if refused.code == ErrorCode::NotFound && refused.sentence.starts_with("task_id:") =>
        {
            refused.sentence += &may_be_key(id);
            refused.into()
        }
        (_, refused) => refused.map_or_else(|error| error, Into::into),
    }
}

fn may_be_key(id: TaskId) -> String {
    format!("; if {id} is a key of your own, use --key {id} (or --idempotency-key)")
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let Args { name: TaskNameArgs { task_id, keys }, server } = args;
    let TaskKeyArgs { key, idempotency_key } = keys;
    let client = server.client()?;
    let (mut tasks, mut cursor) = (Vec::new(), None);
    loop {
        let (key, idempotency_key) = (key.clone(), idempotency_key.clone());
        let body = FindRequest { task_id: task_id.map(Into::into), key, idempotency_key, cursor };
        let found: FoundTasks = client.call("/delay/task/find", &body).await?;
        tasks.extend(found.tasks);
        cursor = found.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !client.is_json() {
        let hint = task_id.filter(|_| tasks.is_empty()).map(may_be_key);
        output::line(&(shown(&tasks) + &hint.unwrap_or_default()))?;
    }
    Ok(Code::Done)
}

fn shown(tasks: &[FoundTask]) -> String {
    if tasks.is_empty() {
        return "no task".into();
    }
    let row = |FoundTask { topic, task }: &FoundTask| {
        vec![
            topic.cell(),
            task.task_id.cell(),
            task.state.cell(),
            task.due_ms.cell(),
            task.attempts.cell(),
            task.key.cell(),
            task.last_outcome.cell(),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    table::columns(&["topic", "task_id", "state", "due", "attempts", "key", "last_outcome"], &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn found_tasks_are_a_table() {
        assert_eq!(shown(&[]), "no task");
        let tasks = json!([{"topic": "orders", "task": {
            "task_id": 7, "state": "dead", "mode": "push", "sn": "message.call",
            "due_ms": 1_795_234_577_000_i64, "due": "", "attempts": 2, "created_ms": 1,
            "finished_ms": 2, "lease": null, "last_outcome": "410 Gone", "key": null,
        }}]);
        let tasks: Vec<FoundTask> = serde_json::from_value(tasks).unwrap();
        insta::assert_snapshot!(shown(&tasks), @r#"
        TOPIC   TASK_ID  STATE  DUE                       ATTEMPTS  KEY  LAST_OUTCOME
        orders  7        dead   2026-11-21T04:16:17.000Z  2         -    410 Gone
        "#);
    }
}
