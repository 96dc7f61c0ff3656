//! `delayd get`: shows a task.

use delayd_wire::{Attempt, Found, GetRequest, Task};

use super::cell::{Cell, settings, whole};
use super::client::ServerArgs;
use super::table::Column;
use super::tasks::{TaskKeyArgs, TaskNameArgs, or_key};
use super::{Code, follow, table, time};
use crate::model::task::Topic;

/// Show a task: its state, times, attempts and content.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd get [OPTIONS] <TOPIC> <TASK_ID>|--key <KEY>|--idempotency-key <KEY>",
    after_help = "\
Examples:
  delayd get orders 1795234567000042
  delayd get orders --idempotency-key order-42
  delayd get orders --key order-42 --wait=5m
  delayd get orders 1795234567000042 --json --server http://10.0.0.5:7799"
)]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    name: TaskNameArgs,
    #[command(flatten)]
    follow: follow::WaitArgs,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let id = args.name.task_id;
    get(args).await.map_err(or_key(id))
}

async fn get(args: Args) -> anyhow::Result<Code> {
    if let Some(wait) = args.follow.wait {
        return follow::to_end(args.server.client()?, &args.topic, args.name, wait, shown).await;
    }
    let TaskNameArgs { task_id, keys: TaskKeyArgs { key, idempotency_key } } = args.name;
    let body = GetRequest {
        topic: args.topic.clone(),
        task_id: task_id.map(Into::into),
        key,
        idempotency_key,
    };
    args.server.ask("/delay/task/get", &body, |found: Found| shown(&found.task)).await?;
    Ok(Code::Done)
}

/// The fields of a task, the most important first.
pub(super) fn shown(task: &Task) -> String {
    let pairs = [
        ("task_id", task.task_id.cell()),
        ("state", task.state.cell()),
        ("due", task.due_ms.cell()),
        ("attempts", task.attempts.cell()),
        ("last_outcome", task.last_outcome.cell()),
        ("created", task.created_ms.cell()),
        ("webhook_id", task.webhook_id.cell()),
        ("finished", task.finished_ms.cell()),
        ("key", task.key.cell()),
        ("lease", task.lease.cell()),
        ("mode", task.mode.cell()),
        ("options", settings(&task.options).cell()),
        ("sn", task.sn.cell()),
        ("content", content(task)),
    ];
    let pairs = table::pairs(&pairs);
    match task.log.as_slice() {
        [] => pairs,
        attempts => format!("{pairs}\n\n{}", log(attempts)),
    }
}

/// The content, or why there is none.
fn content(task: &Task) -> String {
    match &task.content {
        Some(content) => whole(content),
        None if task.content_removed => "(removed)".into(),
        None => "-".into(),
    }
}

/// A table of the recorded attempts. Line breaks in answers are escaped.
fn log(attempts: &[Attempt]) -> String {
    let columns: [Column<Attempt>; 5] = [
        ("attempt", |note| note.attempt.cell()),
        ("started", |note| note.started_ms.cell()),
        ("duration", |note| time::lasting(note.duration_ms)),
        ("outcome", |note| note.outcome.cell()),
        ("answer", |note| note.answer.cell()),
    ];
    table::of(attempts, &columns)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_is_shown_in_the_order_people_look_at_it() {
        let task = json!({
            "attempts": 2, "content": "{\"sn\":\"a\"}", "created_ms": 1_795_234_567_042_i64,
            "due_ms": 1_795_234_577_000_i64,
            "due": "2026-11-21T04:16:17.000Z", "finished_ms": null, "last_outcome": "500",
            "mode": "push", "sn": "a",
            "state": "scheduled", "task_id": 7, "webhook_id": "00c0ffee00c0ffee-7",
            "options": {"max_attempts": 3},
            "log": [
                {"attempt": 1, "started_ms": 1_795_234_577_003_i64, "duration_ms": 12,
                 "outcome": "500", "answer": "no\nroom"},
                {"attempt": 2, "started_ms": 1_795_234_578_010_i64, "duration_ms": 15000,
                 "outcome": "timed out after 15s", "answer": ""},
            ],
        });
        let task: Task = serde_json::from_value(task).unwrap();
        let long = "x".repeat(1_000);
        assert!(
            shown(&Task { content: Some(long.clone()), log: Vec::new(), ..task.clone() })
                .ends_with(&long)
        );
        insta::assert_snapshot!(shown(&task), @r#"
        task_id       7
        state         scheduled
        due           2026-11-21T04:16:17.000Z
        attempts      2
        last_outcome  500
        created       2026-11-21T04:16:07.042Z
        webhook_id    00c0ffee00c0ffee-7
        finished      -
        key           -
        lease         -
        mode          push
        options       {"max_attempts":3}
        sn            a
        content       {"sn":"a"}

        ATTEMPT  STARTED                   DURATION  OUTCOME              ANSWER
        1        2026-11-21T04:16:17.003Z  12ms      500                  no\nroom
        2        2026-11-21T04:16:18.010Z  15s       timed out after 15s
        "#);
    }
}
