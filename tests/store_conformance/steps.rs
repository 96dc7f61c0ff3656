//! The generators for [`crate::machine`]: steps, and how they are resolved in the model's world.

use std::collections::BTreeSet;
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{
    Destination, Lane, OnDead, Options, Receipt, State, StoreId, TaskId, TopicPolicy, TopicRetry,
};
use delayd::store::{
    Added, Adopted, Adoptee, AttemptNote, Cancelled, Claim, Grant, Holder, Idempotency, MAX_LEASE,
    Misfire, Misfired, Moment, NewContent, NewTask, Rescheduled, Result, Settle, Settled, Spread,
    Standing, TopicEntry, Transition, Want,
};
use delayd_wire::Span;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::bench::{START, ms, receipt, topic_of};
use crate::model::Model;

const TOPICS: [&str; 2] = ["orders", "others"];
/// The last one gets only dead-letter callbacks. It is last, since a misfire of another may call it
/// in the same claim.
const DESTINATIONS: [&str; 4] = ["message.call", "other.server", "@pull", "dead.letters"];

pub(crate) fn lanes() -> Vec<Lane> {
    TOPICS.iter().map(|name| Lane { topic: name.parse().unwrap(), shard: 0 }).collect()
}

pub(crate) fn policy(max_attempts: Option<u32>) -> TopicPolicy {
    TopicPolicy {
        retry: TopicRetry { max_attempts, ..TopicRetry::default() },
        ..TopicPolicy::default()
    }
}

fn destination(which: usize) -> Destination {
    DESTINATIONS[which].parse().unwrap()
}

/// One of the tasks added so far, if there is one; rarely one in the wrong lane.
#[derive(Clone, Debug)]
pub(crate) struct TaskPick {
    task: Index,
    is_lost: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ReceiptPick {
    /// A receipt that the task remembers.
    Own(Index),
    /// A receipt that some task was claimed with.
    Any(Index),
    MadeUp(&'static str),
}

/// A task to be added. There are so few keys that some are used again.
#[derive(Clone, Debug)]
pub(crate) struct Addition {
    destination: usize,
    moment: Moment,
    key: Option<u8>,
    /// Key, fingerprint and window.
    idempotency: Option<(u8, u128, Duration)>,
    expires_after: Option<Duration>,
    on_dead: bool,
    quota: Option<u64>,
}

/// A task of another store. There are so few ids that some come again.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    id: u64,
    destination: usize,
    due: UnixMillis,
    /// Its state; while it waits, how much later than its due moment.
    standing: (State, Duration),
    attempts: u32,
    key: Option<u8>,
    key_set: Option<UnixMillis>,
    lent: bool,
    expires_after: Option<Duration>,
    content: u8,
    /// The store that it comes from; none: the store that it is moved to.
    origin: Option<u64>,
}

/// What is done to a topic.
#[derive(Clone, Debug)]
pub(crate) enum Policing {
    SetPolicy(Option<u32>),
    Pause,
    Resume(Option<Misfired>),
    Unregister,
}

/// A call whose tasks and receipts are still to be picked.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Add {
        topic: usize,
        tasks: Vec<Addition>,
    },
    Claim {
        lane: usize,
        wants: Vec<(usize, usize)>,
        lease: Duration,
        is_worker: bool,
        more: bool,
        skip: usize,
        /// How long ago the pauses ended, and how long they lasted.
        misfires: Vec<(Duration, Duration, Misfired)>,
    },
    Settle(Vec<(TaskPick, ReceiptPick, Transition)>),
    Extend(TaskPick, ReceiptPick, Duration),
    Cancel(TaskPick),
    Reschedule(TaskPick, Moment, Option<usize>),
    Replay(Vec<TaskPick>, Spread),
    Purge {
        lane: usize,
        state: State,
        age: Duration,
        limit: usize,
    },
    Discard(State, Vec<TaskPick>),
    Clear {
        lane: usize,
    },
    Note(Vec<(TaskPick, u32)>),
    Lend(Vec<TaskPick>, Duration),
    Adopt(Vec<Stranger>),
    Police {
        topic: usize,
        how: Policing,
    },
    Advance(Duration),
    SetBack(Duration),
}

fn task_pick() -> impl Strategy<Value = TaskPick> {
    (any::<Index>(), prop::bool::weighted(0.03))
        .prop_map(|(task, is_lost)| TaskPick { task, is_lost })
}

fn receipt_pick() -> impl Strategy<Value = ReceiptPick> {
    prop_oneof![
        8 => any::<Index>().prop_map(ReceiptPick::Own),
        2 => any::<Index>().prop_map(ReceiptPick::Any),
        1 => prop::sample::select(vec!["stranger", "-"]).prop_map(ReceiptPick::MadeUp),
    ]
}

/// Few different spans, so that moments coincide.
fn span() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![0, 1, 999, 1_000, 5_000, 30_000]).prop_map(ms)
}

fn lease() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => prop::sample::select(vec![1, 1_000, 30_000]).prop_map(ms),
        1 => Just(MAX_LEASE),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    let at = (-5_i64..50).prop_map(|seconds| Moment::At(UnixMillis(START.0 + seconds * 1_000)));
    prop_oneof![3 => span().prop_map(Moment::After), 1 => at]
}

fn transition() -> impl Strategy<Value = Transition> {
    prop_oneof![
        2 => "[a-z -]{0,8}".prop_map(|outcome| Transition::Delivered { outcome }),
        4 => (span(), "[a-z!]{0,8}")
            .prop_map(|(after, outcome)| Transition::Retry { after, outcome }),
        2 => "[a-z\n]{0,8}".prop_map(|outcome| Transition::Dead { outcome }),
        2 => Just(Transition::Release),
        1 => Just(Transition::Moved),
        2 => lease().prop_map(|lease| Transition::Keep { lease }),
    ]
}

fn addition() -> impl Strategy<Value = Addition> {
    let window = prop::sample::select(vec![1_000, 30_000, 86_400_000]).prop_map(ms);
    let idempotency = prop::option::weighted(0.3, (0..2_u8, 0..2_u128, window));
    let expires_after =
        prop::option::weighted(0.3, prop::sample::select(vec![0, 1, 1_000, 30_000]).prop_map(ms));
    let few = || prop::option::weighted(0.3, 0..2_u8);
    let quota = prop::option::weighted(0.2, 1..6_u64);
    let parts =
        (0..3_usize, moment(), few(), idempotency, expires_after, prop::bool::weighted(0.3), quota);
    parts.prop_map(|(destination, moment, key, idempotency, expires_after, on_dead, quota)| {
        Addition { destination, moment, key, idempotency, expires_after, on_dead, quota }
    })
}

fn stranger() -> impl Strategy<Value = Stranger> {
    let due = (-5_i64..50).prop_map(|seconds| UnixMillis(START.0 + seconds * 1_000));
    let states = [
        State::Scheduled,
        State::Scheduled,
        State::Delivered,
        State::Dead,
        State::Cancelled,
        State::Expired,
    ];
    let standing = (prop::sample::select(states.to_vec()), span());
    let expires_after =
        prop::option::weighted(0.3, prop::sample::select(vec![0, 1_000, 30_000]).prop_map(ms));
    let set = (-5_i64..50).prop_map(|seconds| UnixMillis(START.0 + seconds * 1_000));
    let key =
        (prop::option::weighted(0.5, 0..2_u8), prop::option::weighted(0.7, set), any::<bool>());
    let origin = prop::option::weighted(0.7, (0..20_u64).prop_map(|n| n / 19));
    let content = (0..20_u8).prop_map(|n| n / 19);
    let parts =
        (0..4_u64, 0..3_usize, due, standing, 0..3_u32, key, expires_after, content, origin);
    parts.prop_map(
        |(
            id,
            destination,
            due,
            standing,
            attempts,
            (key, key_set, lent),
            expires_after,
            content,
            origin,
        )| Stranger {
            id,
            destination,
            due,
            standing,
            attempts,
            key,
            key_set,
            lent,
            expires_after,
            content,
            origin,
        },
    )
}

fn misfired() -> impl Strategy<Value = Misfired> {
    prop_oneof![Just(Misfired::Expired), Just(Misfired::Dead)]
}

fn misfires() -> impl Strategy<Value = Vec<(Duration, Duration, Misfired)>> {
    // Not up to now: dead-letter callbacks are due now.
    let ago = prop::sample::select(vec![1, 1_000, 5_000]).prop_map(ms);
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec((ago, span(), misfired()), 1..3)]
}

fn policing() -> impl Strategy<Value = Policing> {
    prop_oneof![
        prop::option::of(1..4_u32).prop_map(Policing::SetPolicy),
        Just(Policing::Pause),
        prop::option::of(misfired()).prop_map(Policing::Resume),
        Just(Policing::Unregister),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let lane = || prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let add = (lane(), prop::collection::vec(addition(), 1..4));
    let wants = prop::sample::subsequence(vec![0_usize, 1, 2, 3], 0..=4).prop_flat_map(|named| {
        named.into_iter().map(|which| (Just(which), 1..4_usize)).collect::<Vec<_>>()
    });
    let claim = (lane(), wants, lease(), any::<bool>(), any::<bool>(), 0..3_usize, misfires());
    let picks = || prop::collection::vec(task_pick(), 0..4);
    let replay = (picks(), span(), span());
    let ended = prop::sample::select(State::ALL.to_vec());
    let notes = prop::collection::vec((task_pick(), 1..9_u32), 1..4);
    let settle = prop::collection::vec((task_pick(), receipt_pick(), transition()), 1..4);
    let purge = (lane(), prop::sample::select(State::ALL.to_vec()), span(), 0..4_usize);
    let back =
        prop::sample::select(vec![1_000, 40_000, 13 * 3_600_000, 48 * 3_600_000]).prop_map(ms);
    prop_oneof![
        5 => add.prop_map(|(topic, tasks)| Step::Add { topic, tasks }),
        7 => claim.prop_map(|(lane, wants, lease, is_worker, more, skip, misfires)| {
            Step::Claim { lane, wants, lease, is_worker, more, skip, misfires }
        }),
        5 => settle.prop_map(Step::Settle),
        2 => (task_pick(), receipt_pick(), lease())
            .prop_map(|(task, by, lease)| Step::Extend(task, by, lease)),
        2 => task_pick().prop_map(Step::Cancel),
        2 => (task_pick(), moment(), prop::option::of(0..3_usize))
            .prop_map(|(task, moment, content)| Step::Reschedule(task, moment, content)),
        1 => replay.prop_map(|(tasks, first, step)| Step::Replay(tasks, Spread { first, step })),
        1 => purge.prop_map(|(lane, state, age, limit)| Step::Purge { lane, state, age, limit }),
        1 => (ended, picks()).prop_map(|(state, tasks)| Step::Discard(state, tasks)),
        1 => (0..8_usize).prop_map(|lane| Step::Clear { lane: lane % 2 }),
        1 => notes.prop_map(Step::Note),
        3 => (picks(), lease()).prop_map(|(tasks, lease)| Step::Lend(tasks, lease)),
        2 => prop::collection::vec(stranger(), 1..3).prop_map(Step::Adopt),
        1 => (lane(), policing()).prop_map(|(topic, how)| Step::Police { topic, how }),
        7 => span().prop_map(Step::Advance),
        1 => back.prop_map(Step::SetBack),
    ]
}

/// A call with the model's ids and receipts.
#[derive(Clone, Debug)]
pub(crate) enum Call {
    Nothing,
    Add(Vec<NewTask>),
    Claim(Claim),
    Settle(Vec<Settle>),
    Extend(Lane, TaskId, Receipt, Duration),
    Cancel(Lane, TaskId),
    Reschedule(Lane, TaskId, Moment, Option<NewContent>),
    Replay(Lane, Vec<TaskId>, Spread),
    Purge(Lane, State, UnixMillis, usize),
    Discard(Lane, State, Vec<TaskId>),
    Clear(Lane),
    Note(Vec<AttemptNote>),
    Lend(Lane, Vec<TaskId>, Receipt, Duration),
    Adopt(Vec<Adoptee>),
    Police(TopicEntry, Policing),
    SetClock(UnixMillis),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Nothing,
    Added(Vec<Result<Added>>),
    Granted(Grant),
    Settled(Vec<Settled>),
    Cancelled(Cancelled),
    Rescheduled(Rescheduled),
    Count(usize),
    Lent(Vec<bool>),
    Adopted(Vec<Adopted>),
    /// The result, if the topic exists.
    Policed(Option<String>),
}

fn adoptee(task: &Stranger) -> Adoptee {
    let (state, later) = task.standing;
    Adoptee {
        topic: topic_of(TOPICS[0], 1),
        id: TaskId(1_700_000_000_000_000 + task.id),
        destination: destination(task.destination),
        created: UnixMillis(START.0 - 3_600_000),
        due: task.due,
        standing: match state {
            State::Scheduled => Standing::Waiting { due: task.due + later },
            state => Standing::Ended { state, finished: UnixMillis(START.0) },
        },
        attempts: task.attempts,
        outcome: if task.attempts > 0 { "503".into() } else { String::new() },
        options: Options {
            origin: task.origin.map(StoreId),
            key: task.key.map(|key| format!("key {key}")),
            expires_after: task.expires_after.map(Span),
            ..Options::default()
        },
        key_set: task.key_set,
        lent: task.lent,
        content: format!("content of another store {}", task.content),
    }
}

/// More than there are tasks: a clear with a smaller limit may take any of them.
pub(crate) const ALL: usize = 1_000;

/// The model, the things that can be picked, and the last call with the model's answer.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) tasks: Vec<(Lane, TaskId)>,
    /// Tasks that may have notes.
    pub(crate) noted: BTreeSet<(Lane, TaskId)>,
    /// How often the clock was set back. An expired window may be forgotten or not, so older
    /// idempotency keys are not used after that.
    era: u32,
    receipts: Vec<Receipt>,
    pub(crate) call: Call,
    pub(crate) answer: Answer,
}

impl World {
    /// The world before the first call.
    pub(crate) fn new() -> Self {
        Self {
            model: Model::new(START),
            tasks: Vec::new(),
            noted: BTreeSet::new(),
            era: 0,
            receipts: Vec::new(),
            call: Call::Nothing,
            answer: Answer::Nothing,
        }
    }

    /// Resolves a step and lets the model answer it.
    pub(crate) fn take(mut self, step: &Step) -> Self {
        self.call = self.resolve(step);
        self.era += u32::from(matches!(step, Step::SetBack(_)));
        self.answer = self.answer();
        self
    }

    fn task(&self, pick: &TaskPick) -> (Lane, TaskId) {
        if self.tasks.is_empty() {
            return (lanes().remove(0), TaskId(1));
        }
        let (lane, id) = pick.task.get(&self.tasks).clone();
        let lane = if pick.is_lost {
            lanes().into_iter().find(|other| *other != lane).unwrap()
        } else {
            lane
        };
        (lane, id)
    }

    fn receipt(&self, pick: &ReceiptPick, id: TaskId) -> Receipt {
        let own = self.model.receipts_of(id);
        match pick {
            ReceiptPick::Own(which) if !own.is_empty() => which.get(&own).clone(),
            ReceiptPick::Any(which) if !self.receipts.is_empty() => {
                which.get(&self.receipts).clone()
            }
            ReceiptPick::MadeUp(text) => receipt(text),
            _ => receipt("stranger"),
        }
    }

    fn resolve(&self, step: &Step) -> Call {
        match step {
            Step::Add { topic, tasks } => {
                let topic = topic_of(TOPICS[*topic], 1);
                let task = |(i, task): (usize, &Addition)| NewTask {
                    content: format!("content {} {i}", self.tasks.len()),
                    ..self.new_task(&topic, task)
                };
                Call::Add(tasks.iter().enumerate().map(task).collect())
            }
            Step::Claim { lane, wants, lease, is_worker, more, skip, misfires } => {
                let now = self.model.now;
                let misfire = |(ago, span, becomes): &(Duration, Duration, Misfired)| Misfire {
                    from: now - *ago - *span,
                    to: now - *ago,
                    becomes: *becomes,
                };
                let want = |(which, slots): &(usize, usize)| Want {
                    destination: destination(*which),
                    slots: *slots,
                };
                Call::Claim(Claim {
                    lane: lanes().remove(*lane),
                    wants: wants.iter().map(want).collect(),
                    lease: *lease,
                    holder: is_worker.then(|| Holder("machine".into())),
                    more: *more,
                    skip: *skip,
                    in_hand: 0,
                    misfires: misfires.iter().map(misfire).collect(),
                })
            }
            Step::Settle(settles) => {
                let settle = |(task, by, transition): &(TaskPick, ReceiptPick, Transition)| {
                    let (lane, id) = self.task(task);
                    Settle {
                        lane,
                        id,
                        receipt: self.receipt(by, id),
                        transition: transition.clone(),
                    }
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
                let content = content.map(|which| NewContent {
                    destination: destination(which),
                    content: "new".into(),
                });
                Call::Reschedule(lane, id, *moment, content)
            }
            Step::Replay(tasks, spread) => {
                Call::Replay(lanes().remove(0), self.ids(tasks), *spread)
            }
            Step::Purge { lane, state, age, limit } => {
                Call::Purge(lanes().remove(*lane), *state, self.model.now - *age, *limit)
            }
            Step::Discard(state, tasks) => {
                Call::Discard(lanes().remove(0), *state, self.ids(tasks))
            }
            Step::Clear { lane } => Call::Clear(lanes().remove(*lane)),
            Step::Note(notes) => {
                Call::Note(notes.iter().map(|(task, attempt)| self.note(task, *attempt)).collect())
            }
            Step::Lend(tasks, lease) => {
                let by = receipt(&format!("mover-{}", self.receipts.len()));
                Call::Lend(lanes().remove(0), self.ids(tasks), by, *lease)
            }
            Step::Adopt(strangers) => Call::Adopt(strangers.iter().map(adoptee).collect()),
            Step::Police { topic, how } => Call::Police(topic_of(TOPICS[*topic], 1), how.clone()),
            Step::Advance(by) => Call::SetClock(self.model.now + *by),
            Step::SetBack(by) => Call::SetClock(self.model.now - *by),
        }
    }

    fn ids(&self, picks: &[TaskPick]) -> Vec<TaskId> {
        picks.iter().map(|pick| self.task(pick).1).collect()
    }

    fn new_task(&self, topic: &TopicEntry, task: &Addition) -> NewTask {
        let on_dead = OnDead { sn: destination(3), url: "/dead".into(), task_id: None };
        let options = Options {
            max_attempts: (task.quota == Some(1)).then_some(3),
            key: task.key.map(|key| format!("key {key}")),
            expires_after: task.expires_after.map(Span),
            on_dead: task.on_dead.then_some(on_dead),
            ..Options::default()
        };
        let idempotency = task.idempotency.map(|(key, fingerprint, window)| Idempotency {
            key: format!("key {key} of era {}", self.era),
            fingerprint,
            window,
        });
        NewTask {
            topic: topic.clone(),
            destination: destination(task.destination),
            moment: task.moment,
            options,
            content: String::new(),
            idempotency,
            quota: task.quota,
        }
    }

    fn note(&self, task: &TaskPick, attempt: u32) -> AttemptNote {
        let ((lane, id), started) = (self.task(task), self.model.now);
        AttemptNote {
            lane,
            id,
            attempt,
            started,
            took: ms(7),
            outcome: "503".into(),
            answer: "{}".into(),
        }
    }

    /// Lets the model do what the call says.
    fn answer(&mut self) -> Answer {
        let model = &mut self.model;
        match self.call.clone() {
            Call::Nothing => Answer::Nothing,
            Call::Add(tasks) => {
                let added: Vec<Result<Added>> =
                    tasks.iter().map(|task| model.add(task.clone())).collect();
                for (task, added) in tasks.iter().zip(&added) {
                    let Ok(Added { id, .. }) = *added else { continue };
                    let lane = task.topic.lane_of(id);
                    let call = model.get(&lane, id).and_then(|task| task.options.on_dead?.task_id);
                    for id in call.into_iter().chain([id]) {
                        if !self.tasks.contains(&(lane.clone(), id)) {
                            self.tasks.push((lane.clone(), id));
                        }
                    }
                }
                Answer::Added(added)
            }
            Call::Claim(claim) => {
                let receipt = receipt(&format!("claim-{}", self.receipts.len()));
                self.receipts.push(receipt.clone());
                Answer::Granted(model.claim(&claim, receipt))
            }
            Call::Settle(settles) => {
                Answer::Settled(settles.iter().map(|settle| model.settle(settle)).collect())
            }
            Call::Extend(lane, id, by, lease) => {
                Answer::Settled(vec![model.extend(&lane, id, &by, lease)])
            }
            Call::Cancel(lane, id) => Answer::Cancelled(model.cancel(&lane, id)),
            Call::Reschedule(lane, id, moment, content) => {
                Answer::Rescheduled(model.reschedule(&lane, id, moment, content))
            }
            Call::Replay(lane, ids, spread) => Answer::Count(model.replay(&lane, &ids, spread)),
            Call::Purge(lane, state, before, limit) => {
                Answer::Count(model.purge(&lane, state, before, limit))
            }
            Call::Discard(lane, state, ids) => Answer::Count(model.discard(&lane, state, &ids)),
            Call::Clear(lane) => Answer::Count(model.clear(&lane, ALL)),
            Call::Note(notes) => {
                self.noted.extend(notes.iter().map(|note| (note.lane.clone(), note.id)));
                model.note(notes);
                Answer::Nothing
            }
            Call::Lend(lane, ids, by, lease) => {
                self.receipts.push(by.clone());
                Answer::Lent(model.lend(&lane, &ids, &by, lease))
            }
            Call::Adopt(tasks) => {
                for task in &tasks {
                    let name = (task.topic.lane_of(task.id), task.id);
                    if !self.tasks.contains(&name) {
                        self.tasks.push(name);
                    }
                }
                Answer::Adopted(
                    tasks
                        .into_iter()
                        .map(|task| model.adopt(task).expect("the entry of the topic is current"))
                        .collect(),
                )
            }
            Call::Police(entry, how) => Answer::Policed(match how {
                Policing::SetPolicy(attempts) => {
                    model.set_policy(&entry.topic, &policy(attempts)).then(String::new)
                }
                Policing::Pause => model.pause(&entry.topic).map(|since| since.to_string()),
                Policing::Resume(becomes) => {
                    model.resume(&entry.topic, becomes).map(|was| was.to_string())
                }
                Policing::Unregister => model.unregister(&entry).then(String::new),
            }),
            Call::SetClock(now) => {
                model.now = now;
                Answer::Nothing
            }
        }
    }
}
