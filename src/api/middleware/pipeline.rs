//! The one way in: the services that every request passes, from the outside in.
//!
//! ```text
//! answer's head ─▶ log ─▶ panic ─▶ admission ─┬▶ page
//!   ┌─────────────────────────────────────────┘
//!   └▶ timeout ─▶ body, and the topic in it ─▶ answer's memory ─▶ handler
//! ```

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use tokio::sync::watch;
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

/// What the services work with.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) api: Arc<Api>,
    pub(crate) admission: Admission,
    pub(crate) bodies: Bodies,
    /// True from the moment on at which callers are to go elsewhere.
    pub(crate) draining: watch::Receiver<bool>,
}

impl Pipeline {
    /// The services. They borrow what they work with, so a request clones one `Arc` for all of
    /// them.
    fn service(&self) -> impl Answers<Request> {
        let call = limit_answers(&self.bodies, handle(&self.api));
        let call = timeout(read_body(&self.bodies, call));
        answer_head(&self.draining, log(catch_panic(admit(&self.admission, call))))
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
            // A future that is handed on by value is copied, whole: this one is pinned where it is
            // made.
            async move { pin!(pipeline.service().call(request)).await }
        })
    }
}

/// Calls the handler, and holds the slot to the answer, whatever becomes of the handler's own.
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
