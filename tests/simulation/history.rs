//! The events of a schedule, in their order.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Receipt, ScheduleName, State, TaskId, Topic};
use delayd::store::{
    Cancelled, Message, Misfire, Misfired, Moment, NewSchedule, NewTask, Plan, Planned,
    Rescheduled, Settled, Transition,
};

/// One life of one instance, from its start to its crash or its end. Clients have life 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LifeId(pub(crate) u32);

/// One call of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(pub(crate) u32);

/// How a worker understood the answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Success,
    Failure,
    Final,
}

/// What an add asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) moment: Moment,
    pub(crate) content: String,
    pub(crate) key: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) expires_after: Option<Duration>,
    /// The service of the dead-letter callback.
    pub(crate) on_dead: Option<Destination>,
}

/// A dead-letter callback.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: TaskId,
    pub(crate) dead: TaskId,
    pub(crate) content: String,
}

/// What a set did to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Created,
    Changed,
}

/// What a receiver learns of the occurrence of a planned moment.
#[derive(Clone, Debug)]
pub(crate) struct CalledOccurrence {
    pub(crate) webhook_id: String,
    pub(crate) name: ScheduleName,
    pub(crate) moment: UnixMillis,
    pub(crate) missed: u64,
}

impl Asked {
    pub(crate) fn of(task: &NewTask) -> Self {
        Self {
            moment: task.moment,
            content: task.content.clone(),
            key: task.options.key.clone(),
            idempotency_key: task.idempotency.as_ref().map(|once| once.key.clone()),
            expires_after: task.options.expires_after.map(|span| span.0),
            on_dead: task.options.on_dead.as_ref().map(|on_dead| on_dead.sn.clone()),
        }
    }
}

/// An event. Some events are only for readers of the printed history. An event of the store is
/// recorded when the store does it, whether or not its answer arrives.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "a history is also printed")]
pub(crate) enum What {
    // Events of the store.
    Stored {
        id: TaskId,
        lane: Lane,
        asked: Asked,
        /// The id of its dead-letter callback.
        call: Option<TaskId>,
    },
    /// An add moved the task of its key.
    Replaced {
        id: TaskId,
        lane: Lane,
        asked: Asked,
        call: Option<TaskId>,
    },
    /// An add was answered with a task that was stored before.
    Repeated {
        id: TaskId,
    },
    Claimed {
        by: LifeId,
        lane: Lane,
        lease: Duration,
        receipt: Receipt,
        wants: Vec<Destination>,
        misfires: Vec<Misfire>,
        /// How many events had happened when the claim was sent.
        sent: usize,
        ids: Vec<TaskId>,
        /// Occurrences that ended because an earlier one runs.
        skipped: Vec<TaskId>,
        calls: Vec<Call>,
    },
    Extended {
        by: LifeId,
        id: TaskId,
        receipt: Receipt,
        lease: Duration,
        answer: Settled,
    },
    Settled {
        by: LifeId,
        id: TaskId,
        receipt: Receipt,
        transition: Transition,
        answer: Settled,
        calls: Vec<Call>,
    },
    Cancelled {
        id: TaskId,
        /// The key that named the task.
        key: Option<String>,
        answer: Cancelled,
    },
    Rescheduled {
        id: TaskId,
        moment: Moment,
        content: Option<String>,
        answer: Rescheduled,
    },
    Replayed {
        id: TaskId,
    },
    TopicPaused {
        topic: Topic,
    },
    TopicResumed {
        topic: Topic,
        becomes: Option<Misfired>,
    },
    /// A schedule was created or changed.
    ScheduleSet {
        lane: Lane,
        new: Box<NewSchedule>,
        change: Change,
    },
    SchedulePaused {
        lane: Lane,
        name: ScheduleName,
        is_paused: bool,
    },
    ScheduleDeleted {
        lane: Lane,
        name: ScheduleName,
    },
    /// A plan that the store accepted.
    Planned {
        lane: Lane,
        plan: Box<Plan>,
        answer: Planned,
    },
    /// A plan that the store refused, because the schedule had changed.
    PlanStale,
    /// A failover forgot an occurrence, and the plan that added it.
    PlanForgotten {
        id: TaskId,
    },
    /// A topic was deleted and created again with another number of lanes.
    Recounted {
        topic: Topic,
        shards: u16,
    },
    /// An add with an old number of lanes was refused.
    AddedStale {
        topic: Topic,
    },
    /// An instance read the registry, which had changed since its last read. It was read when
    /// `read` events had happened.
    Looked {
        by: LifeId,
        read: usize,
    },
    // Events of the API.
    Accepted {
        id: TaskId,
    },
    // Events of the callback.
    CallBegan {
        call: CallId,
        by: LifeId,
        id: TaskId,
        receipt: Receipt,
        timeout: Duration,
        content: String,
        /// If the task is one of a planned moment.
        occurrence: Option<CalledOccurrence>,
    },
    Processed {
        call: CallId,
    },
    CallEnded {
        call: CallId,
        heard: Heard,
    },
    CallDropped {
        call: CallId,
    },
    // Faults, starts and stops.
    Started {
        life: LifeId,
        instance: usize,
    },
    Crashed {
        life: LifeId,
    },
    Paused {
        life: LifeId,
        span: Duration,
    },
    /// It begins to drain.
    Stops {
        life: LifeId,
    },
    Drained {
        life: LifeId,
        cut_off: usize,
    },
    /// A message of a worker did not reach another instance.
    Untold {
        by: LifeId,
        to: LifeId,
        message: Message,
    },
    Jumped {
        by_ms: i64,
    },
    InstanceJumped {
        life: LifeId,
        by_ms: i64,
    },
    StoreFailed {
        by: LifeId,
        verb: &'static str,
        how: &'static str,
    },
    Healed,
    /// All schedules are deleted, because the run ends.
    SchedulesEnd,
    // The final states.
    Found {
        id: TaskId,
        state: State,
        attempts: u32,
        /// How many missed moments an occurrence stands for.
        missed: u64,
    },
    Panicked {
        message: String,
    },
}

/// The schedule's time, the store's time, and the event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) now: UnixMillis,
    pub(crate) what: What,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8} ms, store's {}: {:?}", self.at.as_millis(), self.now, self.what)
    }
}

/// All events of a schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<Event>,
    /// Requests to the store by life and second of the schedule. As events, polls would fill the
    /// list.
    pub(crate) requests: BTreeMap<(LifeId, u64), u32>,
}
