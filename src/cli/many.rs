//! `delayd cancel-many` and `delayd update-many`: change the tasks that a filter selects.

use clap::ArgGroup;
use delayd_wire::{
    AtMost, CancelManyRequest, Changed, Number, TaskId, TaskState, UpdateManyRequest,
};
use serde::Serialize;

use super::args::one_of;
use super::client::{Client, ServerArgs};
use super::due::{DueAt, seconds};
use super::{Code, list, output};
use crate::model::task::{Destination, Topic};

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
pub(super) struct CancelArgs {
    #[command(flatten)]
    which: Which,
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
pub(super) struct UpdateArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    due: DueAt,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which tasks.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("filter").required(true).multiple(true))]
struct Which {
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

impl Which {
    fn ids(&self) -> Option<AtMost<TaskId, 1000>> {
        let ids = || AtMost(self.task_id.iter().copied().map(TaskId).collect());
        (!self.task_id.is_empty()).then(ids)
    }
}

pub(super) async fn cancel(args: CancelArgs) -> anyhow::Result<Code> {
    let CancelArgs { which, state, server } = args;
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

pub(super) async fn update(args: UpdateArgs) -> anyhow::Result<Code> {
    let UpdateArgs { which, due, server } = args;
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
    client: &Client,
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
            output::line(&list::shown(&first))?;
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

    type Alone = crate::cli::args::Alone<CancelArgs>;

    #[test]
    fn a_filter_and_a_confirmation_are_required() {
        let check = |line: &[&str], expected: bool| {
            let parsed = Alone::try_parse_from([&["cancel-many", "t"], line].concat());
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
