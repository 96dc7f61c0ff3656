//! A route as `api::routes` declares it, and a request on its way to its handler.
//!
//! Calls are dispatched by one lookup in a hash map. An axum router costs more: for each request it
//! clones itself and every service, and stores the matched path. That was a tenth of the cost of an
//! add. So only pages, and calls with a wrong method, go through a router.

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
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::concurrency_limit::Slot;
use crate::api::middleware::deadline::Deadline;
use crate::api::state::Api;
use crate::api::wire::error::{self, Error};
use crate::api::wire::schema::{Described, described};
use crate::model::token::Scope;

/// An admitted request. `B` is its body; after it has been read, `Bytes`.
pub(crate) struct Routed<B = Bytes> {
    pub(crate) route: &'static Route,
    pub(crate) request: Request<B>,
    pub(crate) caller: Caller,
    /// Work that outlives the request may hold a clone.
    pub(crate) slot: Slot,
    pub(crate) deadline: Deadline,
    /// Where the audit log learns what the call is about, if it records the call.
    pub(crate) target: Option<KnownTarget>,
}

/// What stands for all paths that are no route, in metrics.
pub(crate) const OTHER: &str = "other";

/// One row of the table.
pub(crate) struct Route {
    /// Its number in the table, from 0. The row of unknown paths comes after the last.
    row: usize,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) target: Target,
    /// Whether the call changes nothing: its errors then do not speak of confirmation.
    pub(crate) only_reads: bool,
    /// Its part of the OpenAPI document. The files of the pages at `/` and `/docs` have none.
    pub(crate) operation: Option<Operation>,
}

/// What answers the route.
pub(crate) enum Target {
    /// A call: `POST`, within the limits of the middleware.
    Call { size: BodySize, handler: Handler },
    /// Anything else: `GET`, without these limits.
    Page(fn() -> MethodRouter<Arc<Api>>),
}

/// The longest body of a call, and the part of the memory budget that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// Many tasks.
    Batch,
    /// One task's content.
    Content,
    /// No content.
    Small,
}

/// Boxed, because handlers have futures of different types.
type Handler = Box<dyn Fn(Arc<Api>, Routed) -> Answering + Send + Sync>;
type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// The route's part of the OpenAPI document.
pub(crate) struct Operation {
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Option<fn() -> Described>,
    pub(crate) answer: Answer,
    /// Error codes in addition to those of every call.
    pub(crate) errors: &'static [u16],
    /// Whether it reads the header `Idempotency-Key`.
    pub(crate) takes_key: bool,
}

/// The successful answer of a route.
pub(crate) enum Answer {
    /// JSON of one of these types.
    Json(Vec<fn() -> Described>),
    /// JSON with one of these HTTP statuses.
    Health(fn() -> Described, &'static [u16]),
    /// Server-sent events with JSON of this type.
    Events(fn() -> Described),
    /// Text of this content type.
    Text(&'static str),
}

impl Route {
    /// A call under `/delay/`. Unless the row says otherwise, it needs `admin`, is about one topic,
    /// and carries no content.
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
            row: 0,
            path,
            access: Access::Token(&[Scope::Admin], About::Topic),
            target: Target::Call { size: BodySize::Small, handler },
            only_reads: false,
            operation: Some(operation),
        }
    }

    /// A page beside the API. It is open to everyone unless its row says otherwise.
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

    /// A file of a page. It has no entry in the OpenAPI document.
    pub(crate) fn part(path: &'static str, page: fn() -> MethodRouter<Arc<Api>>) -> Self {
        Self {
            row: 0,
            path,
            access: Access::Open,
            target: Target::Page(page),
            only_reads: true,
            operation: None,
        }
    }

    /// Sets who may call: a token with one of the scopes that covers the topics of the call.
    pub(crate) fn access(self, scopes: &'static [Scope], about: About) -> Self {
        Self { access: Access::Token(scopes, about), ..self }
    }

    /// Marks a call that changes nothing.
    pub(crate) fn only_reads(self) -> Self {
        Self { only_reads: true, ..self }
    }

    /// Whether the audit log records its calls: it needs `admin`, and changes something. A cancel
    /// or an update needs `produce`, so it is no administrative action, whatever else the token
    /// may do.
    pub(crate) fn is_recorded(&self) -> bool {
        let needs_admin = match self.access {
            Access::Token(scopes, _) => scopes.contains(&Scope::Admin),
            Access::Open => false,
        };
        needs_admin && !self.only_reads
    }

    /// Sets the longest body.
    pub(crate) fn body(mut self, longest: BodySize) -> Self {
        if let Target::Call { size, .. } = &mut self.target {
            *size = longest;
        }
        self
    }

    /// Sets the type of the request.
    pub(crate) fn reads<Q: ToSchema>(self) -> Self {
        self.documented(|operation| operation.request = Some(described::<Q>))
    }

    /// Adds a type of the answer. A call with several types answers with any of them.
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

    /// Sets the type of the server-sent events that are the answer.
    pub(crate) fn streams<E: ToSchema>(self) -> Self {
        self.documented(|operation| operation.answer = Answer::Events(described::<E>))
    }

    /// Sets the error codes in addition to those of every call.
    pub(crate) fn errors(self, errors: &'static [u16]) -> Self {
        self.documented(|operation| operation.errors = errors)
    }

    /// Marks a call that reads the header `Idempotency-Key`.
    pub(crate) fn takes_key(self) -> Self {
        self.documented(|operation| operation.takes_key = true)
    }

    fn documented(mut self, says: impl FnOnce(&mut Operation)) -> Self {
        if let Some(operation) = &mut self.operation {
            says(operation);
        }
        self
    }

    /// The only method of the route.
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

/// The table, with an index by path.
pub(crate) struct Routes {
    all: Vec<Route>,
    by_path: HashMap<&'static str, usize>,
    /// Handles a `POST` to an unknown path below `/delay/`. Its body is read and checked like a
    /// call's, so callers without `admin` cannot find out which routes exist.
    unknown: Route,
}

impl Routes {
    /// Indexes the rows.
    ///
    /// # Panics
    /// If two rows have the same path.
    pub(crate) fn of(mut all: Vec<Route>) -> Self {
        all.iter_mut().enumerate().for_each(|(row, route)| route.row = row);
        let by_path: HashMap<_, _> =
            all.iter().enumerate().map(|(row, route)| (route.path, row)).collect();
        assert_eq!(by_path.len(), all.len(), "two routes have one path");
        let unknown = Route::call("/delay//", "", async |_, _| Error::no_route());
        let row = all.len();
        Self { all, by_path, unknown: Route { row, ..unknown.only_reads() } }
    }

    /// The rows, in order.
    pub(crate) fn all(&self) -> &[Route] {
        &self.all
    }

    /// The row of a call; `None` if the request is for the router of the pages.
    pub(crate) fn call(&self, method: &Method, path: &str) -> Option<&Route> {
        if method != Method::POST {
            return None;
        }
        match self.find(path) {
            Some(route) => matches!(route.target, Target::Call { .. }).then_some(route),
            None => path.starts_with("/delay/").then_some(&self.unknown),
        }
    }

    /// Who may request a path, with any method. An unknown path needs `admin`, so a route that is
    /// added past the table is closed.
    pub(crate) fn access(&self, path: &str) -> Access {
        match self.find(path) {
            Some(route) => route.access,
            None if path.starts_with("/docs/") => Access::Open,
            None if path.starts_with("/delay/") => self.unknown.access,
            None => Access::Token(&[Scope::Admin], About::All),
        }
    }

    /// The number of a request's row; `call` is its row if it is a call.
    pub(crate) fn row(&self, call: Option<&Route>, path: &str) -> usize {
        call.or_else(|| self.find(path)).unwrap_or(&self.unknown).row
    }

    fn find(&self, path: &str) -> Option<&Route> {
        self.by_path.get(path).map(|row| &self.all[*row])
    }

    /// The router for everything that is not a call: pages, other methods, unknown paths.
    pub(crate) fn router(&self, api: Arc<Api>) -> Router {
        let add = |router: Router<Arc<Api>>, route: &Route| match route.target {
            // Makes the router answer 405 for other methods.
            Target::Call { .. } => router.route(route.path, post(unauthorized_call)),
            Target::Page(page) => router.route(route.path, page()),
        };
        let routes = self.all.iter().fold(Router::new(), add);
        routes.fallback(no_such_route).method_not_allowed_fallback(wrong_method).with_state(api)
    }
}

/// A call that arrives through the router has skipped authorization. That is a bug, so it is
/// refused.
async fn unauthorized_call() -> Error {
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
