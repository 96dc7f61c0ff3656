//! `delayd list`: lists the tasks of a topic in one state, one page or all.

use delayd_wire::{Entry, ListOrder, ListRequest, Number, TaskState};

use super::args::one_of;
use super::cell::Cell;
use super::client::{Client, ServerArgs};
use super::due::seconds;
use super::paging::Paging;
use super::{Code, table};
use crate::model::task::{Destination, Topic};

/// List the tasks of a topic in one state, in time order.
///
/// Scheduled tasks are ordered by due time, leased ones by the end of their lease, all others by
/// their end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd list orders
  delayd list orders dead --all
  delayd list orders delivered --newest --sn message.call
  delayd list orders --from 1795236000 --to 1795239600 --limit 1000 --json")]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The state
    #[arg(
        default_value = "scheduled",
        value_parser = one_of(&TaskState::ALL, TaskState::as_str)
    )]
    state: TaskState,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    server: ServerArgs,
}

/// Which tasks to list.
#[derive(Debug, clap::Args)]
pub(super) struct Page {
    #[command(flatten)]
    paging: Paging,
    /// Only tasks from this moment on
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    from: Option<Number>,
    /// Only tasks up to this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    to: Option<Number>,
    /// The latest tasks first
    #[arg(long)]
    newest: bool,
    /// Only tasks for this service or host; @pull: only pulled tasks
    #[arg(long, value_name = "SERVICE")]
    sn: Option<Destination>,
    /// Only tasks whose last outcome is exactly this
    #[arg(long, value_name = "OUTCOME")]
    outcome: Option<String>,
    /// Only tasks that are due from this moment on
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    due_from: Option<Number>,
    /// Only tasks that are due up to this moment
    #[arg(long, value_name = "UNIX_SECONDS", value_parser = seconds)]
    due_to: Option<Number>,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    show(&args.server.client()?, &args.topic, args.state, args.page).await
}

/// Prints the page, or all pages from there on.
pub(super) async fn show(
    client: &Client,
    topic: &Topic,
    state: TaskState,
    page: Page,
) -> anyhow::Result<Code> {
    let Page { paging, from, to, newest, sn, outcome, due_from, due_to } = page;
    let read = async |limit, cursor| {
        let body = ListRequest {
            topic: topic.clone(),
            state,
            limit,
            cursor,
            from,
            to,
            order: newest.then_some(ListOrder::Newest),
            sn: sn.clone(),
            outcome: outcome.clone(),
            due_from,
            due_to,
        };
        let page: delayd_wire::Page = client.call("/delay/task/list", &body).await?;
        Ok((page.tasks, page.cursor))
    };
    paging.show(client, read, shown).await
}

pub(super) fn shown(tasks: &[Entry]) -> String {
    if tasks.is_empty() {
        return "no tasks".into();
    }
    let row = |task: &Entry| {
        vec![
            task.task_id.cell(),
            task.due_ms.cell(),
            task.sn.as_ref().map_or_else(|| task.mode.cell(), Cell::cell),
            task.attempts.cell(),
            task.finished_ms.cell(),
            task.key.cell(),
            task.last_outcome.cell(),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    table::columns(&["task_id", "due", "to", "attempts", "finished", "key", "last_outcome"], &rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_is_a_table() {
        assert_eq!(shown(&[]), "no tasks");
        let tasks = json!([
            {
                "task_id": 7, "state": "scheduled", "mode": "push", "sn": "message.call",
                "due_ms": 1_795_234_577_000_i64, "due": "",
                "attempts": 2, "created_ms": 1, "finished_ms": null,
                "last_outcome": "410 Gone", "key": null,
            },
            {
                "task_id": 8, "state": "scheduled", "mode": "pull", "sn": null,
                "due_ms": 1_795_234_578_000_i64, "due": "",
                "attempts": 0, "created_ms": 1, "finished_ms": null, "last_outcome": null,
                "key": "device-7",
            },
        ]);
        let tasks: Vec<Entry> = serde_json::from_value(tasks).unwrap();
        insta::assert_snapshot!(shown(&tasks), @r#"
        TASK_ID  DUE                       TO            ATTEMPTS  FINISHED  KEY       LAST_OUTCOME
        7        2026-11-21T04:16:17.000Z  message.call  2         -         -         410 Gone
        8        2026-11-21T04:16:18.000Z  pull          0         -         device-7  -
        "#);
    }
}
