//! A route as `api::routes` declares it, and a request on its way to its handler.
//!
//! A call about tasks is found by one look into a table. An axum router does more for a request
//! than to find its handler: it copies itself and each service on the way, and keeps the route's
//! name with the request. That was a tenth of what an add costs. So the router has the pages, and
//! answers calls by another method.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Method, Request, Uri};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::auth::{About, Access, Caller};
use crate::api::middleware::concurrency_limit::Slot;
use crate::api::middleware::deadline::Deadline;
use crate::api::state::Api;
use crate::api::wire::error::{self, Error};
use crate::api::wire::schema::{Described, described};
use crate::model::token::Scope;

/// A request that may be worked on. `B` is its body: read by the middleware, it is `Bytes`.
pub(crate) struct Routed<B = Bytes> {
    pub(crate) route: &'static Route,
    pub(crate) request: Request<B>,
    pub(crate) caller: Caller,
    /// What outlives the request may take it along.
    pub(crate) slot: Slot,
    pub(crate) deadline: Deadline,
}

/// What stands for all paths that are no route, in metrics.
pub(crate) const OTHER: &str = "other";

/// One row of the table.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) target: Target,
    /// Whether it changes nothing: its errors do not speak of confirmation.
    pub(crate) only_reads: bool,
    /// Its part of the OpenAPI document; parts of the page at `/docs` have none.
    pub(crate) operation: Option<Operation>,
}

/// What answers.
pub(crate) enum Target {
    /// A call about tasks: `POST`, worked on within limits.
    Call { size: BodySize, handler: Handler },
    /// Anything else: `GET`, answered at any time.
    Page(fn() -> MethodRouter<Arc<Api>>),
}

/// How long a call's body may be, and which part of the memory for bodies it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// Many tasks.
    Batch,
    /// One task's content.
    Content,
    /// No content.
    Small,
}

/// Boxed once, here: handlers have futures of different types.
type Handler = Box<dyn Fn(Arc<Api>, Routed) -> Answering + Send + Sync>;
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// What the document says of a route.
pub(crate) struct Operation {
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Option<fn() -> Described>,
    pub(crate) answer: Answer,
    /// The cases of errors that it may meet beside those that every call may.
    pub(crate) errors: &'static [u16],
    /// Whether it reads the header `Idempotency-Key`.
    pub(crate) takes_key: bool,
}

/// What a route answers when all is well.
pub(crate) enum Answer {
    /// One of these.
    Json(Vec<fn() -> Described>),
    /// Two states, each with its HTTP status.
    Health(fn() -> Described, &'static [u16]),
    /// Another kind of text.
    Text(&'static str),
}

impl Route {
    /// A call under `/delay/`. It is for `admin` and about one topic, and brings no content, unless
    /// its row says otherwise.
    pub(crate) fn call<F, A>(
        path: &'static str,
        summary: &'static str,
        handler: impl Fn(Arc<Api>, Routed) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = A> + Send + 'static,
        A: IntoResponse + 'static,
    {
        let handler: Handler = Box::new(move |api, routed| {
            Box::pin(handler(api, routed).map(IntoResponse::into_response))
        });
        let group = path.split('/').nth(2).expect("/delay/<group>/<verb>");
        let answer = Answer::Json(Vec::new());
        let operation =
            Operation { group, summary, request: None, answer, errors: &[], takes_key: false };
        Self {
            path,
            access: Access::Token(&[Scope::Admin], About::Topic),
            target: Target::Call { size: BodySize::Small, handler },
            only_reads: false,
            operation: Some(operation),
        }
    }

    /// Something to be read beside the API. It is open to everyone unless its row says otherwise.
    pub(crate) fn page(
        path: &'static str,
        summary: &'static str,
        answer: Answer,
        page: fn() -> MethodRouter<Arc<Api>>,
    ) -> Self {
        let operation = Operation {
            group: "beside",
            summary,
            request: None,
            answer,
            errors: &[],
            takes_key: false,
        };
        Self { operation: Some(operation), ..Self::part(path, page) }
    }

    /// A part of a page. It is no operation of its own.
    pub(crate) fn part(path: &'static str, page: fn() -> MethodRouter<Arc<Api>>) -> Self {
        Self {
            path,
            access: Access::Open,
            target: Target::Page(page),
            only_reads: true,
            operation: None,
        }
    }

    /// Who may call it: a token with one of the scopes, that covers what the call is about.
    pub(crate) fn access(self, scopes: &'static [Scope], about: About) -> Self {
        Self { access: Access::Token(scopes, about), ..self }
    }

    /// It changes nothing.
    pub(crate) fn only_reads(self) -> Self {
        Self { only_reads: true, ..self }
    }

    /// How long its body may be.
    pub(crate) fn body(mut self, longest: BodySize) -> Self {
        if let Target::Call { size, .. } = &mut self.target {
            *size = longest;
        }
        self
    }

    /// The fields of its request.
    pub(crate) fn reads<Q: ToSchema>(self) -> Self {
        self.documented(|operation| operation.request = Some(described::<Q>))
    }

    /// The fields of its answer; said twice, either may come.
    pub(crate) fn answers<A: ToSchema + Serialize>(self) -> Self
    where
        delayd_wire::Answer<A>: ToSchema,
    {
        self.documented(|operation| {
            if let Answer::Json(answers) = &mut operation.answer {
                answers.push(described::<delayd_wire::Answer<A>>);
            }
        })
    }

    /// The cases of errors that it may meet beside those that every call may.
    pub(crate) fn errors(self, errors: &'static [u16]) -> Self {
        self.documented(|operation| operation.errors = errors)
    }

    /// It reads the header `Idempotency-Key`.
    pub(crate) fn takes_key(self) -> Self {
        self.documented(|operation| operation.takes_key = true)
    }

    fn documented(mut self, says: impl FnOnce(&mut Operation)) -> Self {
        if let Some(operation) = &mut self.operation {
            says(operation);
        }
        self
    }

    /// The one method that it takes.
    pub(crate) fn method(&self) -> Method {
        match self.target {
            Target::Call { .. } => Method::POST,
            Target::Page(_) => Method::GET,
        }
    }

    pub(crate) fn size(&self) -> BodySize {
        match self.target {
            Target::Call { size, .. } => size,
            Target::Page(_) => BodySize::Small,
        }
    }
}

impl Routed {
    /// Calls the route's handler.
    pub(crate) fn handled(self, api: Arc<Api>) -> Answering {
        match &self.route.target {
            Target::Call { handler, .. } if self.route.only_reads => {
                Box::pin(error::reading(handler(api, self)))
            }
            Target::Call { handler, .. } => handler(api, self),
            Target::Page(_) => Box::pin(async { Error::Internal.into_response() }),
        }
    }
}

/// The table, by path.
pub(crate) struct Routes {
    all: Vec<Route>,
    by_path: HashMap<&'static str, usize>,
    /// For what is posted to a path below `/delay/` that is no route: it is read and checked as
    /// calls are, so that the answer tells nothing to callers without `admin`.
    unknown: Route,
}

impl Routes {
    /// # Panics
    /// If two rows have one path.
    pub(crate) fn of(all: Vec<Route>) -> Self {
        let by_path: HashMap<_, _> =
            all.iter().enumerate().map(|(row, route)| (route.path, row)).collect();
        assert_eq!(by_path.len(), all.len(), "two routes have one path");
        Self { all, by_path, unknown: Route::call("/delay//", "", async |_, _| Error::no_route()) }
    }

    /// The rows, in order.
    pub(crate) fn all(&self) -> &[Route] {
        &self.all
    }

    /// The call that a request asks for. `None`: it is no call, and is for the router of the pages.
    pub(crate) fn call(&self, method: &Method, path: &str) -> Option<&Route> {
        if method != Method::POST {
            return None;
        }
        match self.find(path) {
            Some(route) => matches!(route.target, Target::Call { .. }).then_some(route),
            None => path.starts_with("/delay/").then_some(&self.unknown),
        }
    }

    /// Who may ask for a path, whatever the method. What is no route asks for `admin`, so that a
    /// route that somebody adds past the table is closed.
    pub(crate) fn access(&self, path: &str) -> Access {
        match self.find(path) {
            Some(route) => route.access,
            None if path.starts_with("/docs/") => Access::Open,
            None if path.starts_with("/delay/") => self.unknown.access,
            None => Access::Token(&[Scope::Admin], About::Nothing),
        }
    }

    /// The name of a request's route in metrics.
    pub(crate) fn label(&self, path: &str) -> &'static str {
        self.find(path).map_or(OTHER, |route| route.path)
    }

    fn find(&self, path: &str) -> Option<&Route> {
        self.by_path.get(path).map(|row| &self.all[*row])
    }

    /// What answers everything that is no call: pages, other methods, and paths that are no route.
    pub(crate) fn router(&self, api: Arc<Api>) -> Router {
        let add = |router: Router<Arc<Api>>, route: &Route| match route.target {
            // For those who ask for a call by another method.
            Target::Call { .. } => router.route(route.path, post(no_way_here)),
            Target::Page(page) => router.route(route.path, page()),
        };
        let routes = self.all.iter().fold(Router::new(), add);
        routes.fallback(no_such_route).method_not_allowed_fallback(wrong_method).with_state(api)
    }
}

/// A call that comes by the router has passed no authorization. That is a bug, and the way stays
/// closed.
async fn no_way_here() -> Error {
    Error::Internal
}

async fn no_such_route() -> Error {
    Error::no_route()
}

async fn wrong_method(uri: Uri) -> Error {
    Error::MethodNotAllowed(if uri.path().starts_with("/delay/") { "POST" } else { "GET" })
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.all.iter().map(|route| route.path)).finish()
    }
}
