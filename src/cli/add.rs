//! `delayd add`: a task for a running service.

use std::io::Read;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

use super::client::{ServerArgs, cell};
use super::{Code, table, time};
use crate::clock::UnixMillis;
use crate::span::Span;
use crate::task::Topic;

/// Add a task to a running service.
///
/// The content of a task that is called back is a JSON object with `sn` (the service's name) and `url` (the path);
/// all of it is the callback's body. Without `sn` the task waits for someone to pull it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd add orders --in 10s '{\"sn\":\"message.call\",\"url\":\"/order/cancel\",\"order\":7}'
  delayd add orders --at 1795236367 --max-attempts 3 --timeout 5s '{\"sn\":\"message.call\",\"url\":\"/x\"}'
  echo 'any text' | delayd add notes --in 1m --mode pull -")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    due: Due,
    /// Whether the task is called back or pulled; auto decides by its content
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,
    /// Calls before the task is dead
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// How long one call may take
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// The content; - reads it from standard input
    content: String,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Due {
    /// Due so long from now: seconds, or 1500ms, 10s, 5m, 2h, 7d
    #[arg(long = "in", value_name = "DURATION")]
    after: Option<Span>,
    /// Due at this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    at: Option<Value>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Auto,
    Push,
    Pull,
}

/// A number as it was written: whole stays whole.
fn seconds(text: &str) -> Result<Value, &'static str> {
    match serde_json::from_str(text) {
        Ok(number @ Value::Number(_)) => Ok(number),
        _ => Err("must be a number of Unix seconds, such as 1795236367 or 1795236367.25"),
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let content = match args.content.as_str() {
        "-" => from_stdin()?,
        text => text.to_owned(),
    };
    args.server.ask("/delay/task/add", &body(&args, content), shown).await?;
    Ok(Code::Done)
}

fn from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the content from standard input")?;
    Ok(text)
}

fn body(args: &Args, content: String) -> Map<String, Value> {
    let mode = args.mode.and_then(|mode| mode.to_possible_value()).map(|mode| json!(mode.get_name()));
    let fields = [
        ("topic", Some(json!(args.topic.as_str()))),
        ("delay", args.due.after.map(|span| json!(span))),
        ("timing_moment", args.due.at.clone()),
        ("content", Some(json!(content))),
        ("mode", mode),
        ("max_attempts", args.max_attempts.map(|most| json!(most))),
        ("timeout", args.timeout.map(|span| json!(span))),
    ];
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn shown(answer: &Value) -> String {
    let due = answer["due_ms"].as_i64().map_or("-".into(), |due| time::rfc3339(UnixMillis(due)));
    table::pairs(&[
        ("task_id", cell(&answer["task_id"])),
        ("due", due),
        ("mode", cell(&answer["mode"])),
        ("durability", cell(&answer["durability"])),
    ])
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn arguments_become_the_fields_of_the_request() {
        let check = |line: &[&str], expected: Value| {
            let args = Alone::try_parse_from([&["add"], line].concat()).unwrap().args;
            assert_eq!(Value::Object(body(&args, args.content.clone())), expected);
        };
        check(&["t", "--in", "10s", "{}"], json!({"topic": "t", "delay": "10000ms", "content": "{}"}));
        check(&["t", "--at", "17952.5", "x"], json!({"topic": "t", "timing_moment": 17952.5, "content": "x"}));
        check(
            &["t", "--at", "5", "--mode", "pull", "--max-attempts", "3", "--timeout", "2", "x"],
            json!({"topic": "t", "timing_moment": 5, "content": "x", "mode": "pull", "max_attempts": 3, "timeout": "2000ms"}),
        );
    }

    #[test]
    fn the_answer_is_shown_with_a_readable_moment() {
        let answer = json!({"dm_error": 0, "task_id": 42, "due_ms": 1_795_234_567_042_i64, "mode": "push", "durability": "fsynced"});
        insta::assert_snapshot!(shown(&answer), @r#"
        task_id     42
        due         2026-11-21T04:16:07.042Z
        mode        push
        durability  fsynced
        "#);
    }
}
