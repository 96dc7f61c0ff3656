//! The open live streams of this instance, and the event that they share.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use delayd_wire::Overview;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::wire::error::Error;
use crate::sampler::Snapshot;

/// The most streams of an instance.
const STREAMS: usize = 64;

/// The places of streams, and the last event.
#[derive(Debug)]
pub(crate) struct Live {
    places: Arc<Semaphore>,
    /// The last event, and the snapshot that it shows.
    last: Mutex<(Arc<Snapshot>, Bytes)>,
}

impl Default for Live {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(STREAMS)), last: Mutex::default() }
    }
}

impl Live {
    /// A place for a stream, which the stream holds.
    ///
    /// # Errors
    /// 503 if none is free.
    pub(crate) fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            Error::Unavailable("too many live streams are open: close one, or try again later")
        })
    }

    /// The event of a snapshot. The first stream that asks for it calls `overview`.
    pub(crate) fn event(
        &self,
        snapshot: Arc<Snapshot>,
        overview: impl FnOnce() -> Overview,
    ) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1.is_empty() || !Arc::ptr_eq(&last.0, &snapshot) {
            let data = serde_json::to_string(&overview()).expect("an overview is plain data");
            *last = (snapshot, format!("event: overview\ndata: {data}\n\n").into());
        }
        last.1.clone()
    }
}
