//! The body of a call, which knows whether the call has begun.
//!
//! A watched body comes in two parts. The library is given so little room for what an HTTP/2 stream
//! sends ([`SEND_BUFFER`]) that it asks for the second part only when the first is on its way: when
//! the request has a stream. (It asks for the first part before that.) Until then the request can
//! be withdrawn: its body then ends in an error, so that not even a server that gets the head later
//! takes it for a request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The room for what a stream sends, in bytes: as long as the first part.
pub(super) const SEND_BUFFER: usize = 1;

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A call's body.
#[derive(Debug)]
pub(super) struct Content {
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

impl Content {
    pub(super) fn new(bytes: Bytes) -> Self {
        Self { rest: bytes, is_split: false, beginning: None }
    }

    /// One that tells when it begins, of more bytes than the first part has.
    pub(super) fn watched(bytes: Bytes) -> (Self, Beginning) {
        let beginning = Beginning(Arc::new(AtomicU8::new(WAITING)));
        (Self { rest: bytes, is_split: false, beginning: Some(beginning.clone()) }, beginning)
    }
}

impl Beginning {
    /// Withdraws the call unless it has begun. Answers whether it is withdrawn.
    pub(super) fn withdraw(&self) -> bool {
        self.turn(WITHDRAWN)
    }

    fn turn(&self, to: u8) -> bool {
        self.0.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Body for Content {
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
