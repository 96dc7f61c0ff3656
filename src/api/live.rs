//! The open live streams of this instance, and the event that they share.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use delayd_wire::Overview;

use crate::api::auth::Caller;
use crate::api::places::{Place, PlaceBounds, Places};
use crate::api::wire::error::Error;
use crate::sampler::Snapshot;

/// The most streams of an instance, and of a token. A stream lasts as long as its reader likes, so
/// none waits for it.
const STREAMS: PlaceBounds = PlaceBounds {
    total: 64,
    each: 16,
    waiting: 0,
    wait: Duration::ZERO,
    refusal: "too many live streams are open here, or with this token: close one, or try again \
              later",
};

/// The places of streams, and the last event.
#[derive(Debug)]
pub(crate) struct LiveStreams {
    places: Places,
    /// The last events without and with the text of errors, and the snapshot that each shows.
    last: Mutex<[(Arc<Snapshot>, Bytes); 2]>,
}

impl Default for LiveStreams {
    fn default() -> Self {
        Self { places: Places::new(STREAMS), last: Mutex::default() }
    }
}

impl LiveStreams {
    /// A place for a stream, which the stream holds.
    ///
    /// # Errors
    /// 503 if the instance, or the token, has too many streams.
    pub(crate) async fn place(&self, caller: &Caller) -> Result<Place, Error> {
        self.places.place(caller).await
    }

    /// The event of a snapshot. The first stream that asks for it calls `overview`.
    pub(crate) fn event(
        &self,
        snapshot: Arc<Snapshot>,
        sees_errors: bool,
        overview: impl FnOnce() -> Overview,
    ) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = &mut last[usize::from(sees_errors)];
        if last.1.is_empty() || !Arc::ptr_eq(&last.0, &snapshot) {
            let data = serde_json::to_string(&overview()).expect("an overview is plain data");
            *last = (snapshot, format!("event: overview\ndata: {data}\n\n").into());
        }
        last.1.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token once took all 64 streams.
    #[tokio::test]
    async fn a_token_leaves_streams_to_others() {
        let (live, greedy) = (LiveStreams::default(), Caller::named("greedy", &[]));
        let mut streams = Vec::new();
        while let Ok(stream) = live.place(&greedy).await {
            streams.push(stream);
        }
        assert_eq!(streams.len(), 16);
        streams.push(live.place(&Caller::named("other", &[])).await.expect("a stream"));
        while let Ok(stream) = live.place(&Caller::anyone()).await {
            streams.push(stream);
        }
        assert_eq!(streams.len(), 64);
        streams.truncate(15);
        assert!(live.place(&greedy).await.is_ok());
    }
}
