//! Headers of every answer: the request's id, and `connection: close` while leaving.
//!
//! A caller who repeats a request then opens a connection to another instance, and does not meet
//! one that is being closed. HTTP/2 has no such header; its connections are shut down by the
//! listener.

use std::pin::pin;

use axum::extract::Request;
use http::{HeaderValue, Version, header};
use tower::service_fn;

use crate::api::middleware::service::Answers;
use crate::api::state::Api;
use crate::api::wire::request_id;

/// Runs each request with its id. Closes connections while the instance is leaving.
pub(crate) fn answer_head<'a, S: Answers<Request> + 'a>(
    api: &'a Api,
    inner: S,
) -> impl Answers<Request> + 'a {
    service_fn(move |request: Request| async move {
        let mut inner = inner;
        let (id, version) = (request_id::of(request.headers()), request.version());
        let answer = pin!(inner.call(request));
        let Ok(mut response) = request_id::scope(id, answer).await;
        if version != Version::HTTP_2 && api.is_leaving() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    })
}
