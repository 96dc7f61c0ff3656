//! An answer that knows whether it was written.
//!
//! A pull without `lease` consumes its tasks when its answer has been written, and a caller who
//! hung up before loses nothing. An HTTP handler cannot know that: it hands over a response and is
//! done. But the server takes the *body* piece by piece, and drops it when the connection fails. So
//! the body reports its own confirmation:
//!
//! ```text
//! all but the last byte ─▶ pause ─▶ the last byte ─▶ Written
//!        dropped anywhere before ──────────────────▶ NotWritten
//! ```
//!
//! The pause is a `Pending` that wakes itself. It makes hyper flush what it has to the socket, and
//! go round its loop, which begins with a read: there it notices that the caller is gone. hyper may
//! ask a pending body twice in one round, without a read in between, so the pause is two long. A
//! body that does not fit into hyper's write buffer ([`crate::api::transport::listener`] keeps it
//! small) is not asked for its last byte at all before the rest is in the socket.
//!
//! A caller who reads so slowly that the tasks' lease is about to run out does not get the last
//! byte either: by then another may have them.
//!
//! Without the last byte no caller can take the answer for a whole one, because of its
//! `content-length`. So what was given back was not received. The reverse is not certain: what was
//! written may be lost on the way, as always.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

/// How often the body says `Pending` before its last byte.
const PAUSES: u8 = 2;

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// All of it went to the connection.
    Written,
    /// The connection ended before.
    NotWritten,
}

/// A body of `bytes` that calls `then` exactly once, when its confirmation is known: `Written` at
/// `deadline` at the latest. `then` may run anywhere, and must not block. An empty body is never
/// `Written`.
pub(crate) fn watched(
    bytes: Bytes,
    deadline: Instant,
    then: impl FnOnce(Confirmation) + Send + 'static,
) -> Body {
    Body::new(Watched { left: bytes, deadline, pauses: 0, then: Some(then) })
}

/// Ends a body whose last byte may not be given any more.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time")]
struct TooLate;

struct Watched<F: FnOnce(Confirmation)> {
    left: Bytes,
    deadline: Instant,
    pauses: u8,
    /// Taken when it is called.
    then: Option<F>,
}

impl<F: FnOnce(Confirmation)> Watched<F> {
    fn tell(&mut self, confirmation: Confirmation) {
        if let Some(then) = self.then.take() {
            then(confirmation);
        }
    }
}

impl<F: FnOnce(Confirmation)> Drop for Watched<F> {
    fn drop(&mut self) {
        self.tell(Confirmation::NotWritten);
    }
}

// Nothing in it is pinned.
impl<F: FnOnce(Confirmation)> Unpin for Watched<F> {}

impl<F: FnOnce(Confirmation)> http_body::Body for Watched<F> {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        let this = &mut *self;
        match this.left.len() {
            0 => Poll::Ready(None),
            1 if this.pauses < PAUSES => {
                this.pauses += 1;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            1 if Instant::now() >= this.deadline => {
                this.tell(Confirmation::NotWritten);
                Poll::Ready(Some(Err(TooLate)))
            }
            1 => {
                let last = std::mem::take(&mut this.left);
                this.tell(Confirmation::Written);
                Poll::Ready(Some(Ok(Frame::data(last))))
            }
            length => Poll::Ready(Some(Ok(Frame::data(this.left.split_to(length - 1))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
#[path = "delivery_confirmation_tests.rs"]
mod tests;
