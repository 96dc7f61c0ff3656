//! Limits: how many calls run at a time, and which waiter is next.
//!
//! ```text
//! topic:        bulkhead + rate
//! destination:  bulkhead + gate (rate, circuit breaker, slow start, holds) + slots in total
//! ```
//!
//! - `bulkhead`: slots with a limit, and a fair wait queue (`wait_queue`).
//! - `gate`: whether calls to a destination may begin. Each call tells it whether the destination
//!   is healthy.
//! - [`TopicLimits`] and [`DestinationLimits`] put a lock around these, and hand out permits. A
//!   call needs a permit of its destination, and one of its topic if that has limits.
//!
//! A worker reserves permits before it claims, so that it can call each claimed task at once. A
//! destination without permits is not claimed: its tasks stay on their schedule. A worker that got
//! fewer permits than it wanted waits in the queue, and is woken in its turn.
//!
//! # Invariants
//!
//! - A permit is given back by dropping it, however its call ends or is cancelled.
//! - Waiters are woken in the order of arrival, each once. Freed slots are reserved for them.
//! - The gate is checked before the bulkhead: a closed gate admits no call, even if slots are free.
//! - Limits change at runtime. Permits that are taken stay valid, and waiters get the new limits.
//!
//! *Absent on purpose*: the meaning of an answer (the caller says whether the destination succeeded
//! or failed), queues of tasks, and timers (the waiters set them).

mod allowance;
mod bulkhead;
mod destination;
mod gate;
mod last_block;
mod rate_limit;
mod slow_start;
mod token_bucket;
mod topic;
mod wait_queue;

pub use allowance::Allowance;
pub use destination::{
    DestinationLimits, Detail, Figures, HoldsAsked, LimitParams, Permit, Permits, RecentCalls,
    Standing, Survey, Waiter,
};
pub use token_bucket::TokenBucket;
pub use topic::{TopicBulkhead, TopicLimits, TopicPermit, TopicPermits, TopicWaiter};
pub use wait_queue::{Availability, Wake};
