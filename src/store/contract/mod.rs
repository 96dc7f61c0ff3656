//! The contract in parts, each with the shapes that it speaks of. A caller asks for the parts that
//! it uses; the page of [`crate::store`] says what must hold across them.

use std::future::Future;

use crate::model::breaker;
use crate::model::clock::UnixMillis;
use crate::store::Result;

mod admin;
mod delivery;
mod intake;
mod maintenance;
mod topics;
mod transfer;

pub use admin::{
    Admin, Cancelled, Forecast, NewContent, Rescheduled, Spread, Summary, Task, Waiting,
};
pub use delayd_wire::Durability;
pub use delivery::{
    AttemptNote, Claim, Claimed, Delivery, Grant, Hint, Holder, Holds, LeaseKind, LeasedTask, Look,
    Looked, NextDue, Outlook, Settle, Settled, Transition, Want,
};
pub use intake::{Added, Idempotency, Intake, Moment, NewTask, Novelty, warning_of};
pub use maintenance::{Histories, History, Maintenance};
pub use topics::{
    Counts, ListQuery, Listed, Misfire, Misfired, Registered, Revision, TopicEntry, Topics,
};
pub use transfer::{Adopted, Adoptee, MOVED, Standing};

/// A whole store: all parts, and what is asked of it as one.
pub trait Store: Delivery + Intake + Topics + Admin + Maintenance {
    /// The circuit breaker around the store; of several servers, the worst. Closed where there is
    /// none.
    fn breaker(&self) -> breaker::State {
        breaker::State::Closed
    }

    /// Whether the store answers, and its now. An error after
    /// [`PING_TIMEOUT`](crate::store::PING_TIMEOUT).
    fn ping(&self) -> impl Future<Output = Result<UnixMillis>> + Send;

    /// Ends the store's own threads and connections after everything accepted is on its way to
    /// disk.
    fn close(&self) -> impl Future<Output = ()> + Send;
}
