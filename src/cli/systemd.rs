//! Tells systemd the state of a service of `Type=notify`. Without systemd, it does nothing.
//!
//! The protocol: <https://www.freedesktop.org/software/systemd/man/sd_notify.html>.

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

/// Sends the watchdog a sign of life until it is dropped. It comes from a task of the runtime, so
/// systemd restarts a service whose threads are all stuck. An outage of the store stops no sign.
pub(super) struct SignOfLife(Option<JoinHandle<()>>);

impl Drop for SignOfLife {
    fn drop(&mut self) {
        if let Some(signs) = &self.0 {
            signs.abort();
        }
    }
}

/// The service listens. To be called in the runtime.
pub(super) fn listens() -> SignOfLife {
    tell(NotifyState::Ready);
    let signs = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| {
        let mut ticks = interval(limit / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::spawn(async move {
            loop {
                ticks.tick().await;
                tell(NotifyState::Watchdog);
            }
        })
    });
    SignOfLife(signs)
}

/// The drain begins.
pub(super) fn drains() {
    tell(NotifyState::Stopping);
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        warn!("Cannot tell systemd the state of the service: {error}");
    }
}
