//! Wakes a lane when there is work *before* the moment that it sleeps until.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::model::clock::UnixMillis;
use crate::worker::pages::News;

/// The wake-up of one lane by the supervisor.
#[derive(Debug)]
pub(in crate::worker) struct Nudge {
    wake: Notify,
    /// The moment that the lane sleeps until. `i64::MAX` while it is busy, so that every nudge
    /// counts.
    planned: AtomicI64,
    /// Whether a nudge came since the lane's last claim.
    pending: AtomicBool,
    /// The earliest moment that a hint told since. `i64::MAX`: none did.
    hinted: AtomicI64,
    polled: AtomicBool,
}

impl Nudge {
    pub(in crate::worker) fn new() -> Self {
        Self {
            wake: Notify::new(),
            planned: AtomicI64::new(i64::MAX),
            pending: AtomicBool::new(false),
            hinted: AtomicI64::new(i64::MAX),
            polled: AtomicBool::new(false),
        }
    }

    /// There is work from this moment on, as a hint or a poll says. Work that is due already always
    /// wakes the lane: the clock may have been set back since it fell asleep.
    pub(in crate::worker) fn at(&self, due: UnixMillis, is_hint: bool, store_now: UnixMillis) {
        match is_hint {
            true => drop(self.hinted.fetch_min(due.0, Ordering::SeqCst)),
            false => self.polled.store(true, Ordering::SeqCst),
        }
        if due <= store_now || due.0 < self.planned.load(Ordering::SeqCst) {
            self.pending.store(true, Ordering::SeqCst);
            self.wake.notify_one();
        }
    }

    /// Whether a nudge came since the lane's last claim.
    pub(in crate::worker) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// The lane claims now. Returns what was told since its last claim.
    pub(super) fn busy(&self) -> News {
        self.planned.store(i64::MAX, Ordering::SeqCst);
        self.pending.store(false, Ordering::SeqCst);
        let hinted = self.hinted.swap(i64::MAX, Ordering::SeqCst);
        News {
            hinted: (hinted < i64::MAX).then_some(UnixMillis(hinted)),
            polled: self.polled.swap(false, Ordering::SeqCst),
        }
    }

    pub(super) fn sleeps_towards(&self, moment: Option<UnixMillis>) {
        self.planned.store(moment.map_or(i64::MAX, |moment| moment.0), Ordering::SeqCst);
    }

    /// Returns once a nudge is pending.
    pub(super) async fn nudged(&self) {
        // The notification may be that of a nudge before the lane's last claim.
        while !self.is_pending() {
            self.wake.notified().await;
        }
    }
}
