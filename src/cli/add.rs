//! `delayd add`: adds a task to a running service.

use std::io::Read;
use std::time::Duration;

use anyhow::Context;
use delayd_wire::{AddRequest, Number, Stored, TaskState};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::args::TaskOptions;
use super::cell::Cell;
use super::client::ServerArgs;
use super::due::{DueArgs, PASSED};
use super::tasks::{TaskKeyArgs, TaskNameArgs};
use super::{Code, add_retry, follow, get, output, table};
use crate::model::task::{TaskId, Topic};
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
  delayd add orders --at '2026-11-23 20:00' --zone Asia/Shanghai '{\"sn\":\"shop\",\"url\":\"/x\"}'
  delayd add orders --at 1795236367 --max-attempts 3 '{\"sn\":\"shop\",\"url\":\"/x\"}'
  delayd add orders --in 10s --wait '{\"sn\":\"shop\",\"url\":\"/x\"}'
  delayd add alive --key device-7 --in 30s '{\"device\":7}'
  delayd add orders --in 1h --retry '{\"sn\":\"shop\",\"url\":\"/x\"}'
  delayd add orders --in 1h --backoff 5s,5m --on-dead shop/dead '{\"sn\":\"shop\",\"url\":\"/x\"}'
  echo 'any text' | delayd add notes --in 1m --mode pull -")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    due: DueArgs,
    /// Replace the waiting task of the topic that has this key, if there is one
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Make the add safe to repeat: with the same key, only one task is stored
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Repeat an add that is not confirmed, for this long (1m if none is given, at most 12h);
    /// without --idempotency-key, with a random one
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1m",
        value_parser = patience
    )]
    retry: Option<Span>,
    #[command(flatten)]
    follow: follow::WaitArgs,
    #[command(flatten)]
    options: TaskOptions,
    /// The content; - reads it from standard input
    content: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(mut args: Args) -> anyhow::Result<Code> {
    let content = content(&args.content)?;
    let client = args.server.client()?;
    let (stored, text) = match args.retry {
        None => {
            let answer = client.post(add_retry::PATH, &body(&args, content)).await?;
            let text = answer.text.clone();
            (answer.checked::<Stored>()?, text)
        }
        Some(Span(patience)) => {
            let key = args.idempotency_key.get_or_insert_with(add_retry::new_key).clone();
            add_retry::add(&client, &body(&args, content), &key, patience).await?
        }
    };
    let task_id = Some(TaskId(stored.task_id.0));
    let has_passed = args.due.has_passed(stored.due_ms);
    output::line(&if client.is_json() { text } else { shown(stored, has_passed) })?;
    match args.follow.wait {
        None => Ok(Code::Done),
        Some(wait) => {
            let name = TaskNameArgs { task_id, keys: TaskKeyArgs::default() };
            follow::to_end(client, &args.topic, name, wait, get::shown).await
        }
    }
}

/// Parses how long an add is repeated. The service remembers an idempotency key for longer.
fn patience(text: &str) -> Result<Span, String> {
    const MOST: Duration = Duration::from_secs(12 * 3_600);
    match text.parse::<Span>() {
        Ok(Span(span)) if span > MOST => Err("must be at most 12h".into()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
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
    AddRequest {
        topic: args.topic.clone(),
        timing_moment: args.due.timing_moment(),
        delay: args.due.delay(),
        at: args.due.at(),
        zone: args.due.zone(),
        content: to_raw_value(&content).expect("a text is plain data"),
        mode: args.options.mode,
        max_attempts: args.options.max_attempts.map(Number::from),
        timeout: args.options.timeout,
        backoff: args.options.backoff.clone(),
        headers: args.options.headers(),
        idempotency_key: args.idempotency_key.clone(),
        key: args.key.clone(),
        expires_after: args.options.expires_after,
        on_dead: args.options.on_dead.clone(),
    }
}

fn shown(stored: Stored, has_passed: bool) -> String {
    let Stored { task_id, due_ms, mode, durability, duplicate, state, replaced, .. } = stored;
    let mut pairs = vec![
        ("task_id", task_id.cell()),
        ("due", due_ms.cell()),
        ("mode", mode.cell()),
        ("durability", durability.cell()),
    ];
    if has_passed && !duplicate {
        pairs.push(("past", PASSED.into()));
    }
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
    use serde_json::{Value, json};

    use super::*;

    type Alone = crate::cli::args::Alone<Args>;

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
            &["t", "--at", "2026-11-23 20:00", "--zone", "Asia/Shanghai", "x"],
            json!({
                "topic": "t", "at": "2026-11-23 20:00", "zone": "Asia/Shanghai", "content": "x",
            }),
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
        let options =
            ["--key", "k", "--idempotency-key", "i", "--backoff", "30s", "--expires-after", "1h"];
        let calls = ["-H", "x-a: 1", "--header", "x-b: 2", "--on-dead", "s/dead"];
        check(
            &[&["t", "--in", "0", "x"], &options[..], &calls].concat(),
            json!({
                "topic": "t", "delay": "0ms", "content": "x", "key": "k", "idempotency_key": "i",
                "backoff": {"kind": "fixed", "every": "30000ms"}, "expires_after": "3600000ms",
                "headers": {"x-a": "1", "x-b": "2"}, "on_dead": {"sn": "s", "url": "/dead"},
            }),
        );
    }

    #[test]
    fn a_retry_has_a_time() {
        let check = |word: &str, expected: Option<u64>| {
            let args = Alone::try_parse_from(["add", "t", "--in", "1s", word, "x"]);
            let found = args.ok().map(|alone| alone.args.retry.unwrap().0.as_secs());
            assert_eq!(found, expected, "{word}");
        };
        check("--retry", Some(60));
        check("--retry=2m", Some(120));
        check("--retry=12h", Some(43_200));
        check("--retry=13h", None);
        check("--retry=soon", None);
    }

    #[test]
    fn the_answer_is_shown_with_a_readable_moment() {
        let answer = json!({
            "task_id": 42, "due_ms": 1_795_234_567_042_i64, "due": "2026-11-21T04:16:07.042Z",
            "mode": "push",
            "durability": "fsynced",
        });
        let shown = |past| shown(serde_json::from_value(answer.clone()).unwrap(), past);
        assert!(
            shown(true).ends_with("past        the given time has passed, so the task is due now")
        );
        insta::assert_snapshot!(shown(false), @r#"
        task_id     42
        due         2026-11-21T04:16:07.042Z
        mode        push
        durability  fsynced
        "#);
    }
}
