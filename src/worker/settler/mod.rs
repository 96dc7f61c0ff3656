//! Sends the ends of leases to the store, in batches, and keeps each until the store has answered.
//!
//! ```text
//! calls ─▶ Settler ─▶ a queue per server ─▶ batches ─▶ store
//!                              └─▶ a queue per lane that alone is out of reach
//! ```
//!
//! - `ending`: the end of one lease.
//! - `handle`: [`Settler`], to which endings are sent. It knows which servers are away.
//! - `queues`: batches per server, and their repetition.
//! - `attempt`: one batch, sent once, and what follows from the store's answers.
//!
//! Endings that arrive while a batch is on its way form the next batch. No ending waits longer than
//! the batch before it takes, and batches grow under load.
//!
//! While a server is away, its batch is repeated, and its lanes do not claim: settles go first. The
//! other servers have queues of their own. In a cluster, a lane alone can be out of reach while its
//! slot moves to another node. Then it gets a queue of its own.

use std::time::Duration;

mod attempt;
mod ending;
mod handle;
mod queues;

pub(super) use attempt::Settling;
pub(super) use ending::LeaseEnding;
pub(super) use handle::Settler;
pub(super) use queues::run;

/// How long a drain waits for the last settles.
pub(super) const LAST_FLUSH: Duration = Duration::from_secs(2);
