//! How a success becomes an HTTP response.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use serde::Serialize;

use crate::api::wire::envelope::{BEGIN, Success};
use crate::api::wire::error::Error;

impl<T: Serialize> IntoResponse for Success<T> {
    /// Written around the fields' own JSON: `flatten` costs more than all of the fields.
    fn into_response(self) -> Response {
        let mut text = Vec::with_capacity(256);
        text.extend_from_slice(BEGIN.as_bytes());
        let fields = text.len();
        if let Err(error) = serde_json::to_writer(&mut text, &self.fields) {
            tracing::error!(%error, "An answer cannot be written as JSON: {error}");
            return Error::Internal.into_response();
        }
        // The fields' opening brace becomes the comma before the first of them, if there is one.
        match text.get(fields..) {
            Some(b"{}") => drop(text.remove(fields)),
            _ => text[fields] = b',',
        }
        json(text)
    }
}

/// The answer whose JSON has been written.
pub(crate) fn json(text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::wire::envelope::Nothing;

    #[tokio::test]
    async fn an_answer_is_the_envelopes_own_json() {
        #[derive(Clone, Serialize)]
        struct Fields {
            task_id: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            name: Option<&'static str>,
        }
        async fn check(answer: Success<impl Serialize>) {
            let text = serde_json::to_string(&answer).unwrap();
            let response = answer.into_response();
            assert_eq!(response.headers()["content-type"], "application/json");
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!(std::str::from_utf8(&body).unwrap(), text);
        }
        check(Success::of(Fields { task_id: 7, name: Some("\"操") })).await;
        check(Success::of(Fields { task_id: 7, name: None })).await;
        check(Success::of(Nothing {})).await;
    }
}
