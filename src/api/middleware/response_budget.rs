//! Room for the answers: what they hold counts until their callers have read them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::TryFutureExt;
use http_body::{Body as _, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tower::service_fn;

use crate::api::middleware::body::Bodies;
use crate::api::middleware::memory_budget::{Budget, Exhausted, held};
use crate::api::middleware::route::{BodySize, Routed};
use crate::api::middleware::service::Answers;
use crate::api::wire::error::Error;

/// Answers longer than this have to find room; the others are bounded by the number of connections.
const SMALL_ANSWER: usize = 1024;

/// Gives each answer its share of the memory, but for answers of batches: what those have stored
/// cannot be taken back.
pub(crate) fn limit_answers<'a, S: Answers<Routed> + 'a>(
    bodies: &'a Bodies,
    mut inner: S,
) -> impl Answers<Routed> + 'a {
    service_fn(move |routed: Routed| {
        let size = routed.route.size();
        inner.call(routed).map_ok(move |response| match size {
            BodySize::Batch => response,
            _ => take_room(bodies.budget(), response),
        })
    })
}

/// Gives an answer its share of the budget. One that finds no room is not given, which its body is
/// told by being dropped: pulled tasks go back.
pub(crate) fn take_room(budget: &Budget, response: Response) -> Response {
    let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    if length <= SMALL_ANSWER {
        return response;
    }
    match budget.answer(length) {
        Ok(share) => response.map(|body| Body::new(Accounted { body, share: Arc::new(share) })),
        Err(Exhausted) => Error::Unavailable(
            "too many answers are waiting to be read, so nothing was taken: repeat it",
        )
        .into_response(),
    }
}

/// An answer with its share, which goes with the bytes, for the server keeps those longer than the
/// body that gave them. It tells its length, or the answer would have no `content-length`.
struct Accounted {
    body: Body,
    share: Arc<OwnedSemaphorePermit>,
}

impl http_body::Body for Accounted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(
            frame.map(|frame| {
                frame.map(|frame| frame.map_data(|data| held(data, self.share.clone())))
            }),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
