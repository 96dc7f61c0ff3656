//! The metrics of tasks and leases that end.

use delayd_wire::Way;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::resolved;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// Delivered: the receiver took the callback.
    Callback,
    /// Delivered: a consumer, or a receiver that acknowledges later, acknowledged it.
    Ack,
    /// Delivered: a consumer pulled it without a lease.
    Pull,
    /// Delivered: another store has it.
    Moved,
    /// Dead: its last attempt failed.
    AttemptsUsedUp,
    /// Dead: the receiver refused it for good, or delayd cannot call it.
    Refused,
    /// Dead: too many leases in a row ran out.
    LeasesRanOut,
    /// Dead: it fell due in a pause, and the topic has `misfire: dead`.
    MisfiredDead,
    /// Dead: its record cannot be read.
    Unreadable,
    /// Cancelled by a call.
    Cancel,
    /// Cancelled at the end of a lease, because a cancel was pending.
    PendingCancel,
    /// Expired: it was not delivered within its `expires_after`.
    ExpiresAfter,
    /// Expired: it fell due in a pause, and the topic has `misfire: skip`.
    MisfiredExpired,
    /// Expired: an earlier occurrence of its schedule had not ended.
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    state: &'static str,
    cause: &'static str,
}

/// The labels of each [`TaskEnd`], in the order of the variants.
const ENDS: &[EndLabels] = &[
    EndLabels { state: "delivered", cause: "callback" },
    EndLabels { state: "delivered", cause: "ack" },
    EndLabels { state: "delivered", cause: "pull" },
    EndLabels { state: "delivered", cause: "moved" },
    EndLabels { state: "dead", cause: "attempts_used_up" },
    EndLabels { state: "dead", cause: "refused" },
    EndLabels { state: "dead", cause: "leases_ran_out" },
    EndLabels { state: "dead", cause: "misfire" },
    EndLabels { state: "dead", cause: "unreadable" },
    EndLabels { state: "cancelled", cause: "cancel" },
    EndLabels { state: "cancelled", cause: "pending_cancel" },
    EndLabels { state: "expired", cause: "expires_after" },
    EndLabels { state: "expired", cause: "misfire" },
    EndLabels { state: "expired", cause: "overlap" },
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabels {
    mode: &'static str,
}

const MODES: &[ModeLabels] =
    &[ModeLabels { mode: Way::Push.as_str() }, ModeLabels { mode: Way::Pull.as_str() }];

/// The counters of tasks and leases that end.
#[derive(Debug)]
pub struct TaskMetrics {
    ended: (Family<EndLabels, Counter>, Vec<Counter>),
    leases_expired: (Family<ModeLabels, Counter>, Vec<Counter>),
    stale_settles: (Family<ModeLabels, Counter>, Vec<Counter>),
}

impl Default for TaskMetrics {
    fn default() -> Self {
        Self {
            ended: resolved(ENDS),
            leases_expired: resolved(MODES),
            stale_settles: resolved(MODES),
        }
    }
}

impl TaskMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tasks_ended",
            "Tasks that ended, by final state and cause. Not counted: what a start of the embedded \
             store, a replacement by key, a discard of waiting tasks or an import ends. A repeated \
             call to cancel or acknowledge counts again",
            self.ended.0.clone(),
        );
        registry.register(
            "leases_expired",
            "Leases that ran out before their holder ended them, counted when a claim finds them: \
             of workers and of receivers that acknowledge later (push), and of consumers (pull)",
            self.leases_expired.0.clone(),
        );
        registry.register(
            "stale_settles",
            "Ends of leases that the store refused, because the lease was lost or the task had \
             ended: by workers (push), and by ack and nack (pull; receivers that acknowledge later \
             use these calls, too)",
            self.stale_settles.0.clone(),
        );
    }

    /// Counts a task that ended.
    pub fn ended(&self, end: TaskEnd) {
        self.ended_many(end, 1);
    }

    /// Counts several tasks that ended.
    pub fn ended_many(&self, end: TaskEnd, count: u64) {
        self.ended.1[end as usize].inc_by(count);
    }

    /// Counts leases that ran out.
    pub fn leases_expired(&self, way: Way, count: u64) {
        self.leases_expired.1[way as usize].inc_by(count);
    }

    /// Counts a settle that the store refused.
    pub fn stale_settle(&self, way: Way) {
        self.stale_settles.1[way as usize].inc();
    }
}
