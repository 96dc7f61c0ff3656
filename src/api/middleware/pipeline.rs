//! The pipeline: the services that every request passes, from the outside in.
//!
//! ```text
//! answer head ─▶ log ─▶ panic ─▶ admission ─┬▶ page
//!   ┌───────────────────────────────────────┘
//!   └▶ timeout ─▶ body and its topic ─▶ memory of the answer ─▶ handler
//! ```

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use tower::{Service, service_fn};

use crate::api::middleware::admission::{Admission, admit};
use crate::api::middleware::answer_head::answer_head;
use crate::api::middleware::body::{Bodies, read_body};
use crate::api::middleware::catch_panic::catch_panic;
use crate::api::middleware::request_log::log;
use crate::api::middleware::response_budget::limit_answers;
use crate::api::middleware::route::Routed;
use crate::api::middleware::service::Answers;
use crate::api::middleware::timeout::timeout;
use crate::api::state::Api;

/// What the services refer to.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) api: Arc<Api>,
    pub(crate) admission: Admission,
    pub(crate) bodies: Bodies,
}

impl Pipeline {
    /// The composed services. They borrow from the pipeline, so a request clones one `Arc` for all
    /// of them.
    fn service(&self) -> impl Answers<Request> {
        let call = limit_answers(&self.bodies, handle(&self.api));
        let call = timeout(read_body(&self.bodies, call));
        answer_head(&self.api, log(catch_panic(admit(&self.admission, call))))
    }

    /// The pipeline as one service, to be cloned for each request.
    pub(crate) fn shared(
        self,
    ) -> impl Service<Request, Response = Response, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + Sync
    + 'static {
        let pipeline = Arc::new(self);
        service_fn(move |request: Request| {
            let pipeline = pipeline.clone();
            // Pinned here, because a future that is passed on by value is copied.
            async move { pin!(pipeline.service().call(request)).await }
        })
    }
}

/// Calls the handler, and holds the slot until the answer, even if the handler drops its own.
fn handle(api: &Arc<Api>) -> impl Answers<Routed> {
    service_fn(move |routed: Routed| {
        let slot = routed.slot.clone();
        let answer = routed.handled(api.clone());
        async move {
            let _slot = slot;
            Ok(answer.await)
        }
    })
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
