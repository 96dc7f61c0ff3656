//! Delivery confirmation: a response body that reports whether it was written.
//!
//! A pull without `lease` consumes its tasks when its answer has been written. A caller that
//! disconnects earlier must not lose them. A handler cannot know this, because it only returns a
//! response. But the server takes the body piece by piece, and drops it if the connection fails:
//!
//! ```text
//! all but the last byte ─▶ pause ─▶ the last byte ─▶ Written
//!        dropped anywhere before ──────────────────▶ NotWritten
//! ```
//!
//! In the pause the body returns `Pending` and wakes itself. hyper then flushes to the socket and
//! starts its loop again with a read, which detects a closed connection. hyper may poll a pending
//! body twice without a read in between, so the pause takes two polls. hyper polls for the last
//! byte of a body larger than its write buffer only after the socket has accepted the rest
//! ([`crate::api::transport::connection`] keeps the buffer small).
//!
//! The last byte is also withheld after the deadline, which is before the end of the lease: another
//! consumer may have the tasks by then.
//!
//! Because of `content-length`, an answer without its last byte is not complete. So a caller has
//! not received what is `NotWritten`. The reverse does not hold: a written answer may be lost on
//! its way.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

/// How often the body returns `Pending` before its last byte.
const PAUSES: u8 = 2;

/// Whether an answer was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmation {
    /// The connection has accepted all of it.
    Written,
    /// The connection ended earlier.
    NotWritten,
}

/// A body of `bytes` that calls `then` exactly once, with the result. It is `Written` before
/// `deadline` or not at all. `then` may run on any thread and must not block. An empty body is
/// never `Written`.
pub(crate) fn watched(
    bytes: Bytes,
    deadline: Instant,
    then: impl FnOnce(Confirmation) + Send + 'static,
) -> Body {
    Body::new(WatchedBody { left: bytes, deadline, pauses: 0, then: Some(then) })
}

/// Ends a body whose last byte is withheld.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time")]
struct TooLate;

struct WatchedBody<F: FnOnce(Confirmation)> {
    left: Bytes,
    deadline: Instant,
    pauses: u8,
    /// `None` after it was called.
    then: Option<F>,
}

impl<F: FnOnce(Confirmation)> WatchedBody<F> {
    fn tell(&mut self, confirmation: Confirmation) {
        if let Some(then) = self.then.take() {
            then(confirmation);
        }
    }
}

impl<F: FnOnce(Confirmation)> Drop for WatchedBody<F> {
    fn drop(&mut self) {
        self.tell(Confirmation::NotWritten);
    }
}

// No field needs pinning.
impl<F: FnOnce(Confirmation)> Unpin for WatchedBody<F> {}

impl<F: FnOnce(Confirmation)> http_body::Body for WatchedBody<F> {
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
