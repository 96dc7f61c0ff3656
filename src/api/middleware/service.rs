//! The trait of the pipeline's services.

use std::convert::Infallible;

use axum::response::Response;
use tower::Service;

/// A service that answers every `R`, also with errors.
///
/// It is always ready, because requests wait for a slot only in `concurrency_limit`. So it is
/// called without `poll_ready`. Copying it is free, because it holds only references.
pub(crate) trait Answers<R>:
    Service<R, Response = Response, Error = Infallible, Future: Send> + Copy + Send
{
}

impl<R, S> Answers<R> for S where
    S: Service<R, Response = Response, Error = Infallible, Future: Send> + Copy + Send
{
}
