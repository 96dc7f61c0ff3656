//! The body of a call, which knows whether the call has begun.
//!
//! The library asks for a body once its request has a connection, and with HTTP/2 a stream of it. Until then the request can be withdrawn:
//! its body then ends in an error, so that not even a server that gets the head later takes it for a request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// A call's body.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Full<Bytes>,
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
        Self { bytes: Full::new(bytes), beginning: None }
    }

    /// One that tells when it begins. Not for empty bytes, which nobody asks for.
    pub(super) fn watched(bytes: Bytes) -> (Self, Beginning) {
        let beginning = Beginning(Arc::new(AtomicU8::new(WAITING)));
        (Self { bytes: Full::new(bytes), beginning: Some(beginning.clone()) }, beginning)
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
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Withdrawn>>> {
        if let Some(beginning) = self.beginning.take()
            && !beginning.turn(BEGUN)
        {
            return Poll::Ready(Some(Err(Withdrawn)));
        }
        Pin::new(&mut self.bytes).poll_frame(context).map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}
