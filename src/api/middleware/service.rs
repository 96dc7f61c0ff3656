//! What the services of the pipeline have in common.

use std::convert::Infallible;

use axum::response::Response;
use tower::Service;

/// A service that answers every `R`, errors included.
///
/// It is always ready: requests wait for a slot in `concurrency_limit` and nowhere else. So it is
/// called without being polled for readiness. Copying it is free: it holds references alone.
pub(crate) trait Answers<R>:
    Service<R, Response = Response, Error = Infallible, Future: Send> + Copy + Send
{
}

impl<R, S> Answers<R> for S where
    S: Service<R, Response = Response, Error = Infallible, Future: Send> + Copy + Send
{
}
