//! `delayd audit`: lists the audit log.

use delayd_wire::{AuditEntry, AuditListRequest, AuditPage};

use super::cell::Cell;
use super::client::ServerArgs;
use super::paging::Paging;
use super::table::Column;
use super::{Code, output, table};
use crate::app;
use crate::settings::Settings;

/// List who did which administrative action, the newest first.
///
/// The log holds pauses, holds, replays, purges, changes of topics and schedules, migrations,
/// reloads and the like, also those that were refused. It needs a token with the scope view or
/// admin for all topics.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd audit
  delayd audit --all --json")]
pub(super) struct Args {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let client = args.server.client()?;
    let read = async |limit, cursor| {
        let body = AuditListRequest { limit, cursor };
        let page: AuditPage = client.call("/delay/audit/list", &body).await?;
        Ok((page.entries, page.cursor))
    };
    args.paging.show(&client, read, shown).await
}

/// Records what a command did to the store itself. The command has succeeded, so an error here is
/// only told.
pub(super) async fn record(settings: &Settings, action: &str) {
    if let Err(error) = app::record_action(settings, action).await {
        eprintln!("delayd: {action} is not in the audit log: {error}");
    }
}

fn shown(entries: &[AuditEntry]) -> String {
    if entries.is_empty() {
        return "no entries".into();
    }
    let columns: [Column<AuditEntry>; 6] = [
        ("time", |entry| entry.at_ms.cell()),
        ("by", |entry| {
            let source = || format!("({})", entry.source.as_str());
            entry.token.clone().unwrap_or_else(source).cell()
        }),
        ("action", |entry| entry.action.cell()),
        ("target", target),
        ("result", |entry| match entry.status {
            Some(status) => format!("{} ({status})", entry.result.as_str()),
            None => entry.result.as_str().into(),
        }),
        ("request_id", |entry| entry.request_id.cell()),
    ];
    table::of(entries, &columns)
}

/// What an action was about.
fn target(entry: &AuditEntry) -> String {
    let parts = [
        entry.topic.as_ref().map(Cell::cell),
        entry.sn.as_ref().map(Cell::cell),
        entry.schedule.as_ref().map(Cell::cell),
        entry.task_id.as_ref().map(Cell::cell),
        entry.tasks.map(|tasks| output::many(tasks, "task")),
        entry.reason.as_ref().map(Cell::cell),
        entry.dry_run.then(|| "dry run".to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_a_table() {
        assert_eq!(shown(&[]), "no entries");
        let entries = json!([
            {"at_ms": 1_795_234_577_000_i64, "source": "api", "token": "ops",
             "action": "topic/pause", "topic": "t", "result": "done", "status": 200,
             "request_id": "r-1"},
            {"at_ms": 1_795_234_576_000_i64, "source": "api", "action": "dead/replay",
             "result": "refused", "status": 401, "dm_error": 1001, "request_id": "r-0"},
            {"at_ms": 1_795_234_575_000_i64, "source": "api", "token": "ops",
             "action": "dead/purge", "topic": "t", "dry_run": true,
             "result": "done", "status": 200, "request_id": "r-2"},
            {"at_ms": 1_795_234_574_000_i64, "source": "api", "token": "ops",
             "action": "dead/purge", "topic": "t", "tasks": 3, "result": "unanswered",
             "reason": "gone", "request_id": "r-3"},
            {"at_ms": 1_795_234_573_000_i64, "source": "api", "token": "ops",
             "action": "schedule/pause", "topic": "t", "schedule": "nightly", "result": "done",
             "status": 200, "request_id": "r-4"},
        ]);
        let entries: Vec<AuditEntry> = serde_json::from_value(entries).unwrap();
        insta::assert_snapshot!(shown(&entries), @r#"
        TIME                      BY     ACTION          TARGET            RESULT         REQUEST_ID
        2026-11-21T04:16:17.000Z  ops    topic/pause     t                 done (200)     r-1
        2026-11-21T04:16:16.000Z  (api)  dead/replay                       refused (401)  r-0
        2026-11-21T04:16:15.000Z  ops    dead/purge      t, dry run        done (200)     r-2
        2026-11-21T04:16:14.000Z  ops    dead/purge      t, 3 tasks, gone  unanswered     r-3
        2026-11-21T04:16:13.000Z  ops    schedule/pause  t, nightly        done (200)     r-4
        "#);
    }
}
