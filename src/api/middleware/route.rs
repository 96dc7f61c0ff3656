//! A route as `api::routes` declares it.

use std::future::Future;
use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodRouter, post};
use http::Method;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::auth::{About, Access};
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::schema::{Described, described};
use crate::model::token::Scope;

/// One row of the table.
pub(crate) struct Route {
    /// Its number in the table, from 0. The row of unknown paths comes after the last.
    pub(crate) row: usize,
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    /// The longest body of a call.
    pub(crate) size: BodySize,
    /// The handler, and its method: `POST` for a call, `GET` for anything else.
    pub(crate) handler: MethodRouter<Arc<Api>>,
    /// Whether the call changes nothing: its errors then do not speak of confirmation.
    pub(crate) only_reads: bool,
    /// Its part of the OpenAPI document. The files of the pages at `/` and `/docs` have none.
    pub(crate) operation: Option<Operation>,
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

/// The route's part of the OpenAPI document.
pub(crate) struct Operation {
    pub(crate) group: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Option<fn() -> Described>,
    pub(crate) answer: RouteAnswer,
    /// Error codes in addition to those of every call.
    pub(crate) errors: &'static [u16],
    /// Whether it reads the header `Idempotency-Key`.
    pub(crate) takes_key: bool,
}

/// The successful answer of a route.
pub(crate) enum RouteAnswer {
    /// JSON of one of these types.
    Json(Vec<fn() -> Described>),
    /// JSON with one of these HTTP statuses.
    Health(fn() -> Described, &'static [u16]),
    /// Server-sent events with JSON of this type.
    Events(fn() -> Described),
    /// Text of this content type.
    Text(&'static str),
}

/// A handler whose signature names the types of its call: its last argument is the request, and its
/// result has the answer.
pub(crate) trait TypedHandler<T>: Handler<T, Arc<Api>> {
    type Request: ToSchema;
    type Answer: ToSchema + Serialize;
}

/// Declares this for handlers with these arguments before the request.
macro_rules! typed_handler {
    ($($argument:ident)*) => {
        impl<H, M, R, Q, A, $($argument),*> TypedHandler<(M, $($argument,)* Json<Q>)> for H
        where
            H: FnOnce($($argument,)* Json<Q>) -> R + Handler<(M, $($argument,)* Json<Q>), Arc<Api>>,
            R: Future<Output = Result<Success<A>, Error>>,
            Q: ToSchema,
            A: ToSchema + Serialize,
        {
            type Request = Q;
            type Answer = A;
        }
    };
}

typed_handler!(State);
typed_handler!(State First);
typed_handler!(State First Second);

impl Route {
    /// A call under `/delay/`: its caller needs a token with one of the scopes that covers the
    /// topics of the call. Unless the row says otherwise, it carries no content. The signature of
    /// its handler has the types of request and answer.
    pub(crate) fn call<H: TypedHandler<T>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        access: (&'static [Scope], About),
        handler: H,
    ) -> Self
    where
        delayd_wire::SuccessAnswer<H::Answer>: ToSchema,
    {
        Self::raw(path, summary, access, handler).reads::<H::Request>().answers::<H::Answer>()
    }

    /// As [`Route::call`], for a handler that reads the body or writes the answer itself: the row
    /// has the types.
    pub(crate) fn raw<H: Handler<T, Arc<Api>>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        (scopes, about): (&'static [Scope], About),
        handler: H,
    ) -> Self {
        let group = path.split('/').nth(2).expect("/delay/<group>/<verb>");
        let answer = RouteAnswer::Json(Vec::new());
        let operation =
            Operation { group, summary, request: None, answer, errors: &[], takes_key: false };
        Self {
            access: Access::Token(scopes, about),
            only_reads: false,
            operation: Some(operation),
            ..Self::part(path, post(handler))
        }
    }

    /// A page beside the API. It is open to everyone unless its row says otherwise.
    pub(crate) fn page(
        path: &'static str,
        summary: &'static str,
        answer: RouteAnswer,
        page: MethodRouter<Arc<Api>>,
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
    pub(crate) fn part(path: &'static str, handler: MethodRouter<Arc<Api>>) -> Self {
        Self {
            row: 0,
            path,
            access: Access::Open,
            size: BodySize::Small,
            handler,
            only_reads: true,
            operation: None,
        }
    }

    /// Sets who may request a page: a token with one of the scopes, for all topics.
    pub(crate) fn needs(self, scopes: &'static [Scope]) -> Self {
        Self { access: Access::Token(scopes, About::All), ..self }
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
    pub(crate) fn body(self, size: BodySize) -> Self {
        Self { size, ..self }
    }

    /// Sets the type of the request.
    pub(crate) fn reads<Q: ToSchema>(self) -> Self {
        self.documented(|operation| operation.request = Some(described::<Q>))
    }

    /// Adds a type of the answer. A call with several types answers with any of them.
    pub(crate) fn answers<A: ToSchema + Serialize>(self) -> Self
    where
        delayd_wire::SuccessAnswer<A>: ToSchema,
    {
        self.documented(|operation| {
            if let RouteAnswer::Json(answers) = &mut operation.answer {
                answers.push(described::<delayd_wire::SuccessAnswer<A>>);
            }
        })
    }

    /// Sets the type of the server-sent events that are the answer.
    pub(crate) fn streams<E: ToSchema>(self) -> Self {
        self.documented(|operation| operation.answer = RouteAnswer::Events(described::<E>))
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

    /// Whether it is a call. Anything else is a page.
    pub(crate) fn is_call(&self) -> bool {
        self.path.starts_with("/delay/")
    }

    /// The only method of the route.
    pub(crate) fn method(&self) -> Method {
        if self.is_call() { Method::POST } else { Method::GET }
    }
}
