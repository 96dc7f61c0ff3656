//! The door: whether a request is worked on at once, stands in line for a moment, or is turned
//! away. Before everything else, for what is turned away has to cost next to nothing.
//!
//! ```text
//! a head has come ─▶ a free slot? ─ yes ─▶ work
//!                        │ no               ▲
//!                        └─▶ in line ───────┘ a slot in time
//!                               └─▶ 503 after 150 ms, unread
//! ```
//!
//! There are as many slots as requests may be worked on at a time. There is a line before them
//! because a refusal is not free: turned away at once, three times too many callers come back at
//! once, and saying no takes the processor from those in hand. The line paces them; a longer one
//! would only let every answer come too late.
//!
//! A slot is taken before the body is read, and given back where the body does not come with its
//! head ([`crate::api::middleware::body`]): who drips holds up nobody.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::wire::error::Error;

/// How long a request may stand in line. With what it takes to read and to answer it, a refusal
/// comes within 300 ms.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_millis(150);

/// Where requests wait for a slot, first come, first served. Cheap to clone; clones share the
/// slots.
#[derive(Clone, Debug)]
pub(crate) struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    pub(crate) fn of(slots: usize) -> Self {
        Self(Arc::new(Semaphore::new(slots)))
    }

    /// A slot, if there is one in time.
    pub(crate) async fn slot(&self) -> Result<Slot, Error> {
        if let Ok(permit) = self.0.clone().try_acquire_owned() {
            return Ok(Slot::of(permit));
        }
        match tokio::time::timeout(QUEUE_TIMEOUT, self.0.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Slot::of(permit)),
            Ok(Err(_)) | Err(_) => Err(Error::Unavailable(
                "too many requests at once, so this one was not looked at: repeat it",
            )),
        }
    }
}

/// A slot, held by a request and by the work that outlives it.
#[derive(Clone, Debug)]
pub(crate) struct Slot(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Slot {
    /// Lets another request have it: this one only waits from here on.
    pub(crate) fn free(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn of(permit: OwnedSemaphorePermit) -> Self {
        Self(Arc::new(Mutex::new(Some(permit))))
    }
}
