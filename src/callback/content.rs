//! The body of a call. It knows whether the call has begun.
//!
//! A watched body has two parts. The library's send buffer for an HTTP/2 stream ([`SEND_BUFFER`])
//! holds only the first part. So the library asks for the second part only when the first is being
//! sent, which is when the request has a stream. Until then the request can be withdrawn: its body
//! ends in an error, so that a server that gets the head later does not accept the request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The size of the send buffer of a stream, in bytes. The first part has the same size.
pub(super) const SEND_BUFFER: usize = 1;

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A call's body.
#[derive(Debug)]
pub(super) struct CallBody {
    rest: Bytes,
    is_split: bool,
    beginning: Option<Beginning>,
}

/// Whether a call has begun.
#[derive(Clone, Debug)]
pub(super) struct Beginning(Arc<AtomicU8>);

/// The call was withdrawn before it began.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("withdrawn")]
pub(super) struct Withdrawn;

impl CallBody {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { rest: bytes, is_split: false, beginning: None }
    }

    /// A body that shows when it begins. It must have more bytes than the first part.
    pub(super) fn watched(bytes: Bytes) -> (Self, Beginning) {
        let beginning = Beginning(Arc::new(AtomicU8::new(WAITING)));
        (Self { rest: bytes, is_split: false, beginning: Some(beginning.clone()) }, beginning)
    }
}

impl Beginning {
    /// Withdraws the call unless it has begun. Returns whether it did.
    pub(super) fn withdraw(&self) -> bool {
        self.turn(WITHDRAWN)
    }

    fn turn(&self, to: u8) -> bool {
        self.0.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Withdrawn;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if self.beginning.is_some() && !std::mem::replace(&mut self.is_split, true) {
            return Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(SEND_BUFFER)))));
        }
        if self.beginning.take().is_some_and(|beginning| !beginning.turn(BEGUN)) {
            return Poll::Ready(Some(Err(Withdrawn)));
        }
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
