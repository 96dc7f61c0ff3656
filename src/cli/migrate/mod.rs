//! `delayd move`: moves the tasks of a running service to another one, while both continue.
//!
//! ```text
//! old: records, lend ─▶ new: adopt ─▶ old: moved
//!      (held back)          (kept)         (forgotten)
//! ```
//!
//! The command is a consumer of the old service: it leases tasks that are not due yet, delivers
//! them to the new one, and acknowledges them. `docs/adr/0011-move.md` shows what happens if it
//! stops at any point.
//!
//! # Invariants
//!
//! - The old service forgets a task only after the new one has confirmed that it is stored.
//! - Each call may be repeated. The next run continues after one that died, and takes over its
//!   leased tasks.
//! - Tasks that the new service refuses are returned to the old one and reported.
//! - A task that ends at the old service while it is moved (a cancel, a push-back by its key, a
//!   late success) ends at the new one as well.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, hash_map};
use std::time::Duration;

use anyhow::ensure;
use delayd_wire::{
    AtMost, Count, Ended, Entry, ErrorCode, Holder, MovedRequest, Page, Records, RecordsRequest,
    TaskId, TaskState, TopicListRequest, TopicRequest, TopicShown, Topics, UnixMillis, UpTo,
};
use indicatif::ProgressBar;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{GivenBy, ServerUrl, ServiceAddress};
use super::exported::{Exported, list_of};
use super::retry_client::RetryClient;
use super::secret::SecretArg;
use super::{Code, output, progress};
use crate::model::clock::Clock;
use crate::model::task::{Receipt, Topic};
use delayd_wire::Rate;
use delayd_wire::Span;

mod history;
pub(super) mod import_batch;
mod report;
pub(super) mod schedules;
mod settings;
mod withdrawal;

use import_batch::{ImportResult, ImportedRecord, adopt};
use report::Tallies;

/// The lease at the old service. A run that died should be restarted within it.
const HOLD: Span = Span::seconds(600);
/// The lease is extended if the adoption takes this long.
const RENEW: Duration = Duration::from_secs(150);
/// The pause between two passes.
const PAUSE: Duration = Duration::from_millis(250);
/// The names of the token options for the new service.
const TO_TOKEN: GivenBy = GivenBy { variable: "DELAYD_TO_TOKEN", option: "--to-token" };
/// Refusals that are reported one by one.
const TOLD: u64 = 20;
const ENDED: [TaskState; 3] = [TaskState::Delivered, TaskState::Cancelled, TaskState::Expired];

/// Move the tasks of a running service to another one, while both continue to serve.
///
/// Topics are set first. Then recurring schedules are moved, and waiting tasks, with their ids, due
/// times, attempts and contents; dead tasks are copied. This is repeated until nothing waits at the
/// old service. Tasks that are leased or about to fire stay there; if they are retried, they are
/// moved then. No task fires early and none is lost, and each fires at one of the two services. If
/// this command is killed, start it again: it continues.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd move --server http://10.0.0.5:7799 --to http://10.0.0.6:7799
  delayd move --to http://10.0.0.6:7799 --topic orders --rate 500/s --history
  delayd move --to http://10.0.0.6:7799 --topic heartbeats --linger 1m
  DELAYD_TOKEN=... DELAYD_TO_TOKEN=... delayd move --to http://10.0.0.6:7799 --json")]
pub(super) struct Args {
    /// The service to move to
    #[arg(long, value_name = "URL", env = "DELAYD_TO")]
    to: ServerUrl,
    /// The access token of the new service, if required (scope admin); as with --token, other users
    /// can see it here
    #[arg(long, value_name = "TOKEN", env = "DELAYD_TO_TOKEN", hide_env_values = true)]
    to_token: Option<SecretArg>,
    /// Only this topic; may be given several times
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<Topic>,
    /// Copy the history: delivered, cancelled and expired tasks
    #[arg(long)]
    history: bool,
    /// Leave tasks that fall due within this time, or have just fallen due, to the old service; a
    /// task with a key is moved until it is due
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    margin: Span,
    /// The maximum rate, such as 500/s
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Tasks per request
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        value_parser = clap::value_parser!(u16).range(1..=1_000)
    )]
    batch: u16,
    /// Give up if a service is unreachable, or no task can be moved, for this long
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    patience: Span,
    /// Continue until no task has waited at the old service for this long, while callers switch
    /// over
    #[arg(long, value_name = "DURATION")]
    linger: Option<Span>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServiceAddress,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    ensure!(args.server.url() != &args.to, "--to must be another service than --server");
    let old = RetryClient::new(args.server.client()?, args.patience.0);
    let new = RetryClient::new(
        ServiceAddress::at(args.to.clone(), args.to_token.clone(), TO_TOKEN)
            .trusting(&args.server)
            .client()?,
        args.patience.0,
    );
    let mut mover = Mover {
        bar: progress::counting("tasks moved"),
        began: Instant::now(),
        receipt: Receipt::random(),
        old,
        new,
        sent: 0,
        refused: HashMap::new(),
        listed: HashSet::new(),
        signs: 0,
        held: BTreeMap::new(),
        kept_schedules: HashSet::new(),
        told: 0,
        tallies: Tallies::default(),
        args,
    };
    let done = mover.all().await;
    mover.bar.finish_and_clear();
    let (moved, left) = mover.tallies.totals();
    if let Err(error) = done {
        let after = format!("after {}; start it again to go on", output::many(moved, "moved task"));
        return Err(error.context(after));
    }
    output::line(&if mover.args.json {
        mover.tallies.json().to_string()
    } else {
        mover.tallies.text()
    })?;
    if left > 0 {
        eprintln!(
            "delayd: {} left at the old service: leased, about to fire, or refused; \
             run it again later",
            output::many(left, "task")
        );
    }
    let kept = mover.kept_schedules.len();
    if kept > 0 {
        eprintln!("delayd: {} left at the old service", output::many(kept as u64, "schedule"));
    }
    Ok(if left == 0 && kept == 0 { Code::Done } else { Code::Failed })
}

struct Mover {
    args: Args,
    old: RetryClient,
    new: RetryClient,
    /// The lease for the moved tasks at the old service.
    receipt: Receipt,
    bar: ProgressBar,
    began: Instant,
    /// For the rate limit.
    sent: u64,
    /// Tasks that the new service refuses, with the due time and the attempts they had then. Only
    /// tasks with a key are offered again, because they may be superseded meanwhile.
    refused: HashMap<TaskId, Option<(UnixMillis, u32)>>,
    /// The tasks that wait at the old service in this pass.
    listed: HashSet<TaskId>,
    /// How many times callers were seen to use the old service: superseded or taken-over tasks, and
    /// refused tasks that were pushed back.
    signs: u64,
    /// By topic: tasks that the new service has stored, and that another consumer holds at the old
    /// one. If they succeed there, they must end at the new one.
    held: BTreeMap<Topic, Vec<TaskId>>,
    /// The recurring schedules that the new service refuses: topic and name.
    kept_schedules: HashSet<(String, String)>,
    told: u64,
    tallies: Tallies,
}

impl Mover {
    async fn all(&mut self) -> anyhow::Result<()> {
        let mut last_progress = Instant::now();
        let mut left_before = u64::MAX;
        let mut empty_since = None;
        let linger = self.args.linger.map_or(Duration::ZERO, |linger| linger.0);
        loop {
            let topics = self.topics().await?;
            let (moved_before, signs_before) = (self.tallies.totals().0, self.signs);
            self.listed.clear();
            for topic in &topics {
                self.settings(topic).await?;
                self.waiting(topic, TaskState::Leased).await?;
                // After the tasks that an earlier run had leased: one of them may be the occurrence
                // of a schedule. Before the others: an occurrence that waits is not moved, because
                // the new service plans it again.
                self.schedules(topic).await?;
                self.waiting(topic, TaskState::Scheduled).await?;
            }
            // A refused task that is gone by now does not count as left.
            self.refused.retain(|id, _| self.listed.contains(id));
            let mut left = 0;
            for topic in &topics {
                left += self.count_left(topic).await?;
            }
            // After the count, so that tasks that ended before it are included.
            for (topic, ids) in std::mem::take(&mut self.held) {
                self.follow(&topic, ids).await?;
            }
            if self.tallies.totals().0 > moved_before || left < left_before {
                last_progress = Instant::now();
            }
            left_before = left;
            // Callers still use the old service, so the quiet period starts again.
            empty_since = empty_since.filter(|_| self.signs == signs_before);
            let is_empty = left <= self.refused.len() as u64;
            let empty = is_empty.then(|| *empty_since.get_or_insert_with(Instant::now));
            empty_since = empty;
            let is_over = match empty {
                Some(since) => since.elapsed() >= linger,
                None => last_progress.elapsed() >= self.args.patience.0,
            };
            if is_over {
                for topic in &topics {
                    self.ended(topic).await?;
                }
                return Ok(());
            }
            sleep(PAUSE).await;
        }
    }

    /// The topics that were named, or all topics.
    async fn topics(&self) -> anyhow::Result<Vec<Topic>> {
        if !self.args.topics.is_empty() {
            return Ok(self.args.topics.clone());
        }
        let listed: Topics = self.old.call("/delay/topic/list", &TopicListRequest::ALL).await?;
        Ok(listed.topics.into_iter().map(|listed| listed.topic).collect())
    }

    /// One pass over the waiting tasks, or over those that are leased: some may be leased by an
    /// earlier run.
    async fn waiting(&mut self, topic: &Topic, state: TaskState) -> anyhow::Result<()> {
        let mut cursor = None;
        loop {
            let page = self.page(&self.old, topic, state, cursor).await?;
            page.tasks.iter().for_each(|task| self.see(task));
            let to_move = page.tasks.iter().filter(|task| self.is_to_move(task));
            let ids: Vec<TaskId> = to_move.map(|task| task.task_id).collect();
            for batch in ids.chunks(self.args.batch.into()) {
                self.batch(topic, batch).await?;
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Records that a task waits, and whether it was refused and pushed back since.
    fn see(&mut self, task: &Entry) {
        let &Entry { task_id, state, due_ms, attempts, .. } = task;
        self.listed.insert(task_id);
        if let Some(seen) = self.refused.get_mut(&task_id).filter(|_| state == TaskState::Scheduled)
        {
            // A failed attempt changes the due time as well.
            let was_pushed_back =
                |(before, attempts_before)| due_ms != before && attempts <= attempts_before;
            self.signs += u64::from(seen.replace((due_ms, attempts)).is_some_and(was_pushed_back));
        }
    }

    async fn page(
        &self,
        at: &RetryClient,
        topic: &Topic,
        state: TaskState,
        cursor: Option<String>,
    ) -> anyhow::Result<Page> {
        at.call("/delay/task/list", &list_of(topic, state, cursor)).await
    }

    /// Tasks that are about to fire stay. Tasks that are long overdue are moved: nothing may ever
    /// take them here. A task with a key is moved until it is due, because callers may push it back
    /// at the new service by now.
    fn is_to_move(&self, task: &Entry) -> bool {
        let has_key = task.key.is_some();
        let is_known = self.refused.contains_key(&task.task_id) && !has_key;
        let is_near = || {
            let (due, now) = (task.due_ms.0, Clock::system().now().0);
            let may_be_pushed_back = has_key && due > now;
            !may_be_pushed_back && u128::from(due.abs_diff(now)) < self.args.margin.0.as_millis()
        };
        match task.state {
            _ if is_known => false,
            TaskState::Scheduled => !is_near(),
            TaskState::Leased => task.lease == Some(Holder::Mover),
            _ => false,
        }
    }

    /// Moves these tasks. Tasks that were claimed, cancelled or forgotten meanwhile are not leased,
    /// and stay.
    async fn batch(&mut self, topic: &Topic, ids: &[TaskId]) -> anyhow::Result<()> {
        let mut rest = ids.to_vec();
        while !rest.is_empty() {
            let answer: Records =
                self.old.call("/delay/task/records", &self.lending(topic, &rest)).await?;
            rest = answer.rest;
            let records: Vec<Exported> =
                Exported::all(answer.records).filter(Exported::waits).collect();
            if !records.is_empty() {
                self.hand_over(topic, records).await?;
            }
        }
        Ok(())
    }

    fn lending(&self, topic: &Topic, ids: &[TaskId]) -> RecordsRequest {
        RecordsRequest {
            topic: topic.clone(),
            task_ids: AtMost(ids.to_vec()),
            lend: Some(UpTo(HOLD)),
            receipt: Some(self.receipt.clone()),
        }
    }

    /// Has leased tasks adopted, and ends them here.
    async fn hand_over(&mut self, topic: &Topic, records: Vec<Exported>) -> anyhow::Result<()> {
        let (cancelled, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|task| task.record.cancelling);
        self.withdraw(topic, cancelled).await?;
        if records.is_empty() {
            return Ok(());
        }
        let ids: Vec<TaskId> = records.iter().map(Exported::id).collect();
        let adopted = self.adopt(records, Some(topic)).await?;
        let (mut kept, mut superseded, mut back, mut is_own) =
            (Vec::new(), Vec::new(), Vec::new(), false);
        let mut known = 0;
        for (id, adopted) in ids.into_iter().zip(adopted) {
            match adopted {
                Ok(ImportedRecord::Superseded) => {
                    self.refused.remove(&id);
                    superseded.push(id);
                }
                Ok(adopted) => {
                    self.refused.remove(&id);
                    known += u64::from(adopted == ImportedRecord::Known);
                    kept.push(id);
                }
                Err(why) => {
                    is_own |= why.code == ErrorCode::OwnTask;
                    back.push(id);
                    if let hash_map::Entry::Vacant(first) = self.refused.entry(id) {
                        first.insert(None);
                        self.tell(topic, id, &why.sentence);
                        self.tallies.of(topic.as_str()).refused += 1;
                    }
                }
            }
        }
        self.end(topic, &back, true).await?;
        ensure!(!is_own, "the two services have the same store: there is nothing to move");
        let stale = self.end(topic, &kept, false).await?;
        // The new service has no copy. Tasks that are no longer leased have been handled by another
        // consumer. Returning a task also carries out its pending cancel.
        let changed = self.end(topic, &superseded, false).await?;
        self.end(topic, &changed, true).await?;
        let tally = self.tallies.of(topic.as_str());
        tally.moved += (kept.len() - stale.len()) as u64;
        tally.known += known;
        tally.superseded += superseded.len() as u64;
        self.signs += (kept.len() + superseded.len()) as u64;
        self.bar.inc((kept.len() - stale.len()) as u64);
        self.follow(topic, stale).await?;
        self.pace((kept.len() + superseded.len() + back.len()) as u64).await;
        Ok(())
    }

    /// Reports leased tasks as moved, or returns them if `back`. Returns those that are no longer
    /// leased.
    async fn end(&self, topic: &Topic, ids: &[TaskId], back: bool) -> anyhow::Result<Vec<TaskId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let body = MovedRequest {
            topic: topic.clone(),
            task_ids: AtMost(ids.to_vec()),
            receipt: self.receipt.clone(),
            back: back.then_some(true),
        };
        let ended: Ended = self.old.call("/delay/task/moved", &body).await?;
        Ok(ended.stale.into_iter().map(|stale| stale.task_id).collect())
    }

    /// Has records adopted, and returns for each whether it was known, or why it was refused.
    /// Extends the leases in `lent_in` if that takes long.
    async fn adopt(
        &self,
        records: Vec<Exported>,
        lent_in: Option<&Topic>,
    ) -> anyhow::Result<Vec<ImportResult>> {
        let held_since = Cell::new(Instant::now());
        let ids: Vec<TaskId> = records.iter().map(Exported::id).collect();
        let renew = async || {
            let Some(topic) = lent_in.filter(|_| held_since.get().elapsed() >= RENEW) else {
                return;
            };
            if self.old.try_once("/delay/task/records", &self.lending(topic, &ids)).await {
                held_since.set(Instant::now());
            }
        };
        adopt(&self.new, &records, renew).await
    }

    async fn count_left(&mut self, topic: &Topic) -> anyhow::Result<u64> {
        let shown: Option<TopicShown> = self.old.find("/delay/topic/get", &of_topic(topic)).await?;
        let Count { scheduled, leased, .. } = shown.map(|shown| shown.counts).unwrap_or_default();
        let left = scheduled + leased;
        self.tallies.of(topic.as_str()).left = left;
        Ok(left)
    }

    /// Waits until the rate allows this many more tasks.
    async fn pace(&mut self, more: u64) {
        self.sent += more;
        if let Some(rate) = self.args.rate {
            sleep_until(self.began + Duration::from_secs_f64(self.sent as f64 / rate.per_second()))
                .await;
        }
    }

    fn tell(&mut self, topic: &Topic, id: TaskId, why: &str) {
        self.say(&format!("task {id} of {topic} stays: {}", output::plain(why, 300)));
    }

    fn say(&mut self, what: &str) {
        self.told += 1;
        if self.told <= TOLD {
            self.bar.suspend(|| eprintln!("delayd: {what}"));
        }
        if self.told == TOLD {
            eprintln!("delayd: further refusals are only counted");
        }
    }
}

fn of_topic(topic: &Topic) -> TopicRequest {
    TopicRequest { topic: topic.clone() }
}
