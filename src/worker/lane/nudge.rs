//! How a lane is woken by work: by an *earlier* moment than the one it sleeps towards.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::model::clock::UnixMillis;

/// What the supervisor tells a lane.
#[derive(Debug)]
pub(in crate::worker) struct Nudge {
    wake: Notify,
    /// What the lane sleeps towards; while it is busy, later than everything, so that any nudge
    /// counts.
    planned: AtomicI64,
    /// A nudge that the lane has not looked after yet.
    pending: AtomicBool,
}

impl Nudge {
    pub(in crate::worker) fn new() -> Self {
        Self {
            wake: Notify::new(),
            planned: AtomicI64::new(i64::MAX),
            pending: AtomicBool::new(false),
        }
    }

    /// There is work from `due` on. What is due already always counts: the lane may sleep by a
    /// clock that was set back since.
    pub(in crate::worker) fn at(&self, due: UnixMillis, store_now: UnixMillis) {
        if due <= store_now || due.0 < self.planned.load(Ordering::SeqCst) {
            self.pending.store(true, Ordering::SeqCst);
            self.wake.notify_one();
        }
    }

    /// Whether a nudge came that nobody looked after: the lane's task ended just then.
    pub(in crate::worker) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    pub(super) fn busy(&self) {
        self.planned.store(i64::MAX, Ordering::SeqCst);
        self.pending.store(false, Ordering::SeqCst);
    }

    pub(super) fn sleeps_towards(&self, moment: Option<UnixMillis>) {
        self.planned.store(moment.map_or(i64::MAX, |moment| moment.0), Ordering::SeqCst);
    }

    /// Returns once a nudge is pending.
    pub(super) async fn nudged(&self) {
        // A notification may be left from a nudge that a claim has looked after since.
        while !self.is_pending() {
            self.wake.notified().await;
        }
    }
}
