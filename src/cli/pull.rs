//! `delayd pull`: pulls due tasks of a topic, or reads one task.

use delayd_wire::{Number, PullRequest, Pulled, PulledMany, UpTo};

use super::cell::{Cell, whole};
use super::client::ServerArgs;
use super::{Code, table};
use crate::model::task::{TaskId, Topic};
use delayd_wire::span::{Span, lease_of};

/// Pull due tasks, or read one by its id or a key.
///
/// Without --lease a pulled task is consumed. With --lease it returns after that time unless it is
/// acknowledged with the printed receipt. With --task-id or a key the task is only read, in any
/// state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd pull notes
  delayd pull notes --count 10 --lease 30s --wait 20s
  delayd pull notes --task-id 1795234567000042 --json
  delayd pull alive --key device-7")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The maximum number of tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    count: Option<u16>,
    /// Lease the tasks for this long instead of consuming them
    #[arg(long, value_name = "DURATION", value_parser = lease_of)]
    lease: Option<Span>,
    /// If no task is due, wait this long for one, at most 30s
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Read this task without pulling it
    #[arg(
        long,
        value_name = "TASK_ID",
        conflicts_with_all = ["count", "lease", "wait", "key", "idempotency_key"]
    )]
    task_id: Option<TaskId>,
    /// Read the newest task with this key without pulling it
    #[arg(long, value_name = "KEY", conflicts_with_all = ["count", "lease", "wait"])]
    key: Option<String>,
    /// Read the task with this idempotency key without pulling it; with --key, if the task has one
    #[arg(long, value_name = "KEY", conflicts_with_all = ["count", "lease", "wait"])]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    const PATH: &str = "/delay/task/pull";
    let Args { topic, count, lease, wait, task_id, key, idempotency_key, server } = args;
    let body = PullRequest {
        topic,
        task_id: task_id.map(Into::into),
        key,
        idempotency_key,
        lease: lease.map(UpTo),
        count: count.map(Number::from),
        wait,
    };
    match count {
        Some(_) => server.ask(PATH, &body, |many: PulledMany| shown(&many.tasks)).await?,
        None => server.ask(PATH, &body, one).await?,
    }
    Ok(Code::Done)
}

/// The answer of a pull without `count`: one task, or none.
fn one(task: Pulled) -> String {
    if task.task_id.is_some() { shown(&[task]) } else { shown(&[]) }
}

fn shown(tasks: &[Pulled]) -> String {
    if tasks.is_empty() {
        return "no task is due".into();
    }
    // The content is not cut: a consumed task is shown only here.
    let row = |task: &Pulled| {
        let content = task.content.as_deref().map_or_else(|| "-".into(), whole);
        vec![task.task_id.cell(), task.attempt.cell(), task.receipt.cell(), content]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    table::columns(&["task_id", "attempt", "receipt", "content"], &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_task_many_tasks_and_none_are_shown() {
        let task = |answer| serde_json::from_value::<Pulled>(answer).unwrap();
        assert_eq!(one(task(json!({"task_id": null, "content": null}))), "no task is due");
        assert_eq!(shown(&[]), "no task is due");
        let seven = task(json!({"task_id": 7, "attempt": 1, "content": "{\"a\":1}"}));
        insta::assert_snapshot!(one(seven), @r#"
        TASK_ID  ATTEMPT  RECEIPT  CONTENT
        7        1        -        {"a":1}
        "#);
        let long = "x".repeat(1_000);
        assert!(one(task(json!({"task_id": 7, "content": &long}))).ends_with(&long));
        let two = [
            task(json!({"task_id": 7, "attempt": 1, "receipt": "abc", "content": "x"})),
            task(json!({
                "task_id": 1_795_234_567_000_042_u64, "attempt": 12, "receipt": "def",
                "content": "y\nz",
            })),
        ];
        insta::assert_snapshot!(shown(&two), @r#"
        TASK_ID           ATTEMPT  RECEIPT  CONTENT
        7                 1        abc      x
        1795234567000042  12       def      y\nz
        "#);
    }
}
