//! The heart: one lane's task sleeps until something is due, claims it, and hands it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::claim::{self, Claimer, Room, Taken};
use super::{Shared, call};
use crate::callback::Caller;
use crate::clock::UnixMillis;
use crate::store::{self, Delivery, Outlook};
use crate::task::Lane;

/// A due moment this near is work that is coming: the lane's task does not end before it.
pub(super) const COMING: Duration = Duration::from_secs(5);
/// The wait after the store failed, doubling up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The wait while another instance claims.
const SHORTEST_REFUSAL: Duration = Duration::from_millis(1);
const LONGEST_REFUSAL: Duration = Duration::from_millis(100);

/// How a lane's task is woken: by an *earlier* moment than the one it sleeps towards.
#[derive(Debug)]
pub(super) struct Nudge {
    wake: Arc<Notify>,
    /// What the lane sleeps towards; while it is busy, later than everything, so that any nudge counts.
    planned: AtomicI64,
    /// A nudge that the lane has not looked after yet.
    pending: AtomicBool,
}

impl Nudge {
    pub(super) fn new() -> Self {
        Self { wake: Arc::default(), planned: AtomicI64::new(i64::MAX), pending: AtomicBool::new(false) }
    }

    /// There is work from `due` on. What is due already always counts: the lane may sleep by a clock that was set back since.
    pub(super) fn at(&self, due: UnixMillis, store_now: UnixMillis) {
        if due <= store_now || due.0 < self.planned.load(Ordering::SeqCst) {
            self.pending.store(true, Ordering::SeqCst);
            self.wake.notify_one();
        }
    }

    /// Whether a nudge came that nobody looked after: the lane's task ended just then.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    fn busy(&self) {
        self.planned.store(i64::MAX, Ordering::SeqCst);
        self.pending.store(false, Ordering::SeqCst);
    }

    fn sleeps_towards(&self, moment: Option<UnixMillis>) {
        self.planned.store(moment.map_or(i64::MAX, |moment| moment.0), Ordering::SeqCst);
    }
}

/// Works the lane until it has been idle for long enough, or the instance stops. Its lock is given back then.
pub(super) async fn run(shared: Arc<Shared<impl Delivery, impl Caller>>, lane: Lane, nudge: Arc<Nudge>) {
    let mut claimer = Claimer::new(lane.clone());
    work(&shared, &lane, &nudge, &mut claimer).await;
    if claimer.keeps_lock() {
        claimer.give_lock_back();
        // It lasts for two seconds by itself.
        let _ = claimer.take(&shared, &[]).await;
    }
}

async fn work(shared: &Arc<Shared<impl Delivery, impl Caller>>, lane: &Lane, nudge: &Nudge, claimer: &mut Claimer) {
    let mut outlook = Outlook::default();
    let mut last_work = Instant::now();
    let mut last_warning = UnixMillis::default();
    let mut pause = FIRST_PAUSE;
    while !shared.stopping.is_cancelled() {
        // A nudge during a look of several steps may be about what the first ones passed by.
        if !claimer.is_looking() {
            nudge.busy();
        }
        let server = shared.parts.store.server_of(lane);
        if shared.settler.is_away(server) {
            claimer.step_aside();
        }
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = shared.settler.recovered(server) => {}
        }
        // Only now: that wait may have been a long one.
        if shared.is_paused(&lane.topic) {
            // The first look after the pause brings the lane back.
            return;
        }
        match claimer.take(shared, &outlook.due).await {
            Ok(Taken::Granted { grant, mut slots, since }) => {
                pause = FIRST_PAUSE;
                if !grant.tasks.is_empty() {
                    last_work = Instant::now();
                }
                for task in grant.tasks {
                    call::start(shared, lane, task, &grant.receipt, since, &mut slots);
                }
                outlook = grant.outlook;
                claim::warn_of_unknown(shared, lane, &outlook.due, grant.now, &mut last_warning);
            }
            Ok(Taken::Refused(left)) => {
                // Its holder gives the lock back earlier than it must, unless it died.
                rest(shared, left.clamp(SHORTEST_REFUSAL, LONGEST_REFUSAL)).await;
                continue;
            }
            Err(error) => {
                match error {
                    store::Error::Corrupt(_) => {
                        tracing::error!(%lane, %error, "Lane {lane} cannot be worked; trying on")
                    }
                    // The store says itself when it goes and when it comes back.
                    _ => tracing::debug!(%lane, %error, "Could not claim; trying again"),
                }
                // The next claim only looks. A reservation that waits for a store in trouble would keep slots from lanes that are well.
                outlook = Outlook::default();
                claimer.forget();
                rest(shared, pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            }
        }
        if claimer.is_looking() {
            continue;
        }
        let idle_left = shared.params.idle_stop.saturating_sub(last_work.elapsed());
        let is_coming = outlook.next.is_some_and(|next| next <= shared.time.store_now() + COMING);
        if idle_left.is_zero() && !is_coming && outlook.due.is_empty() {
            return;
        }
        if claimer.keeps_lock() && claimer.room(shared, &outlook.due, &nudge.wake) != Room::Free {
            // What is due is blocked here. Another instance may have slots for it.
            claimer.give_lock_back();
            continue;
        }
        sleep(shared, claimer, &outlook, nudge, idle_left.max(COMING)).await;
        if !outlook.due.is_empty() {
            // Calls whose answers are there already end first: a larger claim.
            tokio::task::yield_now().await;
        }
    }
}

/// Returns when there is reason to claim. A slot that came free is none if nobody waits for it, or another took it.
async fn sleep(
    shared: &Shared<impl Delivery, impl Caller>,
    claimer: &mut Claimer,
    outlook: &Outlook,
    nudge: &Nudge,
    idle: Duration,
) {
    nudge.sleeps_towards(outlook.next);
    let mut next = std::pin::pin!(until(shared, outlook.next));
    let mut idle = std::pin::pin!(tokio::time::sleep(idle));
    loop {
        let wait = match claimer.room(shared, &outlook.due, &nudge.wake) {
            Room::Free => return,
            Room::None { wait } => wait,
        };
        if nudge.is_pending() {
            return;
        }
        tokio::select! {
            biased;
            () = shared.stopping.cancelled() => return,
            () = &mut next => return,
            () = &mut idle, if outlook.due.is_empty() => return,
            () = nudge.wake.notified() => {}
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
        }
    }
}

async fn until(shared: &Shared<impl Delivery, impl Caller>, moment: Option<UnixMillis>) {
    match moment {
        Some(moment) => shared.time.sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn rest(shared: &Shared<impl Delivery, impl Caller>, time: Duration) {
    // Stopping ends the rest early.
    let _ = tokio::time::timeout(time, shared.stopping.cancelled()).await;
}
