//! What a store tells without a call to a lane: its id, hints, messages, and where lanes are.

use std::future::Future;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, StoreId};
use crate::store::Result;

/// Tells of a store's news, and of the servers that it is on.
pub trait Signals: Send + Sync + 'static {
    /// The store's id, which begins the `webhook-id` of its tasks. At most a second old, unless its
    /// server is unreachable: `delayd store new-id` may give the store another.
    fn id(&self) -> impl Future<Output = Result<StoreId>> + Send;

    /// Receives hints about the lanes' schedules: from this process, and those for consumers also
    /// from others. A hint follows an add, an adoption, a settle, a change by an operator, and a
    /// dead-letter call. It names a lane and the earliest due moment of a batch, separately for
    /// called and pulled tasks. A hint only saves time and may be lost. There may be none for a
    /// task behind the earliest one of its destination, or for a swept task.
    fn hints(&self) -> broadcast::Receiver<Hint>;

    /// Receives messages of other instances' workers. `None` if the store has one instance.
    fn messages(&self) -> Option<broadcast::Receiver<Message>> {
        None
    }

    /// Sends a message to the workers of the other instances, without waiting. It may be lost.
    /// Messages that wait to be sent are joined: one of each kind for a lane.
    fn tell_others(&self, _message: Message) {}

    /// The number of the server that has the lane now. Lanes with one number become unreachable
    /// together: a caller that settles each number separately confines an outage to the server's
    /// own lanes.
    fn server_of(&self, _lane: &Lane) -> u64 {
        0
    }

    /// The round trip to the lane's server, as recent requests show it. Zero if it is unknown, or
    /// if the store is in this process.
    fn round_trip(&self, _lane: &Lane) -> Duration {
        Duration::ZERO
    }
}

/// News that a lane has work from a moment on, perhaps earlier than its worker knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The lane.
    pub lane: Lane,
    /// The earliest new due moment.
    pub due: UnixMillis,
    /// Whether it is for waiting consumers, not for the lane's worker.
    pub is_pull: bool,
}

/// A message to the workers of other instances. It only saves time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A lane has work from a moment on. It is for the lane's owner.
    Due {
        /// The lane.
        lane: Lane,
        /// The earliest new due moment.
        due: UnixMillis,
    },
    /// The sender has stopped working, as its last heartbeat says.
    Leaves,
}
