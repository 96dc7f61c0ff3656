//! `delayd get`: where a task stands.

use serde_json::{Value, json};

use super::client::{ServerArgs, cell, fields, moment, whole};
use super::{Code, table};
use crate::task::{TaskId, Topic};

/// Show a task: its state, its moments, its attempts and its content.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd get orders 1795234567000042
  delayd get orders 1795234567000042 --json --server http://10.0.0.5:7799")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The task's id
    task_id: TaskId,
    #[command(flatten)]
    server: ServerArgs,
}

/// The order in which people look at a task; what else there is comes behind.
const ORDER: [&str; 8] =
    ["task_id", "topic", "state", "due_ms", "attempts", "last_outcome", "created_ms", "webhook_id"];

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let body = fields([("topic", Some(json!(args.topic.as_str()))), ("task_id", Some(json!(args.task_id)))]);
    args.server.ask("/delay/task/get", &body, |answer| shown(&answer["task"])).await?;
    Ok(Code::Done)
}

fn shown(task: &Value) -> String {
    let Some(fields) = task.as_object() else { return cell(task) };
    let attempts = fields.get("log").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    // `due` is `due_ms` once more.
    let is_shown = |name: &&str| *name != "log" && !fields.contains_key(&format!("{name}_ms"));
    let mut names: Vec<&str> = fields.keys().map(String::as_str).filter(is_shown).collect();
    // A stable sort: unnamed fields keep their order, and the content, the longest, comes last.
    names.sort_by_key(|name| match ORDER.iter().position(|known| known == name) {
        Some(place) => place,
        None => ORDER.len() + usize::from(*name == "content"),
    });
    let pairs: Vec<_> = names.into_iter().map(|name| pair(name, &fields[name])).collect();
    let task = table::pairs(&pairs);
    match attempts {
        [] => task,
        attempts => format!("{task}\n\n{}", log(attempts)),
    }
}

/// The attempts that were noted. A line each: line breaks in an answer are shown, not obeyed.
fn log(attempts: &[Value]) -> String {
    let row = |note: &Value| {
        let duration = note["duration_ms"].as_u64().map(|millis| format!("{millis}ms")).unwrap_or_default();
        vec![
            cell(&note["attempt"]),
            moment(&note["started_ms"]),
            duration,
            cell(&note["outcome"]),
            cell(&note["answer"]),
        ]
    };
    let rows: Vec<_> = attempts.iter().map(row).collect();
    table::columns(&["attempt", "started", "duration", "outcome", "answer"], &rows)
}

fn pair<'a>(name: &'a str, value: &Value) -> (&'a str, String) {
    match name.strip_suffix("_ms") {
        Some(name) => (name, moment(value)),
        None if name == "content" => (name, whole(value)),
        None => (name, cell(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_in_the_order_people_look_at_it() {
        let task = json!({
            "attempts": 2, "content": "{\"sn\":\"a\"}", "created_ms": 1_795_234_567_042_i64, "due_ms": 1_795_234_577_000_i64,
            "due": "2026-11-21T04:16:17.000Z",
            "finished_ms": null, "last_outcome": "500", "mode": "push", "state": "scheduled", "task_id": 7, "topic": "t",
            "webhook_id": "00c0ffee00c0ffee-7",
            "log": [
                {"attempt": 1, "started_ms": 1_795_234_577_003_i64, "duration_ms": 12, "outcome": "500", "answer": "no\nroom"},
                {"attempt": 2, "started_ms": 1_795_234_578_010_i64, "duration_ms": 15000, "outcome": "timed out after 15s", "answer": ""},
            ],
        });
        let long = "x".repeat(1_000);
        assert!(shown(&json!({"task_id": 7, "content": &long})).ends_with(&long));
        insta::assert_snapshot!(shown(&task), @r#"
        task_id       7
        topic         t
        state         scheduled
        due           2026-11-21T04:16:17.000Z
        attempts      2
        last_outcome  500
        created       2026-11-21T04:16:07.042Z
        webhook_id    00c0ffee00c0ffee-7
        finished      -
        mode          push
        content       {"sn":"a"}

        ATTEMPT  STARTED                   DURATION  OUTCOME              ANSWER
        1        2026-11-21T04:16:17.003Z  12ms      500                  no\nroom
        2        2026-11-21T04:16:18.010Z  15000ms   timed out after 15s
        "#);
    }
}
