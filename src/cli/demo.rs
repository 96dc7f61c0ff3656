//! `delayd demo`: a complete run in one process, without any installation.
//!
//! It starts a service with an embedded store in a temporary folder, and a receiver. It adds a few
//! tasks over HTTP. Some are due at whole seconds, as most real tasks are, and some between.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use delayd_wire::Stored;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};

use super::client::{self, ServerUrl, Trust};
use super::receiver::{Params, ReceivedCall, Receiver};
use super::signals::EndSignals;
use super::{Code, output, start_logs, time};
use crate::app::App;
use crate::model::clock::{Clock, UnixMillis};
use crate::model::version::VERSION;
use crate::settings::{ServerTls, Settings, StoreKind};

const SERVICE: &str = "demo.receiver";
/// How long to wait for tasks after the last due time.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long to wait for the answer to an add.
const ADD_TIMEOUT: Duration = Duration::from_secs(10);

/// Show tasks arriving on time: starts a service with an embedded store in a temporary folder, a
/// receiver, and adds a few tasks that are due within seconds.
///
/// Prints each callback with its lateness, then a summary. The exit code is 0 if all tasks arrived
/// and none was early, else 1. All files are removed at the end.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd demo
  delayd demo --tasks 100")]
pub(super) struct Args {
    /// How many tasks to add
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    tasks: u16,
}

pub(super) async fn run(args: Args, mut settings: Settings) -> anyhow::Result<Code> {
    // INFO lines would appear between the callbacks.
    start_logs(&settings, (settings.log.level == "info").then_some("warn"))?;
    let mut signals = EndSignals::listen().context("cannot listen for signals")?;
    let folder = tempfile::Builder::new()
        .prefix("delayd-demo-")
        .tempdir()
        .context("cannot make a temporary folder")?;
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let params = Params::default();
    let (receiver, arrivals) =
        Receiver::bind(any_port, params).await.context("cannot listen on 127.0.0.1")?;
    adapt(&mut settings, &folder, receiver.local_addr(), any_port)?;
    let (stop_receiver, receiver_stopped) = oneshot::channel::<()>();
    let receiving = tokio::spawn(receiver.run(async { drop(receiver_stopped.await) }));

    let app = App::start(settings).await?;
    let server: ServerUrl =
        format!("http://{}", app.local_addr()).parse().map_err(|e| anyhow!("{e}"))?;
    output::line(&format!("delayd {} on {server}, a receiver, {} tasks", VERSION, args.tasks))?;
    let (stop_app, app_stopped) = oneshot::channel::<()>();
    let mut serving = tokio::spawn(app.run(async { drop(app_stopped.await) }));

    let shown = tokio::select! {
        shown = show(&server, args.tasks, arrivals) => shown,
        ended = &mut serving => {
            ended.context("the service failed")??;
            return Err(anyhow!("the service ended by itself"));
        }
        signal = signals.next() => Err(anyhow!("interrupted by {signal}")),
    };
    drop(stop_app);
    serving.await.context("the service failed")??;
    drop(stop_receiver);
    receiving.await.context("the receiver failed")??;
    let seen = shown?;
    output::line(&seen.summary())?;
    Ok(if seen.is_good() { Code::Done } else { Code::Failed })
}

/// Makes the settings use only this process.
fn adapt(
    settings: &mut Settings,
    folder: &TempDir,
    receiver: SocketAddr,
    bind: SocketAddr,
) -> anyhow::Result<()> {
    settings.http.bind = bind;
    settings.http.tls = ServerTls::default();
    settings.http.auth.tokens.clear();
    settings.http.auth.anonymous = false;
    settings.store.kind = StoreKind::Embedded;
    settings.store.embedded.path = folder.path().join("demo.db");
    settings.worker.enabled = true;
    let service = serde_json::from_value(json!({ "endpoints": [format!("http://{receiver}")] }));
    settings.services.insert(SERVICE.into(), service.context("the receiver's address")?);
    Ok(())
}

/// Adds the tasks, then prints each callback until all have arrived or the time is up.
async fn show(
    server: &ServerUrl,
    tasks: u16,
    mut arrivals: mpsc::Receiver<ReceivedCall>,
) -> anyhow::Result<DemoSeen> {
    let clock = Clock::system();
    let http = client::http(ADD_TIMEOUT, &Trust::System)?;
    let mut seen = DemoSeen::default();
    for number in 0..tasks {
        let answer =
            client::post(&http, server, None, "/delay/task/add", &task(number, clock.now()))
                .await?;
        let stored: Stored = answer.checked()?;
        seen.due.insert(stored.task_id.to_string(), UnixMillis(stored.due_ms.0));
    }
    let last = seen.due.values().copied().max().unwrap_or_default();
    let patience = tokio::time::sleep(last.since(clock.now()) + PATIENCE);
    tokio::pin!(patience);
    while !seen.is_complete() {
        let callback = tokio::select! {
            callback = arrivals.recv() => callback,
            () = &mut patience => None,
        };
        let Some(callback) = callback else { break };
        if let Some(line) = seen.note(&callback) {
            output::line(&line)?;
        }
    }
    Ok(seen)
}

/// The body of task `number`. Every other one is due at a whole second, all within about five
/// seconds.
fn task(number: u16, now: UnixMillis) -> Map<String, Value> {
    let content = json!({ "sn": SERVICE, "url": "/demo", "number": number + 1 });
    let mut task =
        Map::from_iter([("topic".to_owned(), json!("demo")), ("content".to_owned(), content)]);
    let number = i64::from(number);
    if number % 2 == 0 {
        task.insert("timing_moment".into(), json!(now.0 / 1000 + 2 + number / 2 % 3));
    } else {
        task.insert("delay".into(), json!(format!("{}ms", 1200 + number * 377 % 3000)));
    }
    task
}

/// The tasks that were added, and the callbacks that arrived.
#[derive(Debug, Default)]
struct DemoSeen {
    due: HashMap<String, UnixMillis>,
    /// The lateness of each first arrival, in ms. Negative is early.
    late: HashMap<String, i64>,
    repeats: usize,
}

impl DemoSeen {
    /// Counts a callback and returns a line about it, or `None` if its task is unknown.
    fn note(&mut self, callback: &ReceivedCall) -> Option<String> {
        let due = *self.due.get(&callback.task_id)?;
        if self.late.insert(callback.task_id.clone(), callback.at.0 - due.0).is_some() {
            self.repeats += 1;
        }
        let (at, due_at) = (time::rfc3339(callback.at), time::rfc3339(due));
        Some(format!(
            "{at}  task {}  due {due_at}  {}",
            callback.task_id,
            time::lateness(due, callback.at)
        ))
    }

    fn is_complete(&self) -> bool {
        self.late.len() == self.due.len()
    }

    fn early(&self) -> usize {
        self.late.values().filter(|late| **late < 0).count()
    }

    fn is_good(&self) -> bool {
        self.is_complete() && self.early() == 0
    }

    fn summary(&self) -> String {
        let arrived = if self.is_complete() {
            "all arrived".into()
        } else {
            format!("{} arrived", self.late.len())
        };
        let early = match self.early() {
            0 => "none early".into(),
            early => format!("{early} EARLY"),
        };
        let repeats =
            if self.repeats > 0 { format!(", {} came twice", self.repeats) } else { String::new() };
        let latest = self
            .late
            .values()
            .max()
            .map_or_else(String::new, |late| format!(", latest {late:+} ms"));
        format!("{} tasks, {arrived}, {early}{repeats}{latest}", self.due.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(lates: &[Option<i64>]) -> DemoSeen {
        let mut seen = DemoSeen::default();
        for (number, late) in lates.iter().enumerate() {
            seen.due.insert(number.to_string(), UnixMillis(1000));
            seen.late.extend(late.map(|late| (number.to_string(), late)));
        }
        seen
    }

    #[test]
    fn the_summary_says_what_came() {
        let check = |lates: &[Option<i64>], is_good: bool, expected: &str| {
            assert_eq!(seen(lates).summary(), expected);
            assert_eq!(seen(lates).is_good(), is_good, "{expected}");
        };
        check(&[Some(0), Some(2)], true, "2 tasks, all arrived, none early, latest +2 ms");
        check(&[Some(-1), Some(2)], false, "2 tasks, all arrived, 1 EARLY, latest +2 ms");
        check(&[Some(1), None], false, "2 tasks, 1 arrived, none early, latest +1 ms");
        check(&[None], false, "1 tasks, 0 arrived, none early");
    }

    #[test]
    fn tasks_are_due_between_one_and_five_seconds_ahead() {
        let now = UnixMillis(1_795_234_567_999);
        for number in 0..1000 {
            let task = task(number, now);
            let ahead = match (task.get("timing_moment"), task.get("delay")) {
                (Some(moment), None) => moment.as_i64().unwrap() * 1000 - now.0,
                (None, Some(delay)) => {
                    delay.as_str().unwrap().strip_suffix("ms").unwrap().parse().unwrap()
                }
                _ => panic!("a task has one due moment"),
            };
            assert!((1000..5000).contains(&ahead), "{ahead}");
        }
    }
}
