//! ③ Working: due tasks are claimed, handed to the callback client, and settled.
//!
//! ```text
//! supervisor ── one look a second over all lanes ──▶ spawns and nudges
//!     lane   ── sleeps until due ─▶ claim ─▶ call ─▶ outcome ─▶ settler ─▶ store
//! ```
//!
//! - `supervisor` reads the registry, looks over all lanes once a second, and keeps one task per
//!   lane that has work coming. A thousand idle topics cost that one look.
//! - `lane` is the heart: wait, claim by free slots, hand out. A pure state machine, and a runner.
//! - `topic` is what the registry says of a lane's topic: pauses, policy, limits.
//! - `call` is one task in flight: is the lease long enough, call, outcome.
//! - `settler` gathers the ends of leases and keeps them until the store has answered.
//! - `notes` writes down what attempts came to, for eyes.
//!
//! # Invariants
//!
//! - A destination is claimed only as far as it has free slots. A blocked one is not claimed: its
//!   tasks stay on its schedule, nothing is written, no attempt is spent, and nobody stands behind
//!   them.
//! - A call starts only if its lease lasts longer than its timeout.
//! - A task that this instance still holds is never fired a second time, whatever the store hands
//!   out.
//! - Time comes from the store; this instance's clock only decides when to look.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callback::{Caller, Client, Services};
use crate::clock::Clock;
use crate::limits::{DestinationLimits, TopicLimits};
use crate::outcome::Policy;
use crate::store::{AnyStore, Delivery, Holder};
use crate::task::{Receipt, StoreId};
use crate::topic::Registry;

mod call;
mod claim;
mod in_flight;
mod lane;
mod notes;
mod settler;
mod supervisor;
mod time;
mod topic;

use in_flight::InFlight;
pub use notes::Noted;
use notes::Notes;
use settler::Settler;
use time::StoreTime;

/// The settings of the workers.
#[derive(Clone, Debug)]
pub struct Params {
    /// Whether this instance claims at all; without, it only keeps up with the registry and with
    /// holds.
    pub enabled: bool,
    /// How long a claimed task is held (`worker.lease`).
    pub lease: Duration,
    /// After how long without work a lane's task ends (`worker.idle_stop`).
    pub idle_stop: Duration,
    /// The most tasks of one claim (`worker.claim_batch`).
    pub claim_batch: usize,
    /// What follows a failure, unless the task says otherwise.
    pub policy: Policy,
    /// How long one call may take, unless the task says otherwise.
    pub timeout: Duration,
    /// Which attempts are noted (`history.attempts`).
    pub noted: Noted,
    /// The time between two safety looks: 1 s, but for tests that show that nothing rests on it.
    pub look_every: Duration,
}

/// What the workers stand on: any store, and anyone who makes the calls.
#[derive(Debug)]
pub struct Parts<S = AnyStore, C = Client> {
    /// The store.
    pub store: Arc<S>,
    /// The topics.
    pub topics: Arc<Registry<S>>,
    /// Who makes the calls.
    pub client: C,
    /// Who is called.
    pub services: Arc<Services>,
    /// How much at once.
    pub limits: DestinationLimits,
    /// This instance's clock.
    pub clock: Clock,
}

/// What the roles share.
#[derive(Debug)]
struct Shared<S, C> {
    parts: Parts<S, C>,
    params: Params,
    holder: Holder,
    /// The store's id; nothing is claimed before it is known.
    store_id: Mutex<Option<StoreId>>,
    time: StoreTime,
    in_flight: InFlight,
    settler: Settler,
    topic_limits: TopicLimits,
    notes: Notes,
    calls: TaskTracker,
    stopping: CancellationToken,
    cut_off: AtomicBool,
}

impl<S, C> Shared<S, C> {
    fn saw_store(&self, id: StoreId) {
        *self.store_id.lock().unwrap_or_else(PoisonError::into_inner) = Some(id);
    }

    fn store_id(&self) -> Option<StoreId> {
        *self.store_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running workers of this instance.
#[derive(Debug)]
pub struct Worker<S = AnyStore, C = Client> {
    shared: Arc<Shared<S, C>>,
    roles: Vec<JoinHandle<()>>,
    settling: JoinHandle<()>,
}

impl<S: Delivery, C: Caller> Worker<S, C> {
    /// Starts all roles.
    pub fn start(parts: Parts<S, C>, params: Params) -> Self {
        let (settler, settles) = Settler::new();
        let (notes, taken) = Notes::new();
        let shared = Arc::new(Shared {
            time: StoreTime::new(parts.clock.clone()),
            parts,
            params,
            holder: Holder(Receipt::random().as_str().into()),
            store_id: Mutex::default(),
            in_flight: InFlight::default(),
            settler,
            topic_limits: TopicLimits::default(),
            notes,
            calls: TaskTracker::new(),
            stopping: CancellationToken::new(),
            cut_off: AtomicBool::new(false),
        });
        let settling = tokio::spawn(settler::run(shared.clone(), settles));
        let roles = vec![
            tokio::spawn(topic::forget_idle(shared.clone())),
            tokio::spawn(notes::run(shared.clone(), taken)),
            tokio::spawn(supervisor::run(shared.clone())),
        ];
        Self { shared, roles, settling }
    }

    /// Ends the work in order: claims stop; what was claimed but not fired is given back unspent;
    /// running calls end within `grace`; their settles are flushed. A call cut off by the end of
    /// `grace` keeps its lease and its attempt. A store that does not answer holds up the end no
    /// longer than that, or than a last flush.
    ///
    /// Answers how many calls were cut off.
    pub async fn drain(self, grace: Duration) -> usize {
        let Self { shared, roles, settling } = self;
        let now = Instant::now();
        shared.stopping.cancel();
        end(roles, now + grace.max(settler::LAST_FLUSH)).await;
        shared.calls.close();
        let in_time = tokio::time::timeout_at(now + grace, shared.calls.wait()).await.is_ok();
        let cut_off = if in_time { 0 } else { shared.calls.len() };
        shared.cut_off.store(true, Ordering::Relaxed);
        shared.settler.finish();
        if tokio::time::timeout(settler::LAST_FLUSH, settling).await.is_err() {
            tracing::warn!(
                "The store took no more settles; those tasks come back when their leases run out"
            );
        }
        cut_off
    }
}

/// Waits for the roles, and cuts off those that wait for the store even then.
async fn end(roles: Vec<JoinHandle<()>>, deadline: Instant) {
    let mut left = 0_usize;
    for mut role in roles {
        // A role that panicked has been logged by the panic itself.
        if tokio::time::timeout_at(deadline, &mut role).await.is_err() {
            role.abort();
            left += 1;
        }
    }
    if left > 0 {
        tracing::warn!(
            left,
            "The store does not answer: {left} roles are cut off, and what they were claiming comes back later"
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
