//! `delayd import`: has the lines of an export adopted.
//!
//! # Invariants
//!
//! - An unconfirmed batch is sent again, and a complete import can be repeated: a task that was
//!   adopted before is known.
//! - A line that cannot be imported is reported by its number and does not stop the others. The
//!   exit code is then 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};

use super::client::{RefusedByService, ServiceAddress};
use super::exported::{ExportLine, Exported};
use super::migrate::import_batch::{ImportedRecord, RecordRefusal, adopt, adopt_schedules};
use super::retry_client::RetryClient;
use super::{Code, output, progress, table};

/// The maximum body of a batch in bytes, unless it has a single task: a quarter of the default
/// limit of a service.
const BATCH_BYTES: usize = 4 << 20;
/// For how long an unconfirmed batch is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failures that are reported one by one.
const TOLD: u64 = 20;

/// Store the tasks of an export in a running service.
///
/// Tasks keep everything: ids, due times, keys, attempts, options and contents. Overdue tasks are
/// due at once. Recurring schedules continue where they stopped. The import can be repeated: no
/// task is stored twice. Existing topics are not changed. It requires a token with the scope admin.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd import tasks.ndjson
  delayd export --server http://10.0.0.5:7799 | delayd import --server http://10.0.0.6:7799 -")]
pub(super) struct Args {
    /// The file from `delayd export`; - reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Tasks per request
    #[arg(
        long,
        value_name = "N",
        default_value_t = 500,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    batch: u16,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServiceAddress,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let (mut input, bar) = open(&args.file)?;
    let mut import = Import::into(&args)?;
    let mut line = Vec::new();
    let mut result = Ok(());
    while result.is_ok() {
        line.clear();
        let read = input.read_until(b'\n', &mut line).context("cannot read the export")?;
        if read == 0 {
            result = import.send().await;
            break;
        }
        result = import.line(&line).await;
        bar.inc(if bar.length().is_some() { read as u64 } else { 1 });
    }
    bar.finish_and_clear();
    let Import { counts, .. } = import;
    if counts.sent > 0 {
        let after = format!(
            "after {}; what is stored stays, and the import can be repeated",
            output::many(counts.sent, "task")
        );
        result = result.context(after);
    }
    result?;
    output::line(&if args.json { counts.json().to_string() } else { counts.text() })?;
    Ok(if counts.failed == 0 { Code::Done } else { Code::Failed })
}

/// The input, and a progress bar for it.
fn open(path: &Path) -> anyhow::Result<(Box<dyn BufRead>, indicatif::ProgressBar)> {
    if path == Path::new("-") {
        return Ok((Box::new(BufReader::new(io::stdin())), progress::counting("tasks read")));
    }
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let length = file.metadata().with_context(cannot)?.len();
    Ok((Box::new(BufReader::new(file)), progress::along(length, "of the export")))
}

/// The counts of all lines.
#[derive(Debug, Default)]
struct ImportCounts {
    sent: u64,
    stored: u64,
    known: u64,
    failed: u64,
}

impl ImportCounts {
    fn text(&self) -> String {
        table::pairs(&[
            ("stored", self.stored.to_string()),
            ("there already", self.known.to_string()),
            ("failed", self.failed.to_string()),
        ])
    }

    fn json(&self) -> Value {
        json!({"stored": self.stored, "known": self.known, "failed": self.failed})
    }
}

struct Import {
    to: RetryClient,
    most: usize,
    lines: u64,
    /// Records to adopt, with their line numbers.
    records: Vec<(u64, Exported)>,
    bytes: usize,
    counts: ImportCounts,
}

impl Import {
    fn into(args: &Args) -> anyhow::Result<Self> {
        Ok(Self {
            to: RetryClient::new(args.server.client()?, PATIENCE),
            most: args.batch.into(),
            lines: 0,
            records: Vec::new(),
            bytes: 0,
            counts: ImportCounts::default(),
        })
    }

    /// Handles a line. Sends the batch first if the line would make it too large.
    async fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.lines += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match serde_json::from_slice::<ExportLine>(line) {
            Ok(ExportLine::Task(exported)) => {
                if self.records.len() == self.most || self.bytes + line.len() > BATCH_BYTES {
                    self.send().await?;
                }
                self.bytes += line.len();
                self.records.push((self.lines, *exported));
            }
            Ok(ExportLine::Topic(settings)) => match settings.create_at(&self.to).await {
                Err(error) if error.is::<RefusedByService>() => {
                    self.fail(self.lines, &error.to_string())
                }
                set => drop(set?),
            },
            Ok(ExportLine::Schedule(schedule)) => {
                let topic = schedule.topic.clone();
                let adopted = adopt_schedules(&self.to, &topic, &[*schedule]).await?;
                self.note([self.lines], adopted);
            }
            Err(_) => self.fail(self.lines, "is not a line of an export"),
        }
        Ok(())
    }

    /// Sends the collected records.
    async fn send(&mut self) -> anyhow::Result<()> {
        self.bytes = 0;
        let (lines, records): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.records).into_iter().unzip();
        let adopted = adopt(&self.to, &records, async || ()).await?;
        let is_known = |adopted| adopted != ImportedRecord::New;
        self.note(lines, adopted.into_iter().map(|adopted| adopted.map(is_known)));
        Ok(())
    }

    /// Counts the results: whether each line was known, or why it was refused.
    fn note(
        &mut self,
        lines: impl IntoIterator<Item = u64>,
        results: impl IntoIterator<Item = Result<bool, RecordRefusal>>,
    ) {
        for (line, result) in lines.into_iter().zip(results) {
            match result {
                Ok(true) => self.counts.known += 1,
                Ok(false) => self.counts.stored += 1,
                Err(why) => self.fail(line, &why.sentence),
            }
            self.counts.sent += 1;
        }
    }

    fn fail(&mut self, line: u64, why: &str) {
        self.counts.failed += 1;
        if self.counts.failed <= TOLD {
            eprintln!("delayd: line {line}: {}", output::plain(why, 300));
        }
        if self.counts.failed == TOLD {
            eprintln!("delayd: further failures are only counted");
        }
    }
}
