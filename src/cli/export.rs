//! `delayd export`: what waits, one task a line.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use futures_util::{StreamExt, stream};
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::client::{Client, Server, fields};
use super::exported::Exported;
use super::{Code, out, progress};
use crate::task::Topic;

/// Tasks of a page of the list.
const PAGE: u16 = 1000;
/// Tasks that are asked for at a time.
const AT_A_TIME: usize = 16;
/// The states in which a task waits. The scheduled ones first: what is leased meanwhile then stands in the second list.
const WAITING: [&str; 2] = ["scheduled", "leased"];

/// Write the waiting tasks of a running service, one JSON object a line, for `delayd import`.
///
/// Scheduled tasks, those that wait for a retry, and those in someone's hands; not the dead, nor the history, nor the settings of
/// topics. What is delivered while this runs may be among them, so for a picture that holds pause the topics first. Contents and
/// headers are in it: keep the file as safe as the store.
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
    /// Write to this file instead of standard output; it is there only once it is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    let client = args.server.client()?;
    let topics = match args.topics.as_slice() {
        [] => all_topics(&client).await?,
        given => given.iter().map(ToString::to_string).collect(),
    };
    let count = match &args.out {
        None => write(&client, &topics, &mut BufWriter::new(io::stdout())).await?,
        Some(path) => {
            let part = beside(path);
            let cannot = || format!("cannot write {}", part.display());
            let mut file = BufWriter::new(private(&part).with_context(cannot)?);
            let count = write(&client, &topics, &mut file).await?;
            file.get_ref().sync_all().with_context(cannot)?;
            fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))?;
            count
        }
    };
    let (tasks, topics) = (out::many(count, "waiting task"), out::many(topics.len() as u64, "topic"));
    eprintln!("delayd: {tasks} of {topics} exported");
    Ok(Code::Done)
}

/// A file that its owner alone may read: there are contents in it.
fn private(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn all_topics(client: &Client) -> anyhow::Result<Vec<String>> {
    let answer = client.call("/delay/topic/list", &Map::new()).await?;
    let topics = answer["topics"].as_array().into_iter().flatten();
    Ok(topics.filter_map(|topic| topic["topic"].as_str().map(str::to_owned)).collect())
}

/// Writes what waits in these topics; answers how much that is.
async fn write(client: &Client, topics: &[String], to: &mut impl Write) -> anyhow::Result<u64> {
    let bar = progress::towards(waiting(client, topics).await?, "tasks");
    let mut count = 0;
    for topic in topics {
        let mut seen = Seen::default();
        for state in WAITING {
            count += write_state(client, topic, state, &mut seen, to, &bar).await?;
        }
    }
    to.flush()?;
    bar.finish_and_clear();
    Ok(count)
}

/// How many tasks wait in all.
async fn waiting(client: &Client, topics: &[String]) -> anyhow::Result<u64> {
    let mut total = 0;
    for topic in topics {
        let answer = client.call("/delay/topic/get", &fields([("topic", Some(json!(topic)))])).await?;
        total += WAITING.iter().filter_map(|state| answer["counts"][state].as_u64()).sum::<u64>();
    }
    Ok(total)
}

/// What of a topic stands in the export already.
#[derive(Default)]
struct Seen {
    ids: HashSet<u64>,
    /// A task in someone's hands may have lost its key to a waiting one, and then is not tried again. Imported it would take the place of
    /// the other.
    keys: HashSet<String>,
}

impl Seen {
    fn is_new(&mut self, task: &Exported) -> bool {
        task.key.as_ref().is_none_or(|key| self.keys.insert(key.clone()))
    }
}

/// Writes what one topic has in one state, page by page, but for what was `seen`.
async fn write_state(
    client: &Client,
    topic: &str,
    state: &str,
    seen: &mut Seen,
    to: &mut impl Write,
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let (mut count, mut cursor) = (0, Value::Null);
    loop {
        let body = fields([
            ("topic", Some(json!(topic))),
            ("state", Some(json!(state))),
            ("limit", Some(json!(PAGE))),
            ("cursor", Some(cursor)),
        ]);
        let page = client.call("/delay/task/list", &body).await?;
        let ids = page["tasks"].as_array().into_iter().flatten().filter_map(|task| task["task_id"].as_u64());
        let fresh: Vec<u64> = ids.filter(|id| seen.ids.insert(*id)).collect();
        let mut tasks = stream::iter(fresh.into_iter().map(|id| one(client, topic, id))).buffered(AT_A_TIME);
        while let Some(task) = tasks.next().await {
            if let Some(task) = task?.filter(|task| seen.is_new(task)) {
                writeln!(to, "{}", serde_json::to_string(&task)?)?;
                count += 1;
            }
            bar.inc(1);
        }
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            return Ok(count);
        }
    }
}

/// A task, unless it has ended or is forgotten by now.
async fn one(client: &Client, topic: &str, id: u64) -> anyhow::Result<Option<Exported>> {
    let body = fields([("topic", Some(json!(topic))), ("task_id", Some(json!(id)))]);
    let answer = client.post("/delay/task/get", &body).await?;
    if answer.dm_error() == 1004 {
        return Ok(None);
    }
    let task = answer.checked()?["task"].take();
    Exported::of(topic, task)
        .with_context(|| format!("the service says of task {id} what this version does not understand"))
}
