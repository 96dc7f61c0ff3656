//! `delayd cancel` and `delayd update`.

use delayd_wire::{CancelRequest, Gone, Moved, UpdateRequest};

use super::cell::Cell;
use super::client::ServerArgs;
use super::due::{Due, PASSED};
use super::find::{TaskKeyArgs, TaskNameArgs, or_key, task_id};
use super::{Code, add, table};
use crate::model::task::{TaskId, Topic};
use serde_json::value::to_raw_value;

/// Cancel a task that is scheduled, waits for a retry, or is dead.
///
/// After success the task never fires. For a leased task this is an error: it is cancelled unless
/// its current attempt succeeds.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd cancel [OPTIONS] <TOPIC> \
                      <TASK_ID>|--key <KEY>|--idempotency-key <KEY>",
    after_help = "\
Examples:
  delayd cancel orders 1795234567000042
  delayd cancel alive --key device-7
  delayd cancel orders --idempotency-key order-42"
)]
pub(super) struct CancelArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    name: TaskNameArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Change the due time or the content of a task that is scheduled or waits for a retry.
///
/// Its attempts start again at zero. Whether it is called back or pulled does not change.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "delayd update [OPTIONS] <--in <DURATION>|--at <TIME>> <TOPIC> \
                      <TASK_ID>|--key <KEY>|--idempotency-key <KEY> [CONTENT]",
    after_help = "\
Examples:
  delayd update orders 1795234567000042 --in 2h
  delayd update alive --key device-7 --in 30s '{\"device\":7}'
  delayd update orders 1795234567000042 --at 2026-11-23T20:00:00+08:00
  delayd update orders 1795234567000042 --at 1795236367 '{\"sn\":\"shop\",\"url\":\"/x\"}'"
)]
pub(super) struct UpdateArgs {
    /// The topic
    topic: Topic,
    /// The task's id; with a key, the new content
    #[arg(value_name = "TASK_ID", required_unless_present_any = ["key", "idempotency_key"])]
    first: Option<String>,
    /// The new content; - reads it from standard input
    #[arg(value_name = "CONTENT", conflicts_with_all = ["key", "idempotency_key"])]
    second: Option<String>,
    #[command(flatten)]
    keys: TaskKeyArgs,
    #[command(flatten)]
    due: Due,
    #[command(flatten)]
    server: ServerArgs,
}

impl UpdateArgs {
    /// The task's id and the new content. With a key, the content takes the place of the id.
    ///
    /// # Errors
    /// An id that is none, or an id beside a key.
    pub(super) fn id_and_content(&self) -> Result<(Option<TaskId>, Option<&str>), String> {
        let Some(first) = &self.first else { return Ok((None, None)) };
        match (self.keys.is_given(), task_id(first)) {
            (false, Ok(id)) => Ok((Some(id), self.second.as_deref())),
            (false, Err(error)) => Err(format!("invalid value '{first}' for '<TASK_ID>': {error}")),
            (true, Ok(_)) => Err(format!(
                "the task id {first} cannot be combined with --key or --idempotency-key"
            )),
            (true, Err(_)) => Ok((None, Some(first))),
        }
    }
}

pub(super) async fn cancel(args: CancelArgs) -> anyhow::Result<Code> {
    let TaskNameArgs { task_id, keys: TaskKeyArgs { key, idempotency_key } } = args.name;
    let body =
        CancelRequest { topic: args.topic, task_id: task_id.map(Into::into), key, idempotency_key };
    let asked = args.server.ask("/delay/task/cancel", &body, |_: Gone| "cancelled".into()).await;
    asked.map_err(or_key(task_id))?;
    Ok(Code::Done)
}

pub(super) async fn update(args: UpdateArgs) -> anyhow::Result<Code> {
    let (task_id, content) = args.id_and_content().map_err(anyhow::Error::msg)?;
    let content = content.map(add::content).transpose()?;
    let UpdateArgs { topic, keys: TaskKeyArgs { key, idempotency_key }, due, server, .. } = args;
    let body = UpdateRequest {
        topic,
        task_id: task_id.map(Into::into),
        key,
        idempotency_key,
        timing_moment: due.timing_moment(),
        delay: due.delay(),
        at: due.at(),
        zone: due.zone(),
        content: content.map(|text| to_raw_value(&text).expect("a text is plain data")),
    };
    let shown = |moved: Moved| {
        let mut pairs = vec![("task_id", moved.task_id.cell()), ("due", moved.due_ms.cell())];
        if due.has_passed(moved.due_ms) {
            pairs.push(("past", PASSED.into()));
        }
        table::pairs(&pairs)
    };
    server.ask("/delay/task/update", &body, shown).await.map_err(or_key(task_id))?;
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    type Alone = crate::cli::args::Alone<UpdateArgs>;

    #[test]
    fn with_a_key_the_content_takes_the_place_of_the_id() {
        let check = |line: &str, expected: Option<(Option<u64>, Option<&str>)>| {
            let words = ["update", "t", "--in", "1h"].into_iter().chain(line.split(' '));
            let args = Alone::try_parse_from(words.filter(|word| !word.is_empty()));
            let args = args.as_ref().map(|alone| alone.args.id_and_content());
            let found = args.ok().and_then(Result::ok);
            assert_eq!(found.map(|(id, text)| (id.map(|id| id.0), text)), expected, "{line}");
        };
        check("7", Some((Some(7), None)));
        check("7 {}", Some((Some(7), Some("{}"))));
        check("--key k", Some((None, None)));
        check("--key k {}", Some((None, Some("{}"))));
        check("{} --key k --idempotency-key i", Some((None, Some("{}"))));
        check("--idempotency-key i -", Some((None, Some("-"))));
        check("", None);
        check("{}", None);
        check("0", None);
        check("7 --key k", None);
        check("7 {} --key k", None);
        check("{} {} --idempotency-key k", None);
    }
}
