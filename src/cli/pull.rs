//! `delayd pull`: due tasks of a topic, or one task by its id.

use serde_json::{Map, Value, json};

use super::client::{ServerArgs, fields, whole};
use super::{Code, table};
use crate::span::{Span, lease_of};
use crate::task::{TaskId, Topic};

/// Take due tasks that wait to be pulled, or read one by its id.
///
/// Without --lease a task is consumed by this. With it the task comes back after that time unless it is acknowledged
/// with the receipt that is shown. With --task-id the task is only read, whatever its state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd pull notes
  delayd pull notes --count 10 --lease 30s --wait 20s
  delayd pull notes --task-id 1795234567000042 --json")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The most tasks to take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    count: Option<u16>,
    /// Take them for so long instead of consuming them
    #[arg(long, value_name = "DURATION", value_parser = lease_of)]
    lease: Option<Span>,
    /// With nothing due, wait so long for a task, at most 30s
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,
    /// Read this task without taking it
    #[arg(long, value_name = "TASK_ID", conflicts_with_all = ["count", "lease", "wait"])]
    task_id: Option<TaskId>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    args.server.ask("/delay/task/pull", &body(&args), shown).await?;
    Ok(Code::Done)
}

fn body(args: &Args) -> Map<String, Value> {
    fields([
        ("topic", Some(json!(args.topic.as_str()))),
        ("count", args.count.map(|count| json!(count))),
        ("lease", args.lease.map(|span| json!(span))),
        ("wait", args.wait.map(|span| json!(span))),
        ("task_id", args.task_id.map(|id| json!(id))),
    ])
}

fn shown(answer: &Value) -> String {
    let tasks = match &answer["tasks"] {
        Value::Array(tasks) => tasks.clone(),
        _ if answer["task_id"].is_null() => Vec::new(),
        _ => vec![answer.clone()],
    };
    if tasks.is_empty() {
        return "nothing is due".into();
    }
    const FIELDS: [&str; 4] = ["task_id", "attempt", "receipt", "content"];
    // This may be the only place where a consumed task is ever shown.
    let rows: Vec<_> = tasks.iter().map(|task| FIELDS.map(|field| whole(&task[field])).to_vec()).collect();
    table::columns(&FIELDS, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_many_tasks_and_none_are_shown() {
        assert_eq!(shown(&json!({"dm_error": 0, "task_id": null, "content": null})), "nothing is due");
        assert_eq!(shown(&json!({"dm_error": 0, "tasks": []})), "nothing is due");
        insta::assert_snapshot!(shown(&json!({"task_id": 7, "attempt": 1, "content": "{\"a\":1}"})), @r#"
        TASK_ID  ATTEMPT  RECEIPT  CONTENT
        7        1        -        {"a":1}
        "#);
        let long = "x".repeat(1_000);
        assert!(shown(&json!({"task_id": 7, "content": &long})).ends_with(&long));
        let two = json!({"tasks": [
            {"task_id": 7, "attempt": 1, "receipt": "abc", "content": "x"},
            {"task_id": 1_795_234_567_000_042_u64, "attempt": 12, "receipt": "def", "content": "y\nz"},
        ]});
        insta::assert_snapshot!(shown(&two), @r#"
        TASK_ID           ATTEMPT  RECEIPT  CONTENT
        7                 1        abc      x
        1795234567000042  12       def      y\nz
        "#);
    }
}
