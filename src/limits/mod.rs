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
//! - `limiter`: puts a lock around these, and hands out permits. [`DestinationLimits`] and
//!   [`TopicLimits`] are one each. A call needs a permit of its destination, and one of its topic
//!   if that has limits.
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
mod entry;
mod gate;
mod last_block;
mod limiter;
mod observer;
mod params;
mod permit;
mod rate_limit;
mod recent;
mod shared;
mod slow_start;
mod survey;
mod table;
mod token_bucket;
mod wait_queue;
mod waiter;

pub use allowance::Allowance;
pub use destination::{DestinationLimits, HoldsAsked};
pub use limiter::{Limiter, TopicLimits};
pub use params::{Detail, LimitParams, Limited, Standing};
pub use permit::{Permit, Permits};
pub use recent::RecentCalls;
pub use survey::{SlotFigures, Survey};
pub use token_bucket::TokenBucket;
pub use wait_queue::{Availability, Wake};
pub use waiter::Waiter;
