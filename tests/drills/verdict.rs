//! The end of a drill: the state of each task, and each callback compared with its add.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::Value;

use crate::account::{Account, Added, Cause, Fault};
use crate::program::Program;
use crate::receiver::Seen;

/// How long the last tasks may take to be delivered after the faults.
const PATIENCE: Duration = Duration::from_secs(90);

/// The state in which every task must end.
const DELIVERED: &str = "delivered";
/// The answer for a task that the store does not know.
const UNKNOWN: &str = "answer 404";

/// How many requests run at a time.
const ASKERS: usize = 16;

/// The result of all tasks.
#[derive(Debug, Default)]
pub struct Verdict {
    pub accepted: usize,
    pub delivered: usize,
    pub lost: Vec<String>,
    /// The numbers of the lost tasks.
    pub lost_numbers: Vec<u64>,
    /// How many delivered tasks the store no longer knows.
    pub forgotten: usize,
    pub early: Vec<String>,
    pub unexplained: Vec<String>,
    explained: BTreeMap<Cause, usize>,
    /// The time from a crash to the next call of a task that was being called, per lease that
    /// expired meanwhile.
    pub redelivery_ms: Option<i64>,
    /// The lateness of each task's first callback, sorted.
    lateness: Vec<i64>,
}

impl Verdict {
    /// Waits until every confirmed task is delivered, and judges the callbacks. Every answer of the
    /// receivers in `seen` was a success, so a second callback is a duplicate.
    pub async fn of(account: &Account, delayd: &Program, seen: impl Fn() -> Vec<Seen>) -> Self {
        Self::reached(account, delayd, seen, |state| state == DELIVERED).await
    }

    /// Like [`Verdict::of`], on a primary that may know less than the one before it. A task that it
    /// does not know is lost, unless it was called before.
    pub async fn after_failover(
        account: &Account,
        delayd: &Program,
        seen: impl Fn() -> Vec<Seen>,
    ) -> Self {
        Self::reached(account, delayd, seen, |state| state == DELIVERED || state == UNKNOWN).await
    }

    async fn reached(
        account: &Account,
        delayd: &Program,
        seen: impl Fn() -> Vec<Seen>,
        is_final: impl Fn(&str) -> bool,
    ) -> Self {
        let states = final_states(&account.adds(), delayd, &is_final).await;
        Self::judged(account, &states, seen(), is_final(UNKNOWN))
    }

    /// Like [`Verdict::of`], for too many tasks to ask for each: a task whose callback was answered
    /// with success counts as delivered.
    pub async fn by_calls_alone(account: &Account, seen: impl Fn() -> Vec<Seen>) -> Self {
        let confirmed: Vec<u64> =
            account.adds().values().filter_map(|added| Some(added.confirmed?.0)).collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let called: BTreeSet<u64> = seen().iter().map(|call| call.id).collect();
            if confirmed.iter().all(|id| called.contains(id)) || Instant::now() > deadline {
                let states = called.into_iter().map(|id| (id, DELIVERED.to_owned())).collect();
                return Self::judged(account, &states, seen(), false);
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn judged(
        account: &Account,
        states: &BTreeMap<u64, String>,
        seen: Vec<Seen>,
        may_be_forgotten: bool,
    ) -> Self {
        let adds = account.adds();
        let mut calls: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
        for mut call in seen {
            call.arrived_ms = account.by_the_store(call.arrived_ms);
            let Some(n) = number(&call.body) else { continue };
            calls.entry(n).or_default().push(call);
        }
        let mut verdict = Self::default();
        let faults = account.faults();
        for (&n, added) in &adds {
            let mut came = calls.remove(&n).unwrap_or_default();
            came.sort_by_key(|call| call.arrived_ms);
            if let Some((id, due_ms)) = added.confirmed {
                verdict.accepted += 1;
                let state = states.get(&id).map_or("never asked for", String::as_str);
                verdict.judge_confirmed(n, (id, due_ms), state, &came, may_be_forgotten);
            }
            verdict.judge_calls(n, added, &came, &faults);
        }
        verdict.unexplained.extend(calls.keys().map(|n| format!("number {n} was never added")));
        verdict.lateness.sort_unstable();
        verdict
    }

    fn judge_confirmed(
        &mut self,
        n: u64,
        (id, due_ms): (u64, i64),
        state: &str,
        came: &[Seen],
        may_be_forgotten: bool,
    ) {
        let called = came.iter().any(|call| call.id == id);
        match state {
            DELIVERED if called => self.delivered += 1,
            UNKNOWN if called && may_be_forgotten => {
                self.delivered += 1;
                self.forgotten += 1;
            }
            state => {
                self.lost_numbers.push(n);
                let was_called = if called { "called" } else { "never called" };
                self.lost.push(format!("number {n}, task {id}: {state}, {was_called}"));
            }
        }
        if let Some(call) = came.iter().find(|call| call.id == id && call.due_ms != due_ms) {
            self.unexplained.push(format!(
                "task {id} was to be due at {due_ms} and came as due at {}",
                call.due_ms
            ));
        }
    }

    fn judge_calls(&mut self, n: u64, added: &Added, came: &[Seen], faults: &[Fault]) {
        self.lateness.extend(came.first().map(Seen::lateness_ms));
        for call in came.iter().filter(|call| call.arrived_ms < call.due_ms) {
            self.early.push(format!("number {n}, task {}: {} ms", call.id, -call.lateness_ms()));
        }
        let ids: BTreeSet<u64> = came.iter().map(|call| call.id).collect();
        for _ in ids.iter().skip(1) {
            if added.tries > 1 {
                self.count(Cause::AddRepeated);
            } else {
                self.unexplained
                    .push(format!("number {n} was added once and came as tasks {ids:?}"));
            }
        }
        for id in ids {
            let of_one: Vec<&Seen> = came.iter().filter(|call| call.id == id).collect();
            for pair in of_one.windows(2) {
                self.judge_repeat(pair[0], pair[1], faults);
            }
        }
    }

    fn judge_repeat(&mut self, first: &Seen, second: &Seen, faults: &[Fault]) {
        let between = faults
            .iter()
            .find(|fault| first.arrived_ms <= fault.until_ms && fault.from_ms <= second.arrived_ms);
        let Some(fault) = between else {
            let apart = second.arrived_ms - first.arrived_ms;
            let (id, one, two) = (second.id, first.attempt, second.attempt);
            self.unexplained.push(format!(
                "task {id}: attempts {one} and {two}, {apart} ms apart, and no fault between"
            ));
            return;
        };
        self.count(fault.cause);
        if fault.cause == Cause::Crash {
            // A claim whose process died before the call has left only its attempt.
            let leases = i64::from(second.attempt.saturating_sub(first.attempt).max(1));
            let took = (second.arrived_ms - fault.from_ms.max(first.arrived_ms)) / leases;
            self.redelivery_ms = self.redelivery_ms.max(Some(took));
        }
    }

    fn count(&mut self, cause: Cause) {
        *self.explained.entry(cause).or_default() += 1;
    }

    pub fn duplicates(&self) -> usize {
        self.explained.values().sum::<usize>() + self.unexplained.len()
    }

    /// The duplicates by their causes, such as "3 crash, 1 lost reply".
    pub fn causes(&self) -> String {
        let mut parts: Vec<String> = self
            .explained
            .iter()
            .map(|(cause, count)| format!("{count} {}", cause.name()))
            .collect();
        if !self.unexplained.is_empty() {
            parts.push(format!("{} without a cause", self.unexplained.len()));
        }
        if parts.is_empty() { "0".to_owned() } else { parts.join(", ") }
    }

    /// A percentile of the lateness of first callbacks.
    pub fn lateness_ms(&self, percent: usize) -> i64 {
        percentile(&self.lateness, percent)
    }
}

/// A percentile of sorted figures; 0 if there are none.
pub fn percentile(sorted: &[i64], percent: usize) -> i64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((sorted.len() * percent / 100).min(last)).copied().unwrap_or_default()
}

/// The number in a task's content.
fn number(body: &str) -> Option<u64> {
    serde_json::from_str::<Value>(body).ok()?["n"].as_u64()
}

/// Asks for each confirmed task until its state is final or the time is over. Returns the states by
/// id.
async fn final_states(
    adds: &BTreeMap<u64, Added>,
    delayd: &Program,
    is_final: impl Fn(&str) -> bool,
) -> BTreeMap<u64, String> {
    let mut states = BTreeMap::new();
    let mut open: Vec<(&str, u64)> = adds
        .values()
        .filter_map(|added| Some((added.topic.as_str(), added.confirmed?.0)))
        .collect();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answers: Vec<(u64, String)> = futures_util::stream::iter(open.iter().copied())
            .map(|(topic, id)| async move { (id, state(delayd, topic, id).await) })
            .buffer_unordered(ASKERS)
            .collect()
            .await;
        states.extend(answers);
        open.retain(|(_, id)| !is_final(&states[id]));
        if open.is_empty() || Instant::now() > deadline {
            return states;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn state(delayd: &Program, topic: &str, id: u64) -> String {
    let question = serde_json::json!({"topic": topic, "task_id": id}).to_string();
    let answer = delayd.post("/delay/task/get", question).await;
    let state = answer.body["task"]["state"].as_str();
    state.map_or_else(|| format!("answer {}", answer.status), str::to_owned)
}
