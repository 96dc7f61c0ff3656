//! Answers 500 if a handler panics, and keeps the connection open.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::api::wire::error::Error;
use crate::api::wire::request_id;

/// The answer, or 500 if it panics. The panic hook logs the location.
pub(crate) fn catch_panic(
    answer: impl Future<Output = Response>,
) -> impl Future<Output = Response> {
    let answer = AssertUnwindSafe(answer).catch_unwind();
    answer.map(|answer| answer.unwrap_or_else(|panic| panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    tracing::error!(request_id = request_id::current(), "A request's handler panicked: {text}");
    Error::Internal.into_response()
}
