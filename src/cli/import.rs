//! `delayd import`: adds the tasks of an export.
//!
//! # Invariants
//!
//! - An unconfirmed batch is sent again, and a complete import can be repeated: the idempotency key
//!   of a task depends only on the exported task.
//! - A line that cannot be added is reported by its number and does not stop the others. The exit
//!   code is then 1.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use delayd_wire::{AtMost, Batch, BatchItem, BatchRequest, ErrorCode};
use serde_json::{Map, Value, json};

use super::client::raw;
use super::client::{Answer, Client, Refused, Server};
use super::exported::{Exported, ExportedSchedule, Line};
use super::migrate::import_batch::{Adopted, adopt};
use super::migrate::schedules::adopt_schedules;
use super::retry_client::RetryClient;
use super::topic_settings::TopicSettings;
use super::{Code, output, progress, table};

/// The maximum body of a batch in bytes, unless it has a single task: a quarter of the default
/// limit of a service.
const BATCH_BYTES: usize = 4 << 20;
/// How often a batch is sent in all, and the first wait. Each next wait is twice as long.
const TRIES: u32 = 7;
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// For how long an unconfirmed topic or record is repeated.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failures that are reported one by one.
const TOLD: u64 = 20;

/// Add the tasks of an export to a running service.
///
/// Recurring schedules continue where they stopped. Due times, keys, options and contents are kept.
/// Ids are new and attempts start at zero, unless --keep-ids is given. Overdue tasks are due at
/// once. The import can be repeated: within `limits.idempotency_window` (24 hours) no task is
/// stored twice. Existing topics are not changed. Dead tasks and the history keep their ids.
/// Everything except adding requires a token with the scope admin.
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
    /// Keep the ids and attempts of waiting tasks as well
    #[arg(long)]
    keep_ids: bool,
    /// Print the counts as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
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
struct Counts {
    sent: u64,
    stored: u64,
    known: u64,
    failed: u64,
}

impl Counts {
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

/// A task to add, and its line number.
type Waiting = (u64, Map<String, Value>);

struct Import {
    client: Client,
    patient: RetryClient,
    keeps_ids: bool,
    most: usize,
    lines: u64,
    batch: Vec<Waiting>,
    /// Records to adopt, with their line numbers.
    records: Vec<Exported>,
    lines_of_records: Vec<u64>,
    bytes: usize,
    counts: Counts,
}

impl Import {
    fn into(args: &Args) -> anyhow::Result<Self> {
        Ok(Self {
            client: args.server.client()?,
            patient: RetryClient::new(args.server.client()?, PATIENCE),
            keeps_ids: args.keep_ids,
            most: args.batch.into(),
            lines: 0,
            batch: Vec::new(),
            records: Vec::new(),
            lines_of_records: Vec::new(),
            bytes: 0,
            counts: Counts::default(),
        })
    }

    /// Handles a line. Sends the batch first if the line would make it too large.
    async fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.lines += 1;
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        match serde_json::from_slice::<Line>(line) {
            Ok(Line::Task(exported)) => {
                if self.batch.len() + self.records.len() == self.most
                    || self.bytes + line.len() > BATCH_BYTES
                {
                    self.send().await?;
                }
                self.bytes += line.len();
                self.gather(*exported);
            }
            Ok(Line::Topic(settings)) => self.set(&settings).await?,
            Ok(Line::Schedule(schedule)) => self.adopt_schedule(*schedule).await?,
            Err(_) => self.fail(self.lines, "is not a line of an export"),
        }
        Ok(())
    }

    /// A waiting task is added, unless ids are kept. An ended one, and an occurrence of a schedule,
    /// can only be adopted.
    fn gather(&mut self, exported: Exported) {
        if exported.waits() && !self.keeps_ids && !exported.is_occurrence() {
            self.batch.push((self.lines, exported.into_task()));
        } else {
            self.records.push(exported);
            self.lines_of_records.push(self.lines);
        }
    }

    async fn set(&mut self, settings: &TopicSettings) -> anyhow::Result<()> {
        match settings.create_at(&self.patient).await {
            Err(error) if error.is::<Refused>() => self.fail(self.lines, &error.to_string()),
            set => drop(set?),
        }
        Ok(())
    }

    async fn adopt_schedule(&mut self, schedule: ExportedSchedule) -> anyhow::Result<()> {
        let adopted = adopt_schedules(&self.patient, &schedule.topic, &[&schedule]).await?;
        match adopted.into_iter().next() {
            Some(Ok(is_known)) => {
                self.counts.known += u64::from(is_known);
                self.counts.stored += u64::from(!is_known);
            }
            Some(Err(why)) => self.fail(self.lines, &why.sentence),
            None => bail!("the service answered no result for a schedule"),
        }
        self.counts.sent += 1;
        Ok(())
    }

    /// Sends the collected tasks and records.
    async fn send(&mut self) -> anyhow::Result<()> {
        self.add().await?;
        let (lines, records) =
            (std::mem::take(&mut self.lines_of_records), std::mem::take(&mut self.records));
        if records.is_empty() {
            return Ok(());
        }
        for (line, adopted) in
            lines.into_iter().zip(adopt(&self.patient, &records, async || ()).await?)
        {
            match adopted {
                Ok(Adopted::New) => self.counts.stored += 1,
                Ok(Adopted::Known | Adopted::Superseded | Adopted::Held) => self.counts.known += 1,
                Err(why) => self.fail(line, &why.sentence),
            }
            self.counts.sent += 1;
        }
        Ok(())
    }

    /// Adds the collected tasks, and repeats those that are not confirmed.
    async fn add(&mut self) -> anyhow::Result<()> {
        let mut batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let mut wait = FIRST_WAIT;
        for attempt in 1..=TRIES {
            if batch.is_empty() {
                break;
            }
            let is_last = attempt == TRIES;
            let tasks: Vec<&Map<String, Value>> = batch.iter().map(|(_, task)| task).collect();
            let answer = self
                .client
                .post("/delay/task/add_batch", &BatchRequest { tasks: AtMost(raw(tasks)) })
                .await;
            match answer {
                // An unreachable service at the very beginning is most likely a wrong address.
                Err(error) if is_last || self.counts.sent == 0 => return Err(error),
                Err(_) => {}
                Ok(answer) if answer.code() == ErrorCode::Unavailable && !is_last => {}
                Ok(answer) => batch = self.note(batch, answer, is_last)?,
            }
            if !batch.is_empty() {
                tokio::time::sleep(wait).await;
                wait *= 2;
            }
        }
        Ok(())
    }

    /// Counts the results, and returns the tasks to send again.
    fn note(
        &mut self,
        batch: Vec<Waiting>,
        answer: Answer,
        is_last: bool,
    ) -> anyhow::Result<Vec<Waiting>> {
        let results = answer.batch::<Batch>()?.results;
        if results.len() != batch.len() {
            bail!("the service answered {} results to {} tasks", results.len(), batch.len());
        }
        let mut again = Vec::new();
        for ((line, task), result) in batch.into_iter().zip(results) {
            match result {
                BatchItem::Stored(stored) if stored.fields.duplicate => self.counts.known += 1,
                BatchItem::Stored(_) => self.counts.stored += 1,
                BatchItem::Failed { dm_error: ErrorCode::Unavailable, .. } if !is_last => {
                    again.push((line, task));
                    continue;
                }
                BatchItem::Failed { error_msg, .. } => self.fail(line, &error_msg),
            }
            self.counts.sent += 1;
        }
        Ok(again)
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    type Alone = crate::cli::args::Alone<Args>;

    #[test]
    fn only_what_is_not_confirmed_is_sent_again_and_in_the_end_fails() {
        crate::install_crypto();
        let mut import = Import::into(&Alone::parse_from(["import"]).args).unwrap();
        let batch = || (1..=4).map(|line| (line, Map::new())).collect::<Vec<Waiting>>();
        let answer = || {
            let stored = |id: u64, duplicate: bool| {
                json!({
                    "dm_error": 0, "error_msg": "", "task_id": id, "due_ms": 0, "due": "",
                    "mode": "push",
                    "durability": "fsynced", "duplicate": duplicate,
                })
            };
            Answer::of(&json!({"dm_error": 0, "failed": 2, "results": [
                stored(1, false), stored(2, true),
                {"dm_error": 2003, "error_msg": "not confirmed"},
                {"dm_error": 1000, "error_msg": "content: is missing"},
            ]}))
        };
        let again = import.note(batch(), answer(), false).unwrap();
        assert_eq!(again.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [3]);
        assert_eq!(import.counts.json(), json!({"stored": 1, "known": 1, "failed": 1}));
        assert!(import.note(batch(), answer(), true).unwrap().is_empty());
        assert_eq!(import.counts.json(), json!({"stored": 2, "known": 2, "failed": 3}));
        assert!(
            import
                .note(
                    batch(),
                    Answer::of(&json!({"dm_error": 0, "failed": 0, "results": []})),
                    true
                )
                .is_err()
        );
        assert!(
            import
                .note(batch(), Answer::of(&json!({"dm_error": 1003, "error_msg": "no"})), true)
                .is_err()
        );
        let bad = json!({"dm_error": 1000, "error_msg": "content: is missing"});
        let none = json!({
            "dm_error": 1000, "error_msg": "none", "failed": 4, "results": [bad, bad, bad, bad],
        });
        assert!(import.note(batch(), Answer::of(&none), false).unwrap().is_empty());
        assert_eq!(import.counts.json(), json!({"stored": 2, "known": 2, "failed": 7}));
    }
}
