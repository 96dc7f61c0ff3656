//! The contract in parts, each with its types. A caller asks for the parts that it uses.
//! `docs/STORE.md` says what must hold across them.
//!
//! A verb is declared once here, and written once for each store: `Embedded` and `Redis` have a
//! method of its name and arguments, which stands beside the code that it needs.

use std::future::Future;

use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::store::Result;

mod admin;
mod audit;
mod bounds;
mod delivery;
mod intake;
mod lookup;
mod maintenance;
mod migration;
mod sampling;
mod schedules;
mod signals;
mod topics;

pub use admin::{
    Admin, Cancelled, Cleared, LaneForecast, NewContent, Reader, Rescheduled, Spread, Summary,
    Task, Waiting,
};
pub use audit::{Audit, AuditCursor, AuditEntry, AuditLogged, MAX_AUDIT};
pub use bounds::{
    EXPIRED, FURTHEST_DEADLINE, INSTANCE_TTL, KEPT, LAST_MOMENT, LEASE_RAN_OUT, MAX_ANSWER,
    MAX_CLAIM_BYTES, MAX_ENDED, MAX_EXPIRIES, MAX_FORECAST, MAX_LEASE, MAX_MISFIRES, MAX_NOTES,
    MAX_OUTCOME, MAX_OUTLOOK, MAX_RECEIPTS, MAX_SAMPLED, MAX_SWEEP, MISFIRED, PING_TIMEOUT,
    RELEASES_KEPT, UNREADABLE, kept_answer, kept_outcome,
};
pub use delayd_wire::Durability;
pub use delivery::{
    Asker, AttemptNote, Claim, Claimed, Delivery, Grant, Holds, LeaseKind, LeasedTask, LockToken,
    Look, Looked, NextDue, Outlook, Position, Settle, Settled, Swept, Transition, Want,
};
pub use intake::{Added, Idempotency, Intake, Moment, NewTask, Novelty, warning_of};
pub use lookup::{Condition, Selected, TaskName};
pub use maintenance::{Histories, LaneHistory, Maintenance};
pub use migration::{Adopted, AdoptedStanding, Adoptee, MOVED};
pub use sampling::{
    DestinationState, Instance, LaneSample, SampleAnswer, SampleQuery, Sampling, ScheduleSample,
};
pub use schedules::{
    ContinuedSchedule, DueSchedules, MAX_DUE_SCHEDULES, MAX_RECENT, MAX_SCHEDULES, NewSchedule,
    NextOccurrence, Pause, Plan, Planned, PlannedOccurrence, SKIPPED, Schedule, ScheduleSet,
    Schedules, UNPLANNED,
};
pub use signals::{Hint, Message, Signals};
pub use topics::{
    Counts, Creator, ListQuery, Listed, Misfire, Misfired, Registered, Revision, TopicEntry, Topics,
};

/// A whole store: all parts, and what concerns it as one.
pub trait Store:
    Delivery + Intake + Topics + Admin + Schedules + Maintenance + Sampling + Audit
{
    /// What an accepted add survives.
    fn durability(&self) -> Durability;

    /// The state of the circuit breaker around the store: the worst one if there are several
    /// servers, closed if there is no breaker.
    fn breaker(&self) -> breaker::State {
        breaker::State::Closed
    }

    /// The store's time, as a sign that it answers. Fails after [`PING_TIMEOUT`].
    fn ping(&self) -> impl Future<Output = Result<UnixMillis>> + Send;

    /// Ends the store's threads and connections once everything accepted is on its way to disk.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
