//! The memory budget for answers: an answer counts until its caller has read it.

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

/// Shorter answers do not count: the number of connections bounds them.
const SMALL_ANSWER: usize = 1024;

/// Takes each answer's share of the budget. Answers to batches are exempt, because what they stored
/// cannot be undone.
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

/// Takes the answer's share. If the budget is used up, the answer is dropped: its body then returns
/// pulled tasks to the store.
pub(crate) fn take_room(budget: &Budget, response: Response) -> Response {
    let length = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    if length <= SMALL_ANSWER {
        return response;
    }
    match budget.answer(length) {
        Ok(share) => response.map(|body| Body::new(Accounted { body, share: Arc::new(share) })),
        Err(Exhausted) => Error::Unavailable(
            "too many bytes of answers at once, so this one was dropped and nothing was pulled: \
             repeat it",
        )
        .into_response(),
    }
}

/// An answer and its share. The share belongs to the bytes, because the server keeps them longer
/// than the body. The size hint is passed on: without it, the answer would have no
/// `content-length`.
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
