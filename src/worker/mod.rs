//! Workers: claim due tasks, call their destinations, settle the tasks.
//!
//! ```text
//! supervisor ── one poll of its lanes per second ──▶ starts and wakes lanes
//!     lane   ── sleeps until due ─▶ claim ─▶ call ─▶ outcome ─▶ settler ─▶ store
//! ```
//!
//! - `poll` reads the registry, the holds and the next due moments of this instance's lanes, once a
//!   second.
//! - `supervisor` runs one tokio task per lane that has work coming. Idle topics cost no more than
//!   the poll.
//! - `ownership` divides the lanes among the instances: which of them this one looks at.
//! - `lane` waits, claims and starts calls: a pure state machine, and a runner that performs it.
//! - `due` knows the lane's due destinations, reserves permits for a claim, or waits for them
//!   (`wake_ups`). `pages` decides which part of their list a claim reads. `claim` asks the store
//!   for tasks. `permits` are those of one claim and of one call.
//! - `delays` notes what delays the tasks of a lane.
//! - `call` is one task in flight: it checks the lease, calls, and decides the outcome. `ambiguity`
//!   warns of answers that may not mean the success that they count as.
//! - `settler` sends the ends of leases in batches, and keeps them until the store has answered.
//! - `notes` writes the log of attempts.
//! - `shared` is the state that these share.
//!
//! # Invariants
//!
//! - A lane claims at most as many tasks of a destination as it has permits. A blocked destination
//!   is not claimed: its tasks stay on its schedule, without a write and without an attempt.
//! - A call starts only if its lease lasts longer than its timeout.
//! - A task that is in flight here is never called a second time, even if the store returns it.
//! - Time comes from the store. This instance's clock only decides when to poll.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::callback::{CallClient, Client};
use crate::model::task::Receipt;
use crate::store::{AnyStore, Delivery, LockToken};

mod ambiguity;
mod call;
mod claim;
mod delays;
mod due;
mod idle_limits;
mod in_flight;
mod lane;
mod notes;
mod ownership;
mod pages;
mod params;
mod permits;
mod poll;
mod settler;
mod shared;
mod supervisor;
mod time;
mod wake_ups;

use notes::Notes;
pub use params::{NotedAttempts, Params, Parts};
use settler::{Settler, Settling};
use shared::Shared;

/// The running workers of this instance.
#[derive(Debug)]
pub struct Worker<S = AnyStore, C = Client> {
    shared: Arc<Shared<S, C>>,
    roles: Vec<JoinHandle<()>>,
    settling: JoinHandle<()>,
}

impl<S: Delivery, C: CallClient> Worker<S, C> {
    /// Starts all roles.
    pub fn start(parts: Parts<S, C>, params: Params) -> Self {
        let metrics = parts.metrics.clone();
        let dropped = metrics.worker.notes_dropped.clone();
        let (settler, endings) = Settler::new(metrics.worker.settles_pending.clone());
        let (notes, taken) = Notes::new(dropped.clone());
        let holder = LockToken(Receipt::random().as_str().into());
        let shared = Arc::new(Shared::new(parts, params, holder, Arc::new(settler), notes));
        let (store, stopping) = (&shared.parts.store, &shared.stopping);
        let settling = Settling {
            store: store.clone(),
            settler: shared.settler.clone(),
            calls: shared.calls.clone(),
            stopping: stopping.clone(),
            tasks: metrics.tasks.clone(),
        };
        let settling = tokio::spawn(settler::run(settling, endings));
        let roles = vec![
            tokio::spawn(idle_limits::forget(shared.clone())),
            tokio::spawn(notes::run(store.clone(), stopping.clone(), taken, dropped)),
            tokio::spawn(supervisor::run(shared.clone())),
        ];
        Self { shared, roles, settling }
    }

    /// Stops the workers in order: claims end, and other instances hear that this one leaves.
    /// Claimed tasks without a call are released, calls end, settles are flushed. Returns how many
    /// calls were cut off.
    ///
    /// Calls that run longer than `grace` are cut off. Their tasks keep lease and attempt, and come
    /// back when the leases run out. All of it takes at most `grace` and the last flush.
    pub async fn drain(self, grace: Duration) -> usize {
        let Self { shared, roles, settling } = self;
        let now = Instant::now();
        shared.stopping.cancel();
        end(roles, now + grace.max(settler::LAST_FLUSH / 2)).await;
        shared.calls.close();
        let in_time = tokio::time::timeout_at(now + grace, shared.calls.wait()).await.is_ok();
        let cut_off = if in_time { 0 } else { shared.calls.len() };
        shared.cut_off.store(true, Ordering::Relaxed);
        shared.settler.finish();
        let flushed = tokio::time::timeout_at(now + grace + settler::LAST_FLUSH, settling).await;
        if flushed.is_err() {
            tracing::warn!(
                "The store took no more settles; those tasks come back when their leases run out"
            );
        }
        cut_off
    }
}

/// Waits for the roles until the deadline, and aborts those that still wait for the store.
async fn end(roles: Vec<JoinHandle<()>>, deadline: Instant) {
    let mut left = 0_usize;
    for mut role in roles {
        // The panic hook has logged a role that panicked.
        if tokio::time::timeout_at(deadline, &mut role).await.is_err() {
            role.abort();
            left += 1;
        }
    }
    if left > 0 {
        tracing::warn!(
            left,
            "The store does not answer: {left} roles are cut off. Tasks that they were claiming \
             come back when their leases run out"
        );
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod drain_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
