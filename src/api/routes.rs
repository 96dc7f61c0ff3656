//! The calls about tasks: each path and its handler, which is called past the router.
//!
//! A router does more for a request than to find its handler: it copies itself and each service on the way, and keeps the route's name and
//! its parameters with the request. Of what an add costs the processor that was a tenth. So a POST to one of these paths goes straight to
//! its handler, by one look into a table. The handlers are axum's: their arguments are extracted, from the request and from the [`Desk`].

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{FromRef, FromRequestParts, Request};
use axum::handler::Handler;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;

use crate::api::auth::Caller;
use crate::api::middleware::body::JsonBody;
use crate::api::middleware::context::Visit;
use crate::api::state::Api;
use crate::api::wire::error;

/// What a handler works with, made anew for each request: its state, in axum's words. It lasts until the answer.
pub(crate) struct Desk {
    api: Arc<Api>,
    visit: Visit,
    /// Taken away by the handler, who may have read it long before he answers.
    body: Mutex<Bytes>,
}

impl FromRef<Desk> for Arc<Api> {
    fn from_ref(desk: &Desk) -> Self {
        desk.api.clone()
    }
}

impl FromRef<Desk> for Visit {
    fn from_ref(desk: &Desk) -> Self {
        desk.visit.clone()
    }
}

impl FromRequestParts<Desk> for JsonBody {
    type Rejection = Infallible;

    async fn from_request_parts(_parts: &mut Parts, desk: &Desk) -> Result<Self, Infallible> {
        Ok(Self(std::mem::take(&mut *desk.body.lock().unwrap_or_else(PoisonError::into_inner))))
    }
}

impl FromRequestParts<Desk> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(_parts: &mut Parts, desk: &Desk) -> Result<Self, Infallible> {
        Ok(desk.visit.caller.clone())
    }
}

/// An answer in the making.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// What answers a request, beside which it gets the visit and the body that came.
pub(crate) type Call = Box<dyn Fn(Request, Visit, Bytes) -> Answering + Send + Sync>;

/// All of them, by path.
#[derive(Default)]
pub(crate) struct Calls(HashMap<&'static str, Call>);

impl Calls {
    /// One more.
    pub(crate) fn with(
        mut self,
        path: &'static str,
        call: impl Fn(Request, Visit, Bytes) -> Answering + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(path, Box::new(call));
        self
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }

    pub(crate) fn of(&self, path: &str) -> Option<&Call> {
        self.0.get(path)
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths()).finish()
    }
}

/// The same for a call that changes nothing.
pub(crate) fn reading(
    call: impl Fn(Request, Visit, Bytes) -> Answering,
) -> impl Fn(Request, Visit, Bytes) -> Answering {
    move |request, visit, body| Box::pin(error::reading(call(request, visit, body)))
}

/// The call that a handler answers.
pub(crate) fn by<T: 'static>(
    api: &Arc<Api>,
    handler: impl Handler<T, Desk, Future = Answering>,
) -> impl Fn(Request, Visit, Bytes) -> Answering + Send + Sync + 'static {
    let api = api.clone();
    move |request, visit, body| handler.clone().call(request, Desk { api: api.clone(), visit, body: Mutex::new(body) })
}
