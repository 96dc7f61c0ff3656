//! `delayd add`: adds a task to a running service.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::Context;
use delayd_wire::{AddRequest, Stored, TaskState};
use serde::Serialize;
use serde_json::Value;

use super::cell::Cell;
use super::client::ServerArgs;
use super::due::Due;
use super::wishes::{self, one_of};
use super::{Code, table};
use crate::model::task::{Mode, Topic};
use delayd_wire::Span;

/// Add a task to a running service.
///
/// The content of a task that is called back is a JSON object with `sn` (the name of the service)
/// and `url` (the path). All of it is sent as the body of the callback. A task without `sn` waits
/// until a consumer pulls it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd add orders --in 10s '{\"sn\":\"message.call\",\"url\":\"/order/cancel\",\"order\":7}'
  delayd add orders --at 1795236367 --max-attempts 3 '{\"sn\":\"shop\",\"url\":\"/x\"}'
  delayd add alive --key device-7 --in 30s '{\"device\":7}'
  delayd add orders --in 1h --backoff 5s,5m --on-dead shop/dead '{\"sn\":\"shop\",\"url\":\"/x\"}'
  echo 'any text' | delayd add notes --in 1m --mode pull -")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    due: Due,
    /// Whether the task is called back or pulled; auto: by its content
    #[arg(long, value_name = "MODE", value_parser = one_of(&Mode::ALL, Mode::as_str))]
    mode: Option<Mode>,
    /// Replace the waiting task of the topic that has this key, if there is one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Make the add safe to repeat: with the same key, only one task is stored
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Attempts before the task is dead, 1 to 1000
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// How long one call may take, 100ms to 10m
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// The wait between attempts: 30s, a list such as 5s,5m,30m, or a JSON object
    #[arg(long, value_name = "BACKOFF", value_parser = wishes::backoff)]
    backoff: Option<Value>,
    /// Drop the task if it is not delivered within this time after its due time
    #[arg(long, value_name = "DURATION")]
    expires_after: Option<Span>,
    /// A header of your own for the callback; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = wishes::header)]
    headers: Vec<(String, String)>,
    /// The call to make if the task becomes dead
    #[arg(long, value_name = "SN/PATH", value_parser = wishes::call)]
    on_dead: Option<Value>,
    /// The content; - reads it from standard input
    content: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let content = content(&args.content)?;
    args.server.ask("/delay/task/add", &body(&args, content), shown).await?;
    Ok(Code::Done)
}

/// The content from the argument, or from standard input.
pub(super) fn content(given: &str) -> anyhow::Result<String> {
    if given != "-" {
        return Ok(given.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("cannot read the content from standard input")?;
    Ok(text)
}

fn body(args: &Args, content: String) -> impl Serialize {
    let headers: BTreeMap<&str, &str> =
        args.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    AddRequest {
        topic: Some(&args.topic),
        timing_moment: args.due.timing_moment(),
        delay: args.due.delay(),
        content: Some(content),
        mode: args.mode,
        max_attempts: args.max_attempts.map(Value::from),
        timeout: args.timeout,
        backoff: args.backoff.as_ref(),
        headers: Some(headers).filter(|headers| !headers.is_empty()),
        idempotency_key: args.idempotency_key.clone(),
        key: args.key.clone(),
        expires_after: args.expires_after,
        on_dead: args.on_dead.as_ref(),
    }
}

fn shown(stored: Stored) -> String {
    let Stored { task_id, due_ms, mode, durability, duplicate, state, replaced, .. } = stored;
    let mut pairs = vec![
        ("task_id", task_id.cell()),
        ("due", due_ms.cell()),
        ("mode", mode.cell()),
        ("durability", durability.cell()),
    ];
    if duplicate {
        pairs.push(("duplicate", "the task was added before with this idempotency key".into()));
        pairs.push(("state", state.map_or("forgotten", TaskState::as_str).into()));
    }
    if replaced {
        pairs.push(("replaced", "the waiting task of this key was moved".into()));
    }
    table::pairs(&pairs)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

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
            assert_eq!(json!(body(&args, args.content.clone())), expected);
        };
        check(
            &["t", "--in", "10s", "{}"],
            json!({"topic": "t", "delay": "10000ms", "content": "{}"}),
        );
        check(
            &["t", "--at", "17952.5", "x"],
            json!({"topic": "t", "timing_moment": 17952.5, "content": "x"}),
        );
        check(
            &["t", "--at", "5", "--mode", "pull", "--max-attempts", "3", "--timeout", "2", "x"],
            json!({
                "topic": "t", "timing_moment": 5, "content": "x", "mode": "pull",
                "max_attempts": 3, "timeout": "2000ms",
            }),
        );
        let wishes =
            ["--key", "k", "--idempotency-key", "i", "--backoff", "30s", "--expires-after", "1h"];
        let calls = ["-H", "x-a: 1", "--header", "x-b: 2", "--on-dead", "s/dead"];
        check(
            &[&["t", "--in", "0", "x"], &wishes[..], &calls].concat(),
            json!({
                "topic": "t", "delay": "0ms", "content": "x", "key": "k", "idempotency_key": "i",
                "backoff": {"kind": "fixed", "every": "30000ms"}, "expires_after": "3600000ms",
                "headers": {"x-a": "1", "x-b": "2"}, "on_dead": {"sn": "s", "url": "/dead"},
            }),
        );
    }

    #[test]
    fn the_answer_is_shown_with_a_readable_moment() {
        let answer = json!({
            "task_id": 42, "due_ms": 1_795_234_567_042_i64, "due": "2026-11-21T04:16:07.042Z",
            "mode": "push",
            "durability": "fsynced",
        });
        insta::assert_snapshot!(shown(serde_json::from_value(answer).unwrap()), @r#"
        task_id     42
        due         2026-11-21T04:16:07.042Z
        mode        push
        durability  fsynced
        "#);
    }
}
