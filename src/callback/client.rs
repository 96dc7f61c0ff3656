//! Makes one call: a POST to an endpoint of a service, and its response.
//!
//! # Stale connections
//!
//! Many servers close a kept-alive connection after a few idle seconds, perhaps at the moment that
//! a call is written on it. The business has then most likely seen nothing. So the call is repeated
//! once, on a new connection, and no attempt is spent. The repeat uses a second client without a
//! pool, because the pool may hold more connections of the same age. If the failed connection was
//! new, the failure is the server's, and is reported. The pool drops connections before the usual
//! five seconds, which makes stale ones rare.
//!
//! The connector marks the tokio task of a call when it has made a connection for it. (A call that
//! waits for a connection, and gets a pooled one at the same moment, counts as new. At worst an
//! attempt is spent.) The library does not tell whether a connection was closed in the middle of
//! the response's head or before it. Both are repeated.
//!
//! If no byte of a call was written yet, the library itself moves it to another connection.
//!
//! # Full connections
//!
//! The library opens one HTTP/2 connection per server. A call beyond the server's limit of streams
//! would wait on it, unsent, without a bound. So a call over TLS that has not begun within
//! [`PATIENCE`] is withdrawn ([`CallBody`]), and sent on a connection of its own by the client
//! without a pool. The same happens if the server refuses it with `REFUSED_STREAM`, which means
//! that it was not processed. There are at most as many such connections as calls, which have
//! limits of their own.

use std::borrow::Cow;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT,
};
use http::uri::Scheme;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::classify::{self, AnswerRules, Reply};
use super::connector::{self, Connector};
use super::content::{self, CallBody};
use super::encoding::{Decoded, decoded};
use super::oauth::AccessToken;
use super::own_tls::ServiceTls;
use super::pair::{Pair, Pairs};
use super::services::Aim;
use super::signature::signatures;
use super::trouble::Trouble;
use super::{Answer, Excerpt, Fault, Service};
use crate::dns::Dns;
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{Headers, Occurrence, Receipt, TaskId, Topic};
use crate::model::trace::{TRACEPARENT, TraceContext};
use crate::trace::Called;

/// How much of a response is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// How long a call may wait for a stream of an HTTP/2 connection.
const PATIENCE: Duration = Duration::from_millis(100);

/// The number of headers of every call, with those of the library (host, content-length). A map
/// with the exact capacity takes half the memory.
const HEADERS: usize = 13;
/// The number of further headers of a signed call.
const SIGNED_HEADERS: usize = 2;

pub(super) const DELAYD: HeaderValue =
    HeaderValue::from_static(concat!("delayd/", env!("CARGO_PKG_VERSION")));
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY: HeaderValue = HeaderValue::from_static("*/*");
/// Asks for an answer that is not compressed.
pub(super) const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The settings of the client.
#[derive(Clone, Debug)]
pub struct Params {
    /// The longest time for making a connection, with TLS.
    pub connect_timeout: Duration,
    /// The statuses after which a task is not retried.
    pub final_statuses: Vec<u16>,
    /// The clock for signatures, and for `Retry-After` dates of answers without a `Date`.
    pub clock: Clock,
}

/// The client could not be built. Most likely the system has no root certificates.
#[derive(Debug, thiserror::Error)]
#[error(
    "the HTTP client for callbacks cannot be built; install the system's root certificates, or \
     name a PEM file of them in SSL_CERT_FILE"
)]
pub struct BuildError(#[from] rustls::Error);

/// One call, with what its headers say about the task.
///
/// Not `Debug` on purpose: no log may hold the body or the receipt.
#[derive(Clone)]
pub struct Call<'a> {
    /// The service to call.
    pub service: &'a Service,
    /// The path on the service's endpoint, or an absolute URL.
    pub url: &'a str,
    /// The task.
    pub id: TaskId,
    /// The `webhook-id`, unique among all stores: visible ASCII, without a dot.
    pub webhook_id: &'a str,
    /// Its topic.
    pub topic: &'a Topic,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// When the task fell due.
    pub due: UnixMillis,
    /// The occurrence of a recurring schedule that the task is.
    pub occurrence: Option<&'a Occurrence>,
    /// The receipt of the lease, for a later acknowledgement.
    pub receipt: &'a Receipt,
    /// The task's own headers.
    pub headers: &'a Headers,
    /// How long the call may take, from connecting to the end of the response.
    pub timeout: Duration,
    /// The statuses after which this task is not retried, instead of [`Params::final_statuses`].
    pub final_statuses: Option<&'a [u16]>,
    /// Receives the beginning of the response.
    pub excerpt: &'a Excerpt,
    /// How far the clock to sign by is ahead of the client's clock, in milliseconds.
    pub clock_ahead_ms: i64,
    /// Its trace, unless the task's own headers have one.
    pub trace: TraceContext,
    /// Receives what its span shows, if that is exported.
    pub called: Option<&'a Called>,
    /// The task's content, byte for byte.
    pub body: Bytes,
}

impl Call<'_> {
    /// Tells the span of the call, if it has one.
    fn sees(&self, tell: impl FnOnce(&Called)) {
        if let Some(called) = self.called {
            tell(called);
        }
    }
}

/// Makes calls: the [`Client`], or its replacement in a simulation.
pub trait CallClient: Send + Sync + 'static {
    /// Makes a call. Every result is an answer, failures included.
    fn call(&self, call: &Call<'_>) -> impl Future<Output = Answer> + Send;
}

/// Makes the calls. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    pairs: Pairs,
    params: Params,
}

impl Client {
    /// Builds the client. A rustls provider must be installed.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(params: Params) -> Result<Self, BuildError> {
        Ok(Self::trusting(params, &connector::tls()?))
    }

    fn trusting(params: Params, tls: &ClientConfig) -> Self {
        Self { pairs: Pairs::new(params.connect_timeout, tls, Dns::new), params }
    }

    /// The client for requests of tokens.
    pub(super) fn unpooled(&self) -> &legacy::Client<Connector, CallBody> {
        &self.pairs.anywhere.unpooled
    }

    /// The longest time for making a connection, with TLS.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.params.connect_timeout
    }

    /// Makes the call, and waits for the head of its response.
    pub(super) async fn answered(
        &self,
        call: &Call<'_>,
        token: Option<&AccessToken>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Answer> {
        let aim = call
            .service
            .aim(call.url)
            .map_err(|error| refused(format!("not called: url {error}")))?;
        call.sees(|called| called.aimed(&aim.url));
        let sent = timeout_at(deadline, self.send(call, &aim, token)).await;
        sent.unwrap_or(Err(Trouble::TimedOut(call.timeout))).map_err(|trouble| {
            if let (Trouble::Refused, Some(endpoint)) = (trouble, aim.endpoint) {
                endpoint.has_refused();
            }
            call.sees(|called| called.failed(trouble.name()));
            classify::unanswered(trouble)
        })
    }

    /// Sends the call. Repeats it once if its connection was stale or full.
    async fn send(
        &self,
        call: &Call<'_>,
        aim: &Aim<'_>,
        token: Option<&AccessToken>,
    ) -> Result<Response<Incoming>, Trouble> {
        let own = call.service.tls().map(ServiceTls::connections);
        let pair = match &own {
            Some(own) => own.pair(|tls, name| self.pairs.of_service(tls, name)),
            None => self.pairs.of(call.service.reach()),
        };
        let (sent, is_fresh) = connector::with_mark(self.send_pooled(pair, call, aim, token)).await;
        let trouble = match sent {
            Some(Ok(response)) => return Ok(response),
            Some(Err(error)) => Some(self.trouble(&error)),
            None => None,
        };
        if let Some(trouble) = trouble
            && trouble != Trouble::StreamRefused
            && (is_fresh || !trouble.may_be_stale_connection())
        {
            return Err(trouble);
        }
        let content = CallBody::new(call.body.clone());
        pair.unpooled
            .request(self.request(call, aim, token, content))
            .await
            .map_err(|error| self.trouble(&error))
    }

    /// Sends the call on a pooled connection; `None` if it got no stream and was withdrawn.
    async fn send_pooled(
        &self,
        pair: &Pair,
        call: &Call<'_>,
        aim: &Aim<'_>,
        token: Option<&AccessToken>,
    ) -> Option<Result<Response<Incoming>, legacy::Error>> {
        // Only TLS negotiates HTTP/2. A body without a second part would never count as begun.
        let may_be_queued =
            aim.url.scheme() == Some(&Scheme::HTTPS) && call.body.len() > content::SEND_BUFFER;
        if !may_be_queued {
            let content = CallBody::new(call.body.clone());
            return Some(pair.pooled.request(self.request(call, aim, token, content)).await);
        }
        let (content, beginning) = CallBody::watched(call.body.clone());
        let mut sending = pin!(pair.pooled.request(self.request(call, aim, token, content)));
        let since = Instant::now();
        let mut until = since + PATIENCE;
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return Some(sent),
                () = sleep_until(until) => {}
            }
            // A connection that is being made for the call may still be ready.
            let longest = since + self.params.connect_timeout + PATIENCE;
            if connector::is_connecting() && until < longest {
                until = longest;
            } else if beginning.withdraw() {
                return None;
            } else {
                return Some(sending.await);
            }
        }
    }

    fn request(
        &self,
        call: &Call<'_>,
        aim: &Aim<'_>,
        token: Option<&AccessToken>,
        content: CallBody,
    ) -> Request<CallBody> {
        let mut request = Request::new(content);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = aim.url.clone();
        *request.headers_mut() = headers(call, aim, self.now(call));
        if let Some(token) = token {
            // It replaces that of the task.
            request.headers_mut().insert(AUTHORIZATION, token.header.clone());
        }
        request
    }

    /// The time by the clock to sign by.
    fn now(&self, call: &Call<'_>) -> UnixMillis {
        UnixMillis(self.params.clock.now().0.saturating_add(call.clock_ahead_ms))
    }

    /// Reads the beginning of the body, and what broke it off.
    async fn read(&self, answer: &mut Incoming, call: &Call<'_>, deadline: Instant) -> BodyRead {
        let mut read = BodyRead::default();
        while !read.is_cut && !answer.is_end_stream() {
            match timeout_at(deadline, answer.frame()).await {
                Ok(Some(Ok(frame))) => read.take(&frame.into_data().unwrap_or_default()),
                Ok(None) => break,
                Ok(Some(Err(error))) => {
                    read.broken = Some(self.trouble(&error));
                    break;
                }
                Err(_) => {
                    read.broken = Some(Trouble::TimedOut(call.timeout));
                    break;
                }
            }
        }
        read
    }

    fn trouble(&self, error: &(dyn Error + 'static)) -> Trouble {
        Trouble::of(error, self.params.connect_timeout)
    }
}

/// What was read of a body.
#[derive(Default)]
struct BodyRead {
    body: Vec<u8>,
    broken: Option<Trouble>,
    /// Whether the body is longer.
    is_cut: bool,
}

impl BodyRead {
    fn take(&mut self, chunk: &[u8]) {
        let room = MAX_ANSWER - self.body.len();
        self.is_cut = chunk.len() > room;
        self.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
    }
}

/// The future of each call in flight holds what lives across an await. So it is kept small.
impl CallClient for Client {
    async fn call(&self, call: &Call<'_>) -> Answer {
        let deadline = Instant::now() + call.timeout;
        let answered = match call.service.oauth() {
            None => self.answered(call, None, deadline).await,
            // On the heap, so that other calls do not hold its room.
            Some(oauth) => Box::pin(self.authorized(oauth, call, deadline)).await,
        };
        let (head, mut answer) = match answered {
            Ok(response) => response.into_parts(),
            Err(answer) => return answer,
        };
        call.sees(|called| called.answered(head.status.as_u16()));
        let BodyRead { body: raw, broken, is_cut } = self.read(&mut answer, call, deadline).await;
        let ends_early = is_cut || broken.is_some();
        let Decoded { body, is_cut: is_decoded_cut, is_unreadable } =
            decoded(&head.headers, &raw, ends_early, MAX_ANSWER);
        let reply = Reply {
            status: head.status,
            headers: &head.headers,
            body: &body,
            broken,
            is_cut: is_decoded_cut,
            is_unreadable,
        };
        let success = call.service.success();
        let rules = AnswerRules {
            success,
            final_statuses: call.final_statuses.unwrap_or(&self.params.final_statuses),
            now: self.now(call),
        };
        let answer = classify::replied(&reply, &rules);
        match broken {
            Some(trouble) => call.sees(|called| called.failed(trouble.name())),
            None if success.takes(head.status) && answer.is_failure() => {
                call.sees(|called| called.failed(success.trouble()));
            }
            None => {}
        }
        let is_cut = is_decoded_cut || is_unreadable;
        let tokens = call.service.oauth().map(|oauth| oauth.known_secrets()).unwrap_or_default();
        let has_nothing = body.is_empty();
        let mut body = match into_decoded(body) {
            Some(decoded) => decoded,
            None if has_nothing => Vec::new(),
            None => raw,
        };
        let mut answer = answer;
        for known in [call.service.known_secrets(), &tokens] {
            if !known.is_empty() {
                body = known.redact_body(body, is_cut);
                answer = answer.redacted(known);
            }
        }
        call.excerpt.keep(body);
        answer
    }
}

/// The body, unless it is the one that was received.
fn into_decoded(body: Cow<'_, [u8]>) -> Option<Vec<u8>> {
    match body {
        Cow::Owned(decoded) => Some(decoded),
        Cow::Borrowed(_) => None,
    }
}

/// A call that was not made: the URL was valid when the task was added, but the endpoints may have
/// changed since.
fn refused(outcome: String) -> Answer {
    Answer::Failed { outcome, retry_after: None, hold: None, fault: Fault::Here }
}

/// The headers: what they say about the task, the signature, and the sender.
fn headers(call: &Call<'_>, aim: &Aim<'_>, now: UnixMillis) -> HeaderMap {
    let text = |text: &str| {
        HeaderValue::from_str(text).expect("names, receipts and base64 are visible ASCII")
    };
    let is_signed = !call.service.secrets().is_empty();
    let further =
        usize::from(aim.authorization().is_some()) + if is_signed { SIGNED_HEADERS } else { 0 };
    let own = call.headers.len() + call.service.headers().len();
    let mut headers = HeaderMap::with_capacity(HEADERS + own + further);
    headers.extend([
        (CONTENT_TYPE, JSON),
        (ACCEPT, ANY),
        (ACCEPT_ENCODING, IDENTITY),
        (USER_AGENT, DELAYD),
    ]);
    if let Some(authorization) = aim.authorization() {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    // A receiver that takes `x_key` for `x-key` must not get both.
    call.headers.put_into(&mut headers, |name| call.service.sets_header(name));
    for header in call.service.headers() {
        headers.insert(header.name(), header.value().clone());
    }
    if !headers.contains_key(TRACEPARENT) {
        headers.insert(TRACEPARENT, text(&call.trace.to_string()));
    }
    // The headers of a task and of a service cannot have these names.
    headers.extend([
        (name::TASK_ID, HeaderValue::from(call.id.0)),
        (name::TOPIC, text(call.topic.as_str())),
        (name::ATTEMPT, HeaderValue::from(call.attempt)),
        (name::DUE_MS, HeaderValue::from(call.due.0)),
        (name::RECEIPT, text(call.receipt.as_str())),
        (name::ID, text(call.webhook_id)),
    ]);
    if let Some(occurrence) = call.occurrence {
        headers.insert(name::SCHEDULE, text(occurrence.name.as_str()));
        headers.insert(name::SCHEDULE_MOMENT_MS, HeaderValue::from(occurrence.moment.0));
        if occurrence.missed > 0 {
            headers.insert(name::SCHEDULE_MISSED, HeaderValue::from(occurrence.missed));
        }
    }
    if is_signed {
        let seconds = now.0 / 1000;
        let signed = signatures(call.service.secrets(), call.webhook_id, seconds, &call.body);
        headers.insert(name::TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(name::SIGNATURE, text(&signed));
    }
    headers
}

/// Headers that the `http` crate has no constants for.
mod name {
    use http::HeaderName;

    pub(super) const TASK_ID: HeaderName = HeaderName::from_static("delay-task-id");
    pub(super) const TOPIC: HeaderName = HeaderName::from_static("delay-topic");
    pub(super) const ATTEMPT: HeaderName = HeaderName::from_static("delay-attempt");
    pub(super) const DUE_MS: HeaderName = HeaderName::from_static("delay-due-ms");
    pub(super) const RECEIPT: HeaderName = HeaderName::from_static("delay-receipt");
    pub(super) const SCHEDULE: HeaderName = HeaderName::from_static("delay-schedule");
    pub(super) const SCHEDULE_MOMENT_MS: HeaderName =
        HeaderName::from_static("delay-schedule-moment-ms");
    pub(super) const SCHEDULE_MISSED: HeaderName = HeaderName::from_static("delay-schedule-missed");
    pub(super) const ID: HeaderName = HeaderName::from_static("webhook-id");
    pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
    pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
}

#[cfg(test)]
mod tests;
