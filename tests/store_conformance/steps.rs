//! The generators for [`crate::machine`]: steps, which [`crate::world`] resolves into calls.

use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, State, TopicPolicy, TopicRetry};
use delayd::store::{MAX_LEASE, Misfired, Moment, Pause, Spread, Transition};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::bench::{START, ms};

pub(crate) const TOPICS: [&str; 2] = ["orders", "others"];
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

pub(crate) fn destination(which: usize) -> Destination {
    DESTINATIONS[which].parse().unwrap()
}

/// One of the tasks added so far, if there is one; rarely one in the wrong lane.
#[derive(Clone, Debug)]
pub(crate) struct TaskPick {
    pub(crate) task: Index,
    pub(crate) is_lost: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ReceiptPick {
    /// A receipt that the task remembers.
    Own(Index),
    /// A receipt that some task was claimed with.
    Any(Index),
    MadeUp(&'static str),
}

/// What the caller knows of the task.
#[derive(Clone, Debug)]
pub(crate) enum ConditionPick {
    /// The key of the task.
    Key(u8),
    /// An idempotency key, with the key of the task.
    Idempotency(u8),
    /// The key of any task.
    Other(u8),
    /// The task as it was before the last call with a condition, or now if there was none.
    Selected,
}

/// A task to be added. There are so few keys that some are used again.
#[derive(Clone, Debug)]
pub(crate) struct Addition {
    pub(crate) destination: usize,
    pub(crate) moment: Moment,
    pub(crate) key: Option<u8>,
    /// Key, fingerprint and window.
    pub(crate) idempotency: Option<(u8, u128, Duration)>,
    pub(crate) expires_after: Option<Duration>,
    pub(crate) on_dead: bool,
    pub(crate) quota: Option<u64>,
}

/// A task of another store. There are so few ids that some come again.
#[derive(Clone, Debug)]
pub(crate) struct Stranger {
    pub(crate) id: u64,
    pub(crate) destination: usize,
    pub(crate) due: UnixMillis,
    /// Its state; while it waits, how much later than its due moment.
    pub(crate) standing: (State, Duration),
    pub(crate) attempts: u32,
    pub(crate) key: Option<u8>,
    pub(crate) key_set: Option<UnixMillis>,
    pub(crate) lent: bool,
    pub(crate) expires_after: Option<Duration>,
    pub(crate) content: u8,
    /// The store that it comes from; none: the store that it is moved to.
    pub(crate) origin: Option<u64>,
}

/// What is done to a topic.
#[derive(Clone, Debug)]
pub(crate) enum Policing {
    SetPolicy(Option<u32>),
    Pause,
    Resume(Option<Misfired>),
    Unregister,
}

/// What is done to a recurring schedule.
#[derive(Clone, Debug)]
pub(crate) enum Recurring {
    /// One of few definitions, so that some change nothing.
    Set(u8),
    Pause(Option<Pause>),
    Delete,
    Plan(Planning),
}

/// A plan by what is stored. Only `is_stale` makes it one by something else.
#[derive(Clone, Debug)]
pub(crate) struct Planning {
    pub(crate) destination: usize,
    /// The due moment of the new occurrence counts from this long ago.
    pub(crate) ago: Duration,
    pub(crate) after: Duration,
    /// How many moments the waiting occurrence stands for.
    pub(crate) missed: Option<u64>,
    pub(crate) skips: bool,
    pub(crate) expires_after: Option<Duration>,
    pub(crate) on_dead: bool,
    pub(crate) is_last: bool,
    pub(crate) is_stale: bool,
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
        /// How long before now the outlook begins.
        after: Option<Duration>,
        /// How long ago the pauses ended, and how long they lasted.
        misfires: Vec<(Duration, Duration, Misfired)>,
    },
    Settle(Vec<(TaskPick, ReceiptPick, Transition)>),
    Extend(TaskPick, ReceiptPick, Duration),
    Cancel(TaskPick, Option<ConditionPick>),
    Reschedule(TaskPick, Option<ConditionPick>, Moment, Option<usize>),
    Replay(Vec<TaskPick>, Spread),
    Purge {
        lane: usize,
        state: State,
        age: Duration,
        limit: usize,
    },
    Discard(State, Vec<TaskPick>),
    RemoveContents(Vec<TaskPick>),
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
    Recur {
        topic: usize,
        name: u8,
        how: Recurring,
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

fn condition_pick() -> impl Strategy<Value = Option<ConditionPick>> {
    let condition = prop_oneof![
        2 => (0..2_u8).prop_map(ConditionPick::Key),
        1 => (0..2_u8).prop_map(ConditionPick::Idempotency),
        1 => (0..2_u8).prop_map(ConditionPick::Other),
        3 => Just(ConditionPick::Selected),
    ];
    prop::option::of(condition)
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
        4 => (moment(), "[a-z!]{0,8}")
            .prop_map(|(due, outcome)| Transition::Retry { due, outcome }),
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

fn recurring() -> impl Strategy<Value = Recurring> {
    let pause = prop::option::of(prop_oneof![Just(Pause::Operator), Just(Pause::Move)]);
    let expires_after =
        prop::option::weighted(0.2, prop::sample::select(vec![0, 1_000]).prop_map(ms));
    let rare = || prop::bool::weighted(0.1);
    let flags = (any::<bool>(), prop::bool::weighted(0.2), rare(), rare());
    let planning = (0..3_usize, span(), span(), prop::option::of(0..99_u64), expires_after, flags)
        .prop_map(|(destination, ago, after, missed, expires_after, flags)| {
            let (skips, on_dead, is_last, is_stale) = flags;
            Planning {
                destination,
                ago,
                after,
                missed,
                skips,
                expires_after,
                on_dead,
                is_last,
                is_stale,
            }
        });
    prop_oneof![
        3 => (0..3_u8).prop_map(Recurring::Set),
        2 => pause.prop_map(Recurring::Pause),
        1 => Just(Recurring::Delete),
        8 => planning.prop_map(Recurring::Plan),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let lane = || prop_oneof![4 => Just(0_usize), 1 => Just(1)];
    let add = (lane(), prop::collection::vec(addition(), 1..4));
    let wants = prop::sample::subsequence(vec![0_usize, 1, 2, 3], 0..=4).prop_flat_map(|named| {
        named.into_iter().map(|which| (Just(which), 1..4_usize)).collect::<Vec<_>>()
    });
    let after = prop_oneof![Just(None), span().prop_map(Some)];
    let claim = (lane(), wants, lease(), any::<bool>(), any::<bool>(), after, misfires());
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
        7 => claim.prop_map(|(lane, wants, lease, is_worker, more, after, misfires)| {
            Step::Claim { lane, wants, lease, is_worker, more, after, misfires }
        }),
        5 => settle.prop_map(Step::Settle),
        2 => (task_pick(), receipt_pick(), lease())
            .prop_map(|(task, by, lease)| Step::Extend(task, by, lease)),
        3 => (task_pick(), condition_pick()).prop_map(|(task, only)| Step::Cancel(task, only)),
        3 => (task_pick(), condition_pick(), moment(), prop::option::of(0..3_usize)).prop_map(
            |(task, only, moment, content)| Step::Reschedule(task, only, moment, content)
        ),
        1 => replay.prop_map(|(tasks, first, step)| Step::Replay(tasks, Spread { first, step })),
        1 => purge.prop_map(|(lane, state, age, limit)| Step::Purge { lane, state, age, limit }),
        1 => (ended, picks()).prop_map(|(state, tasks)| Step::Discard(state, tasks)),
        1 => picks().prop_map(Step::RemoveContents),
        1 => (0..8_usize).prop_map(|lane| Step::Clear { lane: lane % 2 }),
        1 => notes.prop_map(Step::Note),
        3 => (picks(), lease()).prop_map(|(tasks, lease)| Step::Lend(tasks, lease)),
        2 => prop::collection::vec(stranger(), 1..3).prop_map(Step::Adopt),
        1 => (lane(), policing()).prop_map(|(topic, how)| Step::Police { topic, how }),
        7 => (lane(), 0..2_u8, recurring())
            .prop_map(|(topic, name, how)| Step::Recur { topic, name, how }),
        7 => span().prop_map(Step::Advance),
        1 => back.prop_map(Step::SetBack),
    ]
}
