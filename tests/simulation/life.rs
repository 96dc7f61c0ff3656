//! One life of an instance, and how it is stopped.
//!
//! An instance affects its environment only by requests to the store and by calls. Both wait here
//! before they leave and before their answer returns. So a crash stops an instance at whatever it
//! waits for, and nothing leaves it any more. A paused instance goes on later with the state that
//! it had, including leases that may have expired.

use std::sync::Mutex;
use std::time::Duration;

use delayd::store::{Hint, Message};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::history::LifeId;

#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) id: LifeId,
    /// The index of its instance; `None` for the clients.
    pub(crate) instance: Option<usize>,
    /// The channel on which this instance hears of adds through it.
    pub(crate) hints: broadcast::Sender<Hint>,
    /// The channel on which its workers hear of other instances.
    pub(crate) messages: broadcast::Sender<Message>,
    state: Mutex<LifeState>,
}

#[derive(Clone, Copy, Debug)]
enum LifeState {
    Running,
    PausedUntil(Instant),
    Dead,
}

impl Life {
    pub(crate) fn new(id: LifeId, instance: Option<usize>) -> Self {
        let (hints, messages) = (broadcast::Sender::new(16), broadcast::Sender::new(16));
        Self { id, instance, hints, messages, state: Mutex::new(LifeState::Running) }
    }

    fn state(&self) -> LifeState {
        *self.state.lock().unwrap()
    }

    /// Returns while the instance runs. Never returns once it is dead.
    pub(crate) async fn runs(&self) {
        loop {
            match self.state() {
                LifeState::Running => return,
                LifeState::PausedUntil(end) if end <= Instant::now() => return,
                LifeState::PausedUntil(end) => tokio::time::sleep_until(end).await,
                LifeState::Dead => std::future::pending().await,
            }
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.state(), LifeState::Dead)
    }

    pub(crate) fn pause(&self, span: Duration) {
        *self.state.lock().unwrap() = LifeState::PausedUntil(Instant::now() + span);
    }

    pub(crate) fn kill(&self) {
        *self.state.lock().unwrap() = LifeState::Dead;
    }
}
