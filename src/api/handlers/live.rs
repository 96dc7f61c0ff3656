//! `POST /delay/live`: the overview of each second as server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! It is a `POST`, so that the caller reads it with `fetch`: `EventSource` sends no token, and
//! browsers send `Origin` with each `POST`. A stream holds no request slot.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use delayd_wire::LiveRequest;
use futures_util::stream;
use http::header;
use tokio::sync::watch;

use super::overview;
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::places::Place;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::sampler::Snapshot;

/// A comment is sent if there is no event for this long, so that proxies keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// One stream.
struct Viewer {
    api: Arc<Api>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    draining: watch::Receiver<bool>,
    caller: Caller,
    is_first: bool,
    _place: Place,
}

impl Viewer {
    /// The next event. `None` once the instance drains, or the caller may no longer read it.
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.is_first) {
            self.snapshots.mark_changed();
        }
        tokio::select! {
            biased;
            // An error: the instance has gone.
            _ = self.draining.wait_for(|draining| *draining) => None,
            _ = self.api.tokens.refusal(&self.caller, None) => None,
            changed = tokio::time::timeout(HEARTBEAT, self.snapshots.changed()) => match changed {
                Ok(Ok(())) => {
                    let snapshot = self.snapshots.borrow_and_update().clone();
                    let shown = snapshot.clone();
                    let sees_errors = self.caller.sees_content();
                    Some(self.api.live.event(snapshot, sees_errors, || {
                        overview::shown(&self.api, &shown, sees_errors)
                    }))
                }
                Ok(Err(_)) => None,
                Err(_) => Some(Bytes::from_static(b":\n\n")),
            },
        }
    }
}

/// `POST /delay/live`
pub(crate) async fn serve(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<LiveRequest>,
) -> Result<Response, Error> {
    let LiveRequest {} = request;
    api.check_accepting()?;
    let place = api.live.place(&caller).await?;
    let (snapshots, draining) = (api.sampled.snapshots(), api.draining.clone());
    let viewer = Viewer { api, snapshots, draining, caller, is_first: true, _place: place };
    let events = stream::unfold(viewer, |mut viewer| async move {
        Some((Ok::<_, Infallible>(viewer.next().await?), viewer))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // nginx would keep events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(events)).into_response())
}
