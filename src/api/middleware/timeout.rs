//! Answers 503 if a request is not answered by its deadline. That includes reading a slow body.

use std::pin::pin;

use axum::body::Body;
use axum::response::IntoResponse;
use tower::service_fn;

use crate::api::middleware::route::Routed;
use crate::api::middleware::service::Answers;
use crate::api::wire::error::Error;

/// Enforces the deadline of a request, which a handler may extend.
pub(crate) fn timeout<S: Answers<Routed<Body>>>(inner: S) -> impl Answers<Routed<Body>> {
    service_fn(move |routed: Routed<Body>| async move {
        let mut inner = inner;
        let (deadline, only_reads) = (routed.deadline.clone(), routed.route.only_reads);
        let mut answer = pin!(inner.call(routed));
        loop {
            let moment = deadline.moment();
            match tokio::time::timeout_at(moment, answer.as_mut()).await {
                Ok(response) => return response,
                Err(_) if deadline.moment() > moment => {}
                Err(_) => {
                    let slow = match only_reads {
                        true => "the request took too long: try again",
                        false => "the request took too long, so it is not confirmed: repeat it",
                    };
                    return Ok(Error::Unavailable(slow).into_response());
                }
            }
        }
    })
}
