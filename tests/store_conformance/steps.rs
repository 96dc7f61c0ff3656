//! What is made up for [`crate::machine`]: steps, and what they come to in the model's world.

use std::time::Duration;

use delayd::clock::UnixMillis;
use delayd::store::{
    Added, Cancelled, Claim, Grant, Holder, MAX_LEASE, Moment, NewContent, NewTask, Rescheduled, Settle, Settled,
    Transition, Want,
};
use delayd::task::{Destination, Lane, Options, Receipt, State, TaskId};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::bench::{START, ms, receipt, topic_of};
use crate::model::Model;

const TOPICS: [&str; 2] = ["orders", "others"];
const DESTINATIONS: [&str; 3] = ["message.call", "other.server", "@pull"];

pub(crate) fn lanes() -> Vec<Lane> {
    TOPICS.iter().map(|name| Lane { topic: name.parse().unwrap(), shard: 0 }).collect()
}

fn destination(which: usize) -> Destination {
    DESTINATIONS[which].parse().unwrap()
}

/// One of the tasks added so far, if there is one; rarely looked for in the wrong lane.
#[derive(Clone, Debug)]
pub(crate) struct TaskPick {
    task: Index,
    is_lost: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ReceiptPick {
    /// One that the task remembers.
    Own(Index),
    /// One that some task was claimed with.
    Any(Index),
    MadeUp(&'static str),
}

/// A call with its tasks and receipts still to be picked.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add { topic: usize, tasks: Vec<(usize, Moment)> },
    Claim { lane: usize, wants: Vec<(usize, usize)>, lease: Duration, is_worker: bool, more: bool, skip: usize },
    Settle(Vec<(TaskPick, ReceiptPick, Transition)>),
    Extend(TaskPick, ReceiptPick, Duration),
    Cancel(TaskPick),
    Reschedule(TaskPick, Moment, Option<usize>),
    Replay(Vec<TaskPick>),
    Purge { lane: usize, state: State, age: Duration, limit: usize },
    Advance(Duration),
    SetBack(Duration),
}

fn task_pick() -> impl Strategy<Value = TaskPick> {
    (any::<Index>(), prop::bool::weighted(0.03)).prop_map(|(task, is_lost)| TaskPick { task, is_lost })
}

fn receipt_pick() -> impl Strategy<Value = ReceiptPick> {
    prop_oneof![
        8 => any::<Index>().prop_map(ReceiptPick::Own),
        2 => any::<Index>().prop_map(ReceiptPick::Any),
        1 => prop::sample::select(vec!["stranger", "-"]).prop_map(ReceiptPick::MadeUp),
    ]
}

/// Few different spans, so that moments meet.
fn span() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![0, 1, 999, 1_000, 5_000, 30_000]).prop_map(ms)
}

fn lease() -> impl Strategy<Value = Duration> {
    prop_oneof![4 => prop::sample::select(vec![1, 1_000, 30_000]).prop_map(ms), 1 => Just(MAX_LEASE)]
}

fn moment() -> impl Strategy<Value = Moment> {
    let at = (-5_i64..50).prop_map(|seconds| Moment::At(UnixMillis(START.0 + seconds * 1_000)));
    prop_oneof![3 => span().prop_map(Moment::After), 1 => at]
}

fn transition() -> impl Strategy<Value = Transition> {
    prop_oneof![
        2 => "[a-z -]{0,8}".prop_map(|outcome| Transition::Delivered { outcome }),
        4 => (span(), "[a-z!]{0,8}").prop_map(|(after, outcome)| Transition::Retry { after, outcome }),
        2 => "[a-z\n]{0,8}".prop_map(|outcome| Transition::Dead { outcome }),
        2 => Just(Transition::Release),
        2 => lease().prop_map(|lease| Transition::Keep { lease }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let lane = || prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let add = (lane(), prop::collection::vec((0..3_usize, moment()), 1..4));
    let wants = prop::sample::subsequence(vec![0_usize, 1, 2], 0..=3)
        .prop_flat_map(|named| named.into_iter().map(|which| (Just(which), 1..4_usize)).collect::<Vec<_>>());
    let claim = (lane(), wants, lease(), any::<bool>(), any::<bool>(), 0..3_usize);
    let settle = prop::collection::vec((task_pick(), receipt_pick(), transition()), 1..4);
    let purge = (lane(), prop::sample::select(State::ALL.to_vec()), span(), 0..4_usize);
    let back = prop::sample::select(vec![1_000, 40_000, 13 * 3_600_000, 48 * 3_600_000]).prop_map(ms);
    prop_oneof![
        4 => add.prop_map(|(topic, tasks)| Step::Add { topic, tasks }),
        7 => claim.prop_map(|(lane, wants, lease, is_worker, more, skip)| {
            Step::Claim { lane, wants, lease, is_worker, more, skip }
        }),
        5 => settle.prop_map(Step::Settle),
        2 => (task_pick(), receipt_pick(), lease()).prop_map(|(task, by, lease)| Step::Extend(task, by, lease)),
        2 => task_pick().prop_map(Step::Cancel),
        2 => (task_pick(), moment(), prop::option::of(0..3_usize))
            .prop_map(|(task, moment, content)| Step::Reschedule(task, moment, content)),
        1 => prop::collection::vec(task_pick(), 0..4).prop_map(Step::Replay),
        1 => purge.prop_map(|(lane, state, age, limit)| Step::Purge { lane, state, age, limit }),
        6 => span().prop_map(Step::Advance),
        1 => back.prop_map(Step::SetBack),
    ]
}

/// A call, in the model's ids and receipts.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Nothing,
    Add(Vec<NewTask>),
    Claim(Claim),
    Settle(Vec<Settle>),
    Extend(Lane, TaskId, Receipt, Duration),
    Cancel(Lane, TaskId),
    Reschedule(Lane, TaskId, Moment, Option<NewContent>),
    Replay(Lane, Vec<TaskId>),
    Purge(Lane, State, UnixMillis, usize),
    SetClock(UnixMillis),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Nothing,
    Added(Vec<Added>),
    Granted(Grant),
    Settled(Vec<Settled>),
    Cancelled(Cancelled),
    Rescheduled(Rescheduled),
    Count(usize),
}

/// The model, what can be picked from, and the last call with the model's answer.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) tasks: Vec<(Lane, TaskId)>,
    receipts: Vec<Receipt>,
    pub(crate) call: Call,
    pub(crate) answer: Answer,
}

impl World {
    /// Before anything was done.
    pub(crate) fn new() -> Self {
        Self {
            model: Model::new(START),
            tasks: Vec::new(),
            receipts: Vec::new(),
            call: Call::Nothing,
            answer: Answer::Nothing,
        }
    }

    /// Resolves a step and has the model answer it.
    pub(crate) fn take(mut self, step: &Step) -> Self {
        self.call = self.resolve(step);
        self.answer = self.answer();
        self
    }

    fn task(&self, pick: &TaskPick) -> (Lane, TaskId) {
        if self.tasks.is_empty() {
            return (lanes().remove(0), TaskId(1));
        }
        let (lane, id) = pick.task.get(&self.tasks).clone();
        let lane = if pick.is_lost { lanes().into_iter().find(|other| *other != lane).unwrap() } else { lane };
        (lane, id)
    }

    fn receipt(&self, pick: &ReceiptPick, id: TaskId) -> Receipt {
        let own = self.model.receipts_of(id);
        match pick {
            ReceiptPick::Own(which) if !own.is_empty() => which.get(&own).clone(),
            ReceiptPick::Any(which) if !self.receipts.is_empty() => which.get(&self.receipts).clone(),
            ReceiptPick::MadeUp(text) => receipt(text),
            _ => receipt("stranger"),
        }
    }

    fn resolve(&self, step: &Step) -> Call {
        match step {
            Step::Add { topic, tasks } => {
                let topic = topic_of(TOPICS[*topic], 1);
                let task = |(i, (which, moment)): (usize, &(usize, Moment))| NewTask {
                    topic: topic.clone(),
                    destination: destination(*which),
                    moment: *moment,
                    options: Options { max_attempts: (i == 1).then_some(3), ..Options::default() },
                    content: format!("content {} {i}", self.tasks.len()),
                    idempotency: None,
                    quota: None,
                };
                Call::Add(tasks.iter().enumerate().map(task).collect())
            }
            Step::Claim { lane, wants, lease, is_worker, more, skip } => {
                let want = |(which, slots): &(usize, usize)| Want { destination: destination(*which), slots: *slots };
                Call::Claim(Claim {
                    lane: lanes().remove(*lane),
                    wants: wants.iter().map(want).collect(),
                    lease: *lease,
                    holder: is_worker.then(|| Holder("machine".into())),
                    more: *more,
                    skip: *skip,
                    misfires: Vec::new(),
                })
            }
            Step::Settle(settles) => {
                let settle = |(task, by, transition): &(TaskPick, ReceiptPick, Transition)| {
                    let (lane, id) = self.task(task);
                    Settle { lane, id, receipt: self.receipt(by, id), transition: transition.clone() }
                };
                Call::Settle(settles.iter().map(settle).collect())
            }
            Step::Extend(task, by, lease) => {
                let (lane, id) = self.task(task);
                Call::Extend(lane, id, self.receipt(by, id), *lease)
            }
            Step::Cancel(task) => {
                let (lane, id) = self.task(task);
                Call::Cancel(lane, id)
            }
            Step::Reschedule(task, moment, content) => {
                let (lane, id) = self.task(task);
                let content =
                    content.map(|which| NewContent { destination: destination(which), content: "new".into() });
                Call::Reschedule(lane, id, *moment, content)
            }
            Step::Replay(tasks) => {
                let ids = tasks.iter().map(|task| self.task(task).1).collect();
                Call::Replay(lanes().remove(0), ids)
            }
            Step::Purge { lane, state, age, limit } => {
                Call::Purge(lanes().remove(*lane), *state, self.model.now - *age, *limit)
            }
            Step::Advance(by) => Call::SetClock(self.model.now + *by),
            Step::SetBack(by) => Call::SetClock(self.model.now - *by),
        }
    }

    /// Has the model do what the call says.
    fn answer(&mut self) -> Answer {
        let model = &mut self.model;
        match self.call.clone() {
            Call::Nothing => Answer::Nothing,
            Call::Add(tasks) => {
                let added: Vec<Added> = tasks.iter().map(|task| model.add(task.clone())).collect();
                let named = tasks.iter().zip(&added).map(|(task, added)| (task.topic.lane_of(added.id), added.id));
                self.tasks.extend(named);
                Answer::Added(added)
            }
            Call::Claim(claim) => {
                let receipt = receipt(&format!("claim-{}", self.receipts.len()));
                self.receipts.push(receipt.clone());
                Answer::Granted(model.claim(&claim, receipt))
            }
            Call::Settle(settles) => Answer::Settled(settles.iter().map(|settle| model.settle(settle)).collect()),
            Call::Extend(lane, id, by, lease) => Answer::Settled(vec![model.extend(&lane, id, &by, lease)]),
            Call::Cancel(lane, id) => Answer::Cancelled(model.cancel(&lane, id)),
            Call::Reschedule(lane, id, moment, content) => {
                Answer::Rescheduled(model.reschedule(&lane, id, moment, content))
            }
            Call::Replay(lane, ids) => Answer::Count(model.replay(&lane, &ids)),
            Call::Purge(lane, state, before, limit) => Answer::Count(model.purge(&lane, state, before, limit)),
            Call::SetClock(now) => {
                model.now = now;
                Answer::Nothing
            }
        }
    }
}
