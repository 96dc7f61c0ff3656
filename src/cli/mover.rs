//! `delayd move`: everything that a running service keeps, to another one, while both go on.
//!
//! ```text
//! old: records, lend ─▶ new: adopt ─▶ old: moved
//!      (held back)          (kept)         (forgotten)
//! ```
//!
//! The command is a consumer of the old service: it leases tasks that are not due yet, delivers
//! them to the new one, and acknowledges them. `docs/adr/0011-move.md` goes through every moment at
//! which it may die.
//!
//! # Invariants
//!
//! - A task is forgotten by the old service only after the new one has said that it is kept.
//! - Each call may be repeated. A run that died is gone on with by the next: it takes over what the
//!   other had in hand.
//! - What the new service will not have is given back to the old one, and said.
//! - What ends at the old service while it is on its way (a cancel, a push-back by its key, a late
//!   success) ends at the new one as well.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet, hash_map};
use std::time::Duration;

use anyhow::{Context, ensure};
use delayd_wire::{
    Count, Ended, Entry, ErrorCode, Holder, MovedRequest, Page, Records, RecordsRequest, TaskId,
    TaskState, TopicListRequest, TopicRequest, TopicShown, Topics, UnixMillis,
};
use indicatif::ProgressBar;
use serde::Serialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep, sleep_until};

use super::adopting::{Adopted, Adoption, adopt};
use super::client::{GivenBy, Server, ServerUrl};
use super::exported::{Exported, list_of};
use super::hidden::Hidden;
use super::moved::Tallies;
use super::patient::Patient;
use super::topic_settings::TopicSettings;
use super::{Code, out, progress};
use crate::model::clock::Clock;
use crate::model::task::{Receipt, Topic};
use delayd_wire::Rate;
use delayd_wire::Span;

mod history;
mod withdrawal;

/// How long the old service holds what is on its way. Whoever has died is to be noticed and started
/// again within it.
const HOLD: &str = "10m";
/// What is held is held for longer if its adoption takes this long.
const RENEW: Duration = Duration::from_secs(150);
/// Between two passes.
const PAUSE: Duration = Duration::from_millis(250);
/// By what the new service's token is given.
const TO_TOKEN: GivenBy = GivenBy { variable: "DELAYD_TO_TOKEN", option: "--to-token" };
/// Refusals that are told one by one.
const TOLD: u64 = 20;
const ENDED: [TaskState; 3] = [TaskState::Delivered, TaskState::Cancelled, TaskState::Expired];

/// Move everything that a running service keeps to another one, while both go on serving.
///
/// Topics come first, with their settings, then waiting tasks, which keep their ids, moments,
/// attempts and contents; dead tasks are copied. It goes on, pass after pass, until nothing waits
/// at the old service. What is about to fire, or in someone's hands, is left to that; if it comes
/// back for a retry, it is moved then. No task fires early, none is lost, and it fires at one of
/// the two. Should this command be killed, start it again: it goes on where the other was.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd move --server http://10.0.0.5:7799 --to http://10.0.0.6:7799
  delayd move --to http://10.0.0.6:7799 --topic orders --rate 500/s --history
  delayd move --to http://10.0.0.6:7799 --topic heartbeats --linger 1m
  DELAYD_TOKEN=... DELAYD_TO_TOKEN=... delayd move --to http://10.0.0.6:7799 --json")]
pub(super) struct Args {
    /// The service that gets them
    #[arg(long, value_name = "URL", env = "DELAYD_TO")]
    to: ServerUrl,
    /// The new service's access token, if it asks for one (scope admin); as --token, others can see
    /// it here
    #[arg(long, value_name = "TOKEN", env = "DELAYD_TO_TOKEN", hide_env_values = true)]
    to_token: Option<Hidden>,
    /// Only this topic; may be given several times
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<Topic>,
    /// Copy what has ended, too: delivered, cancelled and expired tasks
    #[arg(long)]
    history: bool,
    /// Leave what falls due within this time, or has just fallen due, to the old service; a task
    /// with a key is moved up to its moment
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    margin: Span,
    /// Move no more than this, such as 500/s
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Tasks that are moved at a time
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    batch: u16,
    /// Give up once a service has been away, or nothing could be moved, for this long
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    patience: Span,
    /// Go on until nothing has waited at the old service for this long, while callers change over
    #[arg(long, value_name = "DURATION")]
    linger: Option<Span>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Code> {
    ensure!(args.server.url() != &args.to, "--to must be another service than --server");
    let old = Patient::new(args.server.client()?, args.patience.0);
    let new = Patient::new(
        Server::at(args.to.clone(), args.to_token.clone(), TO_TOKEN).client()?,
        args.patience.0,
    );
    let mut mover = Mover {
        bar: progress::counting("tasks moved"),
        began: Instant::now(),
        receipt: Receipt::random().to_string(),
        old,
        new,
        sent: 0,
        refused: HashMap::new(),
        listed: HashSet::new(),
        signs: 0,
        held: BTreeMap::new(),
        told: 0,
        tallies: Tallies::default(),
        args,
    };
    let done = mover.all().await;
    mover.bar.finish_and_clear();
    let (moved, left) = mover.tallies.totals();
    if let Err(error) = done {
        let after = format!("after {}; start it again to go on", out::many(moved, "moved task"));
        return Err(error.context(after));
    }
    out::line(&if mover.args.json {
        mover.tallies.json().to_string()
    } else {
        mover.tallies.text()
    })?;
    if left > 0 {
        eprintln!(
            "delayd: {} left at the old service: in someone's hands, about to fire, or refused; run it again later",
            out::many(left, "task")
        );
    }
    Ok(if left == 0 { Code::Done } else { Code::Failed })
}

struct Mover {
    args: Args,
    old: Patient,
    new: Patient,
    /// What the old service lends by.
    receipt: String,
    bar: ProgressBar,
    began: Instant,
    /// For the rate.
    sent: u64,
    /// What the new service will not have, and the due moment and the attempts that it was last
    /// seen waiting with. The new service is asked again only for tasks with a key, which may be
    /// superseded meanwhile.
    refused: HashMap<TaskId, Option<(UnixMillis, u32)>>,
    /// What waits at the old service in this pass.
    listed: HashSet<TaskId>,
    /// How many signs there were that callers still use the old service: tasks that the new one has
    /// taken over or has had newer ones of, and refused tasks that were pushed back.
    signs: u64,
    /// By topic: what the new service keeps, and somebody else holds at the old one. If it succeeds
    /// there, it has to end at the new one.
    held: BTreeMap<String, Vec<TaskId>>,
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
                self.waiting(topic).await?;
            }
            // What was refused and is gone by now hides nothing that is left.
            self.refused.retain(|id, _| self.listed.contains(id));
            let mut left = 0;
            for topic in &topics {
                left += self.count_left(topic).await?;
            }
            // After the count: what has ended by then is seen to here.
            for (topic, ids) in std::mem::take(&mut self.held) {
                self.follow(&topic, ids).await?;
            }
            if self.tallies.totals().0 > moved_before || left < left_before {
                last_progress = Instant::now();
            }
            left_before = left;
            // Callers still come here: the time without any begins again.
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

    /// Those that were named, or all that there are now.
    async fn topics(&self) -> anyhow::Result<Vec<String>> {
        if !self.args.topics.is_empty() {
            return Ok(self.args.topics.iter().map(ToString::to_string).collect());
        }
        let listed: Topics = self.old.call("/delay/topic/list", &TopicListRequest {}).await?;
        Ok(listed.topics.into_iter().map(|listed| listed.topic.0).collect())
    }

    /// Sets the topic at the new service, before any of its tasks comes.
    async fn settings(&mut self, topic: &str) -> anyhow::Result<()> {
        if self.tallies.knows(topic) {
            return Ok(());
        }
        let shown: TopicShown<_> = self.old.call("/delay/topic/get", &of_topic(topic)).await?;
        let settings = TopicSettings::from(shown);
        let there = settings
            .create_at(&self.new)
            .await
            .with_context(|| format!("topic {topic} at the new service"))?;
        for (is_other, what) in [
            (
                there.shards != settings.shards,
                "another number of shards: tasks with a key or an on_dead will be refused",
            ),
            (
                there.paused != settings.paused,
                "another pause: what is held back here may be delivered there, or the other way round",
            ),
        ] {
            if is_other {
                eprintln!("delayd: topic {topic} was at the new service before, and has {what}");
            }
        }
        self.tallies.of(topic);
        Ok(())
    }

    /// One pass over what waits, and what a run before held.
    async fn waiting(&mut self, topic: &str) -> anyhow::Result<()> {
        for state in [TaskState::Leased, TaskState::Scheduled] {
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
                    break;
                }
            }
        }
        Ok(())
    }

    /// Notes that a task is there, and whether it was refused and has been pushed back since.
    fn see(&mut self, task: &Entry) {
        let &Entry { task_id, state, due_ms, attempts, .. } = task;
        self.listed.insert(task_id);
        if let Some(seen) = self.refused.get_mut(&task_id).filter(|_| state == TaskState::Scheduled)
        {
            // An attempt that failed moves a task as well.
            let was_pushed_back =
                |(before, attempts_before)| due_ms != before && attempts <= attempts_before;
            self.signs += u64::from(seen.replace((due_ms, attempts)).is_some_and(was_pushed_back));
        }
    }

    async fn page(
        &self,
        at: &Patient,
        topic: &str,
        state: TaskState,
        cursor: Option<String>,
    ) -> anyhow::Result<Page> {
        at.call("/delay/task/list", &list_of(topic, state, cursor)).await
    }

    /// What is about to fire is left alone; what should have fired and did not waits for something
    /// that may never come. A task with a key is
    /// moved up to its moment: those who push it back may do so at the new service by now.
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

    /// Moves these tasks. Those that were claimed, cancelled or forgotten meanwhile are not lent,
    /// and left.
    async fn batch(&mut self, topic: &str, ids: &[TaskId]) -> anyhow::Result<()> {
        let mut rest = ids.to_vec();
        while !rest.is_empty() {
            let answer: Records<Exported> =
                self.old.call("/delay/task/records", &self.lending(topic, &rest)).await?;
            rest = answer.rest;
            let records: Vec<Exported> =
                answer.records.into_iter().filter(Exported::waits).collect();
            if !records.is_empty() {
                self.hand_over(topic, records).await?;
            }
        }
        Ok(())
    }

    fn lending<'a>(&'a self, topic: &'a str, ids: &'a [TaskId]) -> impl Serialize + 'a {
        RecordsRequest {
            topic: Some(topic),
            task_ids: Some(ids),
            lend: Some(HOLD),
            receipt: Some(&self.receipt),
        }
    }

    /// Has lent tasks adopted, and ends them here.
    async fn hand_over(&mut self, topic: &str, records: Vec<Exported>) -> anyhow::Result<()> {
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
                Ok(Adopted::Superseded) => {
                    self.refused.remove(&id);
                    superseded.push(id);
                }
                Ok(adopted) => {
                    self.refused.remove(&id);
                    known += u64::from(adopted == Adopted::Known);
                    kept.push(id);
                }
                Err(why) => {
                    is_own |= why.code == ErrorCode::OwnTask;
                    back.push(id);
                    if let hash_map::Entry::Vacant(first) = self.refused.entry(id) {
                        first.insert(None);
                        self.tell(topic, id, &why.sentence);
                        self.tallies.of(topic).refused += 1;
                    }
                }
            }
        }
        self.end(topic, &back, true).await?;
        ensure!(!is_own, "the two services have the same store: there is nothing to be moved");
        let stale = self.end(topic, &kept, false).await?;
        // No copy is there. What is not held any more has been seen to by somebody else; a pending
        // cancel is carried out by the return.
        let changed = self.end(topic, &superseded, false).await?;
        self.end(topic, &changed, true).await?;
        let tally = self.tallies.of(topic);
        tally.moved += (kept.len() - stale.len()) as u64;
        tally.known += known;
        tally.superseded += superseded.len() as u64;
        self.signs += (kept.len() + superseded.len()) as u64;
        self.bar.inc((kept.len() - stale.len()) as u64);
        self.follow(topic, stale).await?;
        self.pace((kept.len() + superseded.len() + back.len()) as u64).await;
        Ok(())
    }

    /// Says that lent tasks are moved, or gives them `back`; answers those that are not held any
    /// more.
    async fn end(&self, topic: &str, ids: &[TaskId], back: bool) -> anyhow::Result<Vec<TaskId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let receipt = Some(&self.receipt);
        let body = MovedRequest {
            topic: Some(topic),
            task_ids: Some(ids),
            receipt,
            back: back.then_some(true),
        };
        let ended: Ended = self.old.call("/delay/task/moved", &body).await?;
        Ok(ended.stale.into_iter().map(|stale| stale.task_id).collect())
    }

    /// Has records adopted; answers for each whether it was there already, or why not. Those of
    /// `lent_in` are held for longer if that takes long.
    async fn adopt(
        &self,
        records: Vec<Exported>,
        lent_in: Option<&str>,
    ) -> anyhow::Result<Vec<Adoption>> {
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

    async fn count_left(&mut self, topic: &str) -> anyhow::Result<u64> {
        let shown: Option<TopicShown<IgnoredAny>> =
            self.old.find("/delay/topic/get", &of_topic(topic)).await?;
        let Count { scheduled, leased, .. } = shown.map(|shown| shown.counts).unwrap_or_default();
        let left = scheduled + leased;
        self.tallies.of(topic).left = left;
        Ok(left)
    }

    /// Waits until so many more are not too many.
    async fn pace(&mut self, more: u64) {
        self.sent += more;
        if let Some(rate) = self.args.rate {
            sleep_until(self.began + Duration::from_secs_f64(self.sent as f64 / rate.per_second()))
                .await;
        }
    }

    fn tell(&mut self, topic: &str, id: TaskId, why: &str) {
        self.say(&format!("task {id} of {topic} stays: {}", out::plain(why, 300)));
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

fn of_topic(topic: &str) -> TopicRequest<&str> {
    TopicRequest { topic: Some(topic) }
}
