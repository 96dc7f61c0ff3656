//! `delayd schedule …`: sets and shows recurring schedules.

use clap::Subcommand;
use delayd_wire::{
    Nothing, ScheduleListRequest, ScheduleMoment, ScheduleOccurrence, SchedulePreview,
    SchedulePreviewRequest, ScheduleRan, ScheduleRequest, ScheduleRunRequest, ScheduleShown,
    Schedules, Span,
};

use super::cell::{Cell, settings, whole};
use super::client::ServerArgs;
use super::paging::Paging;
use super::table::Column;
use super::{Code, table, time};
use crate::model::clock::UnixMillis;
use crate::model::task::{ScheduleName, Topic};

mod set;

/// Set, show, pause, run and delete recurring schedules.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd schedule preview --cron '30 2 * * *' --zone Europe/Berlin
  delayd schedule set bills nightly --cron '30 2 * * *' '{\"sn\":\"message.call\",\"url\":\"/run\"}'
  delayd schedule get bills nightly
  delayd schedule pause bills nightly
  delayd schedule run bills nightly --idempotency-key today")]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Set(Box<set::Args>),
    /// Show a schedule: its rule, its next moments and its last occurrences
    Get(OneArgs),
    /// List the schedules of a topic
    List(ListArgs),
    /// Pause a schedule; an occurrence that runs goes on
    Pause(OneArgs),
    /// End a pause: the schedule fires at its next moment
    Resume(OneArgs),
    /// Delete a schedule; an occurrence that runs goes on
    Delete(OneArgs),
    /// Add an occurrence now, beside the plan
    Run(RunArgs),
    /// Show the next moments of a cron expression, or of a fixed distance
    Preview(PreviewArgs),
}

#[derive(Debug, clap::Args)]
struct OneArgs {
    /// The topic
    topic: Topic,
    /// The schedule
    schedule: ScheduleName,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The topic
    topic: Topic,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The topic
    topic: Topic,
    /// The schedule
    schedule: ScheduleName,
    /// Make the run safe to repeat: with the same key, only one task is stored
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, clap::Args)]
struct PreviewArgs {
    /// A cron expression with five fields, or with six (second first)
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every")]
    cron: Option<String>,
    /// A fixed distance instead: 1s to 366d, counted from --start or now
    #[arg(long, value_name = "DURATION", conflicts_with = "cron")]
    every: Option<Span>,
    /// The time zone, such as Asia/Shanghai
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// No moment before this time: RFC 3339, or a local time in the zone
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// No moment after this time
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// Only moments after this time; by default now
    #[arg(long, value_name = "TIME")]
    after: Option<String>,
    /// How many moments
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    count: u16,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    match args.verb {
        Verb::Set(args) => set::run(*args).await?,
        Verb::Get(OneArgs { topic, schedule, server }) => {
            server.ask("/delay/schedule/get", &of(&topic, &schedule), shown).await?;
        }
        Verb::List(args) => return list(args).await,
        Verb::Pause(OneArgs { topic, schedule, server }) => {
            server.ask("/delay/schedule/pause", &of(&topic, &schedule), shown).await?;
        }
        Verb::Resume(OneArgs { topic, schedule, server }) => {
            server.ask("/delay/schedule/resume", &of(&topic, &schedule), shown).await?;
        }
        Verb::Delete(OneArgs { topic, schedule, server }) => {
            let deleted = |_: Nothing| "deleted".into();
            server.ask("/delay/schedule/delete", &of(&topic, &schedule), deleted).await?;
        }
        Verb::Run(RunArgs { topic, schedule, idempotency_key, server }) => {
            let schedule = schedule.to_string();
            let body = ScheduleRunRequest { topic, schedule, idempotency_key };
            server.ask("/delay/schedule/run", &body, ran).await?;
        }
        Verb::Preview(args) => {
            let PreviewArgs { cron, every, zone, start, end, after, count, server } = args;
            let (zone, count) = (Some(zone), Some(count.into()));
            let body = SchedulePreviewRequest { cron, every, zone, start, end, after, count };
            server.ask("/delay/schedule/preview", &body, previewed).await?;
        }
    }
    Ok(Code::Done)
}

fn of(topic: &Topic, schedule: &ScheduleName) -> ScheduleRequest {
    ScheduleRequest { topic: topic.clone(), schedule: schedule.to_string() }
}

async fn list(ListArgs { topic, paging, server }: ListArgs) -> anyhow::Result<Code> {
    let client = server.client()?;
    let read = async |limit, cursor| {
        let body = ScheduleListRequest { topic: topic.clone(), limit, cursor };
        let page: Schedules = client.call("/delay/schedule/list", &body).await?;
        Ok((page.schedules, page.cursor))
    };
    paging.show(&client, read, listed).await
}

fn listed(schedules: &[ScheduleShown]) -> String {
    let columns: [Column<ScheduleShown>; 5] = [
        ("schedule", |shown| shown.schedule.cell()),
        ("rule", rule),
        ("zone", |shown| shown.zone.cell()),
        ("next", |shown| match shown.paused {
            true => "paused".into(),
            false => shown.next.first().map(|next| next.moment.clone()).cell(),
        }),
        ("last", |shown| shown.recent.first().and_then(|last| last.state).cell()),
    ];
    table::of(schedules, &columns)
}

/// The cron expression, or the distance.
fn rule(schedule: &ScheduleShown) -> String {
    match (&schedule.cron, schedule.every_ms) {
        _ if schedule.unreadable => "(set by a later version)".into(),
        (Some(cron), _) => cron.cell(),
        (None, Some(millis)) => {
            format!("every {}", Span(std::time::Duration::from_millis(millis)))
        }
        (None, None) => String::new(),
    }
}

/// The fields of a schedule, and its last occurrences.
fn shown(schedule: ScheduleShown) -> String {
    let next: Vec<_> = schedule.next.iter().map(|next| next.moment.cell()).collect();
    let mut pairs = vec![
        ("topic", schedule.topic.cell()),
        ("schedule", schedule.schedule.cell()),
        ("rule", rule(&schedule)),
        ("zone", schedule.zone.cell()),
        ("start", schedule.start_ms.cell()),
        ("end", schedule.end_ms.cell()),
        ("misfire", word(schedule.misfire)),
        ("overlap", word(schedule.overlap)),
        ("sn", schedule.sn.cell()),
        ("paused since", schedule.paused_since_ms.cell()),
        ("set", schedule.set_ms.cell()),
        ("next", if next.is_empty() { "-".into() } else { next.join(", ") }),
    ];
    pairs.extend(schedule.options.map(|options| ("options", settings(&options).cell())));
    pairs.extend(schedule.content.map(|content| ("content", whole(&content))));
    let pairs = table::pairs(&pairs);
    if schedule.recent.is_empty() {
        return pairs;
    }
    let columns: [Column<ScheduleOccurrence>; 5] = [
        ("moment", |one| one.moment.cell()),
        ("task_id", |one| one.task_id.cell()),
        ("state", |one| one.state.cell()),
        ("attempts", |one| one.attempts.cell()),
        ("outcome", |one| one.last_outcome.cell()),
    ];
    format!("{pairs}\n\n{}", table::of(&schedule.recent, &columns))
}

/// The word of a value, as the answer has it.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).map_or_else(|_| String::new(), |value| value.cell())
}

fn ran(ScheduleRan { task_id, due_ms, duplicate, .. }: ScheduleRan) -> String {
    let mut pairs = vec![("task_id", task_id.cell()), ("due", due_ms.cell())];
    if duplicate {
        pairs.push(("duplicate", "an earlier run with this idempotency key added it".into()));
    }
    table::pairs(&pairs)
}

fn previewed(SchedulePreview { moments, .. }: SchedulePreview) -> String {
    let row = |ScheduleMoment { moment_ms, moment }: &ScheduleMoment| {
        vec![moment.cell(), time::rfc3339(UnixMillis(moment_ms.0))]
    };
    let rows: Vec<_> = moments.iter().map(row).collect();
    match rows.is_empty() {
        true => "it does not fire any more".to_owned(),
        false => table::columns(&["moment", "utc"], &rows),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schedule(more: Value) -> Value {
        let mut schedule = json!({
            "topic": "bill", "schedule": "nightly", "cron": "30 2 * * *",
            "zone": "Europe/Berlin", "misfire": "once", "overlap": "skip",
            "sn": "message.call", "paused": false, "set_ms": 1_795_234_567_042_i64,
            "next": [
                {"moment_ms": 1_795_311_000_000_i64, "moment": "2026-11-22T02:30:00+01:00"},
                {"moment_ms": 1_795_397_400_000_i64, "moment": "2026-11-23T02:30:00+01:00"},
            ],
            "recent": [
                {"moment_ms": 1_795_224_600_000_i64, "moment": "2026-11-21T02:30:00+01:00",
                 "task_id": 8, "state": "dead", "attempts": 3, "last_outcome": "500"},
                {"moment_ms": 1_795_138_200_000_i64, "moment": "2026-11-20T02:30:00+01:00",
                 "task_id": 7, "last_outcome": null},
            ],
        });
        schedule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schedule
    }

    #[test]
    fn a_schedule_is_shown_with_its_last_occurrences() {
        let more = json!({"options": {"max_attempts": 3}, "content": "{\"a\":1}"});
        insta::assert_snapshot!(shown(serde_json::from_value(schedule(more)).unwrap()), @r#"
        topic         bill
        schedule      nightly
        rule          30 2 * * *
        zone          Europe/Berlin
        start         -
        end           -
        misfire       once
        overlap       skip
        sn            message.call
        paused since  -
        set           2026-11-21T04:16:07.042Z
        next          2026-11-22T02:30:00+01:00, 2026-11-23T02:30:00+01:00
        options       {"max_attempts":3}
        content       {"a":1}

        MOMENT                     TASK_ID  STATE  ATTEMPTS  OUTCOME
        2026-11-21T02:30:00+01:00  8        dead   3         500
        2026-11-20T02:30:00+01:00  7        -      -         -
        "#);
    }

    #[test]
    fn schedules_are_a_table() {
        let schedules = [
            schedule(json!({})),
            schedule(json!({
                "schedule": "tick", "cron": null, "every_ms": 90_000, "zone": "UTC", "paused": true,
                "recent": [],
            })),
            schedule(json!({"schedule": "new", "unreadable": true, "zone": "", "next": []})),
        ];
        let schedules: Vec<ScheduleShown> =
            schedules.into_iter().map(|one| serde_json::from_value(one).unwrap()).collect();
        insta::assert_snapshot!(listed(&schedules), @r#"
        SCHEDULE  RULE                      ZONE           NEXT                       LAST
        nightly   30 2 * * *                Europe/Berlin  2026-11-22T02:30:00+01:00  dead
        tick      every 90s                 UTC            paused                     -
        new       (set by a later version)                 -                          dead
        "#);
    }
}
