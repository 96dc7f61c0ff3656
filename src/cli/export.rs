//! `delayd export`: writes topics and tasks, one per line.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use delayd_wire::{
    ErrorCode, Page, Records, TaskId, TaskState, TopicListRequest, TopicRequest, TopicShown, Topics,
};
use indicatif::ProgressBar;

use super::client::{ApiClient, RefusedByService, ServiceAddress};
use super::exported::{Exported, SchedulePage, list_of, records_of, schedules_of};
use super::topic::shown::counts;
use super::topic_settings::TopicSettings;
use super::{Code, output, progress};
use crate::model::task::Topic;

/// Tasks per request.
const BATCH: usize = 200;
/// The states in which a task waits. Scheduled tasks come first: a task that is leased meanwhile is
/// then found in the second list.
const WAITING: [TaskState; 2] = [TaskState::Scheduled, TaskState::Leased];
const ENDED: [TaskState; 3] = [TaskState::Delivered, TaskState::Cancelled, TaskState::Expired];

/// Write the topics and tasks of a running service, one JSON object per line, for `delayd import`.
///
/// This includes topics with their settings, recurring schedules, and scheduled, retrying, leased
/// and dead tasks. Tasks that are delivered meanwhile may be included; for a consistent export
/// pause the topics first. To copy to a running service, `delayd move` is better. The file contains
/// contents and headers: protect it like the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd export --out tasks.ndjson
  delayd export --topic orders --topic reviews > tasks.ndjson
  delayd export --server http://10.0.0.5:7799 | delayd import --server http://10.0.0.6:7799")]
pub(super) struct Args {
    /// Only this topic; may be given several times
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<Topic>,
    /// Write to this file; it appears only once it is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Include the history: delivered, cancelled and expired tasks
    #[arg(long)]
    history: bool,
    #[command(flatten)]
    server: ServiceAddress,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let client = args.server.client()?;
    let topics = match args.topics.as_slice() {
        [] => all_topics(&client).await?,
        given => given.to_vec(),
    };
    let ended = if args.history { &ENDED[..] } else { &[] };
    let states: Vec<TaskState> =
        WAITING.iter().chain(&[TaskState::Dead]).chain(ended).copied().collect();
    let count = match &args.out {
        None => write(&client, &topics, &states, &mut BufWriter::new(io::stdout())).await?,
        Some(path) => {
            let part = beside(path);
            let cannot = || format!("cannot write {}", part.display());
            let mut file = BufWriter::new(private(&part).with_context(cannot)?);
            let count = write(&client, &topics, &states, &mut file).await?;
            file.get_ref().sync_all().with_context(cannot)?;
            fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))?;
            count
        }
    };
    let (tasks, topics) = (output::many(count, "task"), output::many(topics.len() as u64, "topic"));
    eprintln!("delayd: {tasks} of {topics} exported");
    Ok(Code::Done)
}

/// Creates a file that only its owner can read, because it has contents.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn all_topics(client: &ApiClient) -> anyhow::Result<Vec<Topic>> {
    let listed: Topics = client.call("/delay/topic/list", &TopicListRequest::ALL).await?;
    Ok(listed.topics.into_iter().map(|listed| listed.topic).collect())
}

/// Writes the tasks of these topics in these states, and returns their number.
async fn write(
    client: &ApiClient,
    topics: &[Topic],
    states: &[TaskState],
    to: &mut impl Write,
) -> anyhow::Result<u64> {
    let mut settings = Vec::new();
    let mut total = 0;
    for topic in topics {
        let shown: TopicShown =
            client.call("/delay/topic/get", &TopicRequest { topic: topic.clone() }).await?;
        let counts = counts(&shown.counts).into_iter().filter(|(state, _)| states.contains(state));
        total += counts.map(|(_, count)| count).sum::<u64>();
        settings.push(TopicSettings::from(shown));
    }
    let bar = progress::towards(total, "tasks");
    let mut count = 0;
    for (topic, settings) in topics.iter().zip(settings) {
        writeln!(to, "{}", serde_json::to_string(&settings)?)?;
        let mut seen = WrittenTasks::default();
        write_schedules(client, topic, &mut seen, to).await?;
        for state in states {
            count += write_state(client, topic, *state, &mut seen, to, &bar).await?;
        }
    }
    to.flush()?;
    bar.finish_and_clear();
    Ok(count)
}

/// Writes the recurring schedules of a topic. The occurrence of a schedule that was never handed
/// out is not written, because the schedule plans it again where it is imported.
async fn write_schedules(
    client: &ApiClient,
    topic: &Topic,
    seen: &mut WrittenTasks,
    to: &mut impl Write,
) -> anyhow::Result<()> {
    let mut cursor = None;
    loop {
        let body = schedules_of(topic, cursor);
        let page: SchedulePage = match client.call("/delay/schedule/records", &body).await {
            // A service of an earlier version has no schedules.
            Err(error) if RefusedByService::is(&error, ErrorCode::NotFound) => return Ok(()),
            page => page?,
        };
        for schedule in page.records {
            writeln!(to, "{}", serde_json::to_string(&schedule)?)?;
            seen.ids.extend(schedule.waiting);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// The tasks of a topic that are already written.
#[derive(Default)]
struct WrittenTasks {
    ids: HashSet<TaskId>,
    /// A leased task may have lost its key to a waiting one, and is then not retried. If it were
    /// imported, it would replace the other.
    keys: HashSet<String>,
}

impl WrittenTasks {
    fn is_new(&mut self, task: &Exported) -> bool {
        !task.waits() || task.record.key.as_ref().is_none_or(|key| self.keys.insert(key.clone()))
    }
}

/// Writes the tasks of a topic in one state, page by page, without those in `seen`.
async fn write_state(
    client: &ApiClient,
    topic: &Topic,
    state: TaskState,
    seen: &mut WrittenTasks,
    to: &mut impl Write,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let (mut count, mut cursor) = (0, None);
    loop {
        let body = list_of(topic, state, cursor);
        let page: Page = client.call("/delay/task/list", &body).await?;
        let ids = page.tasks.into_iter().map(|task| task.task_id);
        let fresh: Vec<TaskId> = ids.filter(|id| seen.ids.insert(*id)).collect();
        for batch in fresh.chunks(BATCH) {
            for record in records(client, topic, batch).await? {
                if let Some(task) = record.standing(state).filter(|task| seen.is_new(task)) {
                    writeln!(to, "{}", serde_json::to_string(&task)?)?;
                    count += 1;
                }
            }
            bar.inc(batch.len() as u64);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(count);
        }
    }
}

/// The records of these tasks, without those that were forgotten meanwhile.
async fn records(
    client: &ApiClient,
    topic: &Topic,
    ids: &[TaskId],
) -> anyhow::Result<Vec<Exported>> {
    let (mut records, mut rest) = (Vec::new(), ids.to_vec());
    while !rest.is_empty() {
        let answer: Records = client.call("/delay/task/records", &records_of(topic, &rest)).await?;
        rest = answer.rest;
        records.extend(Exported::all(answer.records));
    }
    Ok(records)
}
