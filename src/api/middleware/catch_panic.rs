//! Answers 500 if a handler panics, and keeps the connection open.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::pin;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tower::service_fn;

use crate::api::middleware::service::Answers;
use crate::api::wire::error::Error;
use crate::api::wire::request_id;

/// Answers 500 if `inner` panics. The panic hook logs the location.
pub(crate) fn catch_panic<S: Answers<Request>>(inner: S) -> impl Answers<Request> {
    service_fn(move |request: Request| async move {
        let mut inner = inner;
        let answer = pin!(inner.call(request));
        let answered = AssertUnwindSafe(answer).catch_unwind().await;
        answered.unwrap_or_else(|panic| Ok(panicked(&*panic)))
    })
}

fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
    tracing::error!(request_id = request_id::current(), "A request's handler panicked: {text}");
    Error::Internal.into_response()
}
