//! The limit of concurrent requests. It comes first, because refusing a request must cost little.
//!
//! ```text
//! request head ─▶ free slot? ── yes ──▶ handled
//!                     │ no                 ▲
//!                     └─▶ wait queue ──────┘ a slot within 150 ms
//!                             └─▶ 503, body unread
//! ```
//!
//! The wait queue exists because a refusal is not free. At three times capacity, callers that are
//! refused at once return at once, and their refusals take the CPU time of accepted requests. The
//! queue slows these callers down. A longer timeout would only make every answer later.
//!
//! A request takes its slot before its body is read, and releases it if the body has not arrived
//! yet ([`crate::api::middleware::body`]).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::wire::error::Error;

/// The longest wait for a slot. Including the time to read and answer a request, a refusal comes
/// within 300 ms.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_millis(150);

/// The slots, and their queue in order of arrival. Clones share the slots.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    pub(crate) fn of(slots: usize) -> Self {
        Self(Arc::new(Semaphore::new(slots)))
    }

    /// Waits for a slot.
    ///
    /// # Errors
    /// 503 if no slot was free in time.
    pub(crate) async fn slot(&self) -> Result<Slot, Error> {
        if let Ok(permit) = self.0.clone().try_acquire_owned() {
            return Ok(Slot::of(permit));
        }
        match tokio::time::timeout(QUEUE_TIMEOUT, self.0.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Slot::of(permit)),
            Ok(Err(_)) | Err(_) => Err(Error::Unavailable(
                "too many requests at once, so this one was not processed: repeat it",
            )),
        }
    }
}

/// A slot. The request holds it, and so does work that outlives the request.
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Slot {
    /// Releases the slot for all holders, because this request only waits from now on.
    pub(crate) fn free(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn of(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }
}
