//! `delayd schedule set`: creates or changes a recurring schedule.

use delayd_wire::{
    Number, ScheduleMisfire, ScheduleOverlap, ScheduleSetRequest, ScheduleShown, Span,
};
use serde::Serialize;

use crate::cli::add;
use crate::cli::args::{TaskOptions, one_of};
use crate::cli::client::ServerArgs;
use crate::model::task::{ScheduleName, Topic};
use serde_json::value::to_raw_value;

/// Create or change a recurring schedule.
///
/// A set that equals what is stored changes nothing, so a deployment may repeat it. A change
/// removes the occurrence that was not handed out yet.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The topic
    topic: Topic,
    /// The name of the schedule, unique within its topic
    schedule: ScheduleName,
    /// A cron expression with five fields, or with six (second first)
    #[arg(long, value_name = "EXPRESSION", required_unless_present = "every")]
    cron: Option<String>,
    /// A fixed distance instead: 1s to 366d, counted from --start or from now
    #[arg(long, value_name = "DURATION", conflicts_with = "cron")]
    every: Option<Span>,
    /// The time zone, such as Asia/Shanghai; by default UTC
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// No moment before this time: RFC 3339, or a local time in the zone
    #[arg(long, value_name = "TIME")]
    start: Option<String>,
    /// No moment after this time
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// Missed moments: once, one occurrence for all of them; all, each has one
    #[arg(
        long,
        value_name = "MISFIRE",
        value_parser = one_of(&ScheduleMisfire::ALL, ScheduleMisfire::as_str)
    )]
    misfire: Option<ScheduleMisfire>,
    /// While an occurrence runs: allow, the next one runs too; skip, it expires
    #[arg(
        long,
        value_name = "OVERLAP",
        value_parser = one_of(&ScheduleOverlap::ALL, ScheduleOverlap::as_str)
    )]
    overlap: Option<ScheduleOverlap>,
    #[command(flatten)]
    options: TaskOptions,
    /// The content of each occurrence; - reads it from standard input
    content: String,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    let content = add::content(&args.content)?;
    args.server.ask("/delay/schedule/set", &body(&args, content), shown).await
}

fn body(args: &Args, content: String) -> impl Serialize {
    ScheduleSetRequest {
        topic: args.topic.clone(),
        schedule: args.schedule.to_string(),
        cron: args.cron.clone(),
        every: args.every,
        zone: args.zone.clone(),
        start: args.start.clone(),
        end: args.end.clone(),
        misfire: args.misfire,
        overlap: args.overlap,
        content: to_raw_value(&content).expect("a text is plain data"),
        mode: args.options.mode,
        max_attempts: args.options.max_attempts.map(Number::from),
        timeout: args.options.timeout,
        backoff: args.options.backoff.clone(),
        headers: args.options.headers(),
        expires_after: args.options.expires_after,
        on_dead: args.options.on_dead.clone(),
    }
}

fn shown(schedule: ScheduleShown) -> String {
    let result = schedule.result.map(super::word).unwrap_or_default();
    format!("{result}\n\n{}", super::shown(schedule))
}
