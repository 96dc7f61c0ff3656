//! `delayd cancel` and `delayd update` change one task, `delayd cancel-many` and `delayd
//! update-many` the tasks that a filter selects.

use clap::ArgGroup;
use delayd_wire::{
    AtMost, CancelManyRequest, CancelRequest, Changed, Gone, Moved, Number, TaskState,
    UpdateManyRequest, UpdateRequest,
};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::args::one_of;
use super::cell::Cell;
use super::client::{ApiClient, ServerArgs};
use super::due::{DueArgs, DueAt, PASSED, seconds};
use super::tasks::{TaskKeyArgs, TaskNameArgs, or_key, task_id};
use super::{Code, add, output, table, tasks};
use crate::model::task::{Destination, TaskId, Topic};

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
    due: DueArgs,
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

/// The states from which a task can be cancelled.
const STATES: [TaskState; 2] = [TaskState::Scheduled, TaskState::Dead];

/// Cancel the tasks of a topic that a filter selects, in several calls if needed.
///
/// Try it with --dry-run first, which counts the tasks and shows some of them.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd cancel-many orders --sn message.call --dry-run
  delayd cancel-many orders --sn message.call --yes
  delayd cancel-many orders --state dead --outcome '410 Gone' --yes")]
pub(super) struct CancelManyArgs {
    #[command(flatten)]
    which: WhichTasks,
    /// The state: scheduled or dead
    #[arg(
        long,
        value_name = "STATE",
        default_value = "scheduled",
        value_parser = one_of(&STATES, TaskState::as_str)
    )]
    state: TaskState,
    #[command(flatten)]
    server: ServerArgs,
}

/// Give another due time to the scheduled tasks that a filter selects, in several calls if needed.
///
/// Their attempts start again at zero. Try it with --dry-run first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd update-many orders --at 1795236367 --due-to 1795230000 --dry-run
  delayd update-many orders --at '2026-11-23 20:00' --zone Asia/Shanghai --all --yes")]
pub(super) struct UpdateManyArgs {
    #[command(flatten)]
    which: WhichTasks,
    #[command(flatten)]
    due: DueAt,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which tasks.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("filter").required(true).multiple(true))]
struct WhichTasks {
    /// The topic
    topic: Topic,
    /// All tasks of the state
    #[arg(
        long,
        group = "filter",
        conflicts_with_all = ["sn", "outcome", "due_from", "due_to"]
    )]
    all: bool,
    /// This task; may be repeated, and takes the place of all other filters
    #[arg(
        long,
        value_name = "ID",
        group = "filter",
        conflicts_with_all = ["all", "sn", "outcome", "due_from", "due_to"]
    )]
    task_id: Vec<u64>,
    /// Only tasks for this service or host; @pull: only pulled tasks
    #[arg(long, value_name = "SERVICE", group = "filter")]
    sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this
    #[arg(long, value_name = "OUTCOME", group = "filter")]
    outcome: Option<String>,
    /// Only tasks that are due from this moment on
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds, group = "filter")]
    due_from: Option<Number>,
    /// Only tasks that are due up to this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds, group = "filter")]
    due_to: Option<Number>,
    /// Only count the tasks, and show some of them
    #[arg(long)]
    dry_run: bool,
    /// Required without --dry-run, so that no tasks are changed by mistake
    #[arg(long, required_unless_present = "dry_run")]
    yes: bool,
}

impl WhichTasks {
    fn ids(&self) -> Option<AtMost<delayd_wire::TaskId, 1000>> {
        let ids = || AtMost(self.task_id.iter().copied().map(delayd_wire::TaskId).collect());
        (!self.task_id.is_empty()).then(ids)
    }
}

pub(super) async fn cancel_many(args: CancelManyArgs) -> anyhow::Result<Code> {
    let CancelManyArgs { which, state, server } = args;
    let body = |cursor: Option<String>| CancelManyRequest {
        topic: which.topic.clone(),
        state,
        task_ids: which.ids(),
        all: which.all.then_some(true),
        sn: which.sn.clone(),
        outcome: which.outcome.clone(),
        due_from: which.due_from,
        due_to: which.due_to,
        dry_run: which.dry_run.then_some(true),
        limit: None,
        cursor,
    };
    repeat(&server.client()?, "/delay/task/cancel_many", body, which.dry_run, "cancelled").await
}

pub(super) async fn update_many(args: UpdateManyArgs) -> anyhow::Result<Code> {
    let UpdateManyArgs { which, due, server } = args;
    let body = |cursor: Option<String>| UpdateManyRequest {
        topic: which.topic.clone(),
        timing_moment: due.at.seconds(),
        at: due.at.words(),
        zone: due.at.zone.clone(),
        task_ids: which.ids(),
        all: which.all.then_some(true),
        sn: which.sn.clone(),
        outcome: which.outcome.clone(),
        due_from: which.due_from,
        due_to: which.due_to,
        dry_run: which.dry_run.then_some(true),
        limit: None,
        cursor,
    };
    repeat(&server.client()?, "/delay/task/update_many", body, which.dry_run, "moved").await
}

/// Repeats the call until all tasks were looked at.
async fn repeat<B: Serialize>(
    client: &ApiClient,
    path: &str,
    body: impl Fn(Option<String>) -> B,
    dry_run: bool,
    done: &str,
) -> anyhow::Result<Code> {
    let (mut total, mut first, mut cursor) = (0, Vec::new(), None);
    loop {
        let changed: Changed = client.call(path, &body(cursor)).await?;
        total += changed.count;
        if first.is_empty() {
            first = changed.sample;
        }
        cursor = changed.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !client.is_json() {
        if dry_run && !first.is_empty() {
            output::line(&tasks::shown(&first))?;
        }
        let would = if dry_run { "would be " } else { "" };
        output::line(&format!("{} {would}{done}", output::many(total, "task")))?;
    }
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

    type AloneMany = crate::cli::args::Alone<CancelManyArgs>;

    #[test]
    fn a_filter_and_a_confirmation_are_required() {
        let check = |line: &[&str], expected: bool| {
            let parsed = AloneMany::try_parse_from([&["cancel-many", "t"], line].concat());
            assert_eq!(parsed.is_ok(), expected, "{line:?}");
        };
        check(&["--all", "--yes"], true);
        check(&["--sn", "a", "--dry-run"], true);
        check(&["--due-to", "1795236367", "--outcome", "x", "--yes"], true);
        check(&["--yes"], false);
        check(&["--all"], false);
        check(&["--all", "--sn", "a", "--yes"], false);
        check(&["--all", "--yes", "--state", "leased"], false);
    }
}
