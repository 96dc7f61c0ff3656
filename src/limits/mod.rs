//! How many calls run at a time, and which waiter is next.
//!
//! ```text
//! topic:        bulkhead + rate
//! destination:  bulkhead + gate (rate, circuit breaker, slow start, holds) + slots in total
//! ```
//!
//! - `bulkhead`: slots with a limit, and a fair wait queue (`wait_queue`): first come, first woken.
//! - `gate`: whether calls to a destination may begin. It learns from each call how the destination
//!   is.
//! - [`TopicLimits`] and [`DestinationLimits`] put a lock around them and hand out permits. A call
//!   needs one of its destination, and one of its topic if that has limits.
//!
//! A worker reserves permits before it claims, so that it claims no task that it could not call at
//! once. A destination without permits is not claimed: its tasks stay on their schedule. A worker
//! that got fewer than it wanted is a waiter in the queue, and is woken in its turn.
//!
//! # Invariants
//!
//! - A permit is given back by dropping, whatever way its call ends or is cancelled.
//! - Waiters are woken in the order of arrival, each once; a freed slot is reserved for them.
//! - A closed gate is asked before the bulkhead: it admits nobody, whatever slots are free.
//! - Limits change at runtime: permits in hand stay valid, and waiters are served by the new ones.
//!
//! What is absent on purpose: what an answer means (the caller says whether its destination
//! succeeded or failed), queues of tasks, and timers: the waiters set them.

mod allowance;
mod bulkhead;
mod destination;
mod gate;
mod rate_limit;
mod slow_start;
mod token_bucket;
mod topic;
mod wait_queue;

pub use allowance::Allowance;
pub use destination::{
    DestinationLimits, HoldsAsked, LimitParams, Permit, Permits, Standing, Waiter,
};
pub use token_bucket::TokenBucket;
pub use topic::{TopicBulkhead, TopicLimits, TopicPermit, TopicPermits, TopicWaiter};
pub use wait_queue::Availability;
