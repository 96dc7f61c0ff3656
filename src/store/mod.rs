//! Stores tasks: the contract of a store, and its two implementations.
//!
//! [`Store`] and its parts are the contract; their methods are the arrows of the life cycle.
//! [`embedded`] keeps tasks in SQLite, for one process. [`redis`] lets several instances share the
//! work. [`AnyStore`] is the one picked at start. `tests/store_conformance` runs one suite over
//! both.
//!
//! `docs/STORE.md` says what holds across the methods: receipts, settles, deduplication, expiry,
//! migration, deadlines. Its numbers are in `contract/bounds.rs`.
//!
//! Absent on purpose: HTTP, retry policy and the endpoints of services. The caller decides what a
//! failed attempt means, and says it with a [`Transition`].

#[macro_use]
mod any;
mod check;
mod contract;
mod counted;
pub mod embedded;
mod error;
mod format;
pub mod redis;

pub use any::AnyStore;
pub use check::{CheckCursor, CheckStep, Finding, Flaw};
pub use contract::{
    Added, Admin, Adopted, AdoptedStanding, Adoptee, Asker, AttemptNote, Audit, AuditCursor,
    AuditEntry, AuditLogged, Cancelled, Claim, Claimed, Cleared, Condition, ContinuedSchedule,
    Counts, Creator, Delivery, DestinationState, DueSchedules, Durability, EXPIRED,
    FURTHEST_DEADLINE, Grant, Hint, Histories, Holds, INSTANCE_TTL, Idempotency, Instance, Intake,
    KEPT, LAST_MOMENT, LEASE_RAN_OUT, LaneForecast, LaneHistory, LaneSample, LeaseKind, LeasedTask,
    ListQuery, Listed, LockToken, Look, Looked, MAX_ANSWER, MAX_AUDIT, MAX_CLAIM_BYTES,
    MAX_DUE_SCHEDULES, MAX_ENDED, MAX_EXPIRIES, MAX_FORECAST, MAX_LEASE, MAX_MISFIRES, MAX_NOTES,
    MAX_OUTCOME, MAX_OUTLOOK, MAX_RECEIPTS, MAX_RECENT, MAX_SAMPLED, MAX_SCHEDULES, MAX_SWEEP,
    MISFIRED, MOVED, Maintenance, Message, Misfire, Misfired, Moment, NewContent, NewSchedule,
    NewTask, NextDue, NextOccurrence, Novelty, Outlook, PING_TIMEOUT, Pause, Plan, Planned,
    PlannedOccurrence, Position, RELEASES_KEPT, Reader, Registered, Rescheduled, Revision, SKIPPED,
    SampleAnswer, SampleQuery, Sampling, Schedule, ScheduleSample, ScheduleSet, Schedules,
    Selected, Settle, Settled, Signals, Spread, Store, Summary, Swept, Task, TaskName, TopicEntry,
    Topics, Transition, UNPLANNED, UNREADABLE, Waiting, Want, kept_answer, kept_outcome,
    warning_of,
};
pub use error::{Error, Result};
pub use format::{FORMAT, FORMAT_OF_SCHEDULES, Formats};
