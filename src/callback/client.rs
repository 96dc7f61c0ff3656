//! The call itself: one POST to one endpoint of a service, and what came back.
//!
//! # A connection that had gone stale
//!
//! Many servers close a kept-alive connection after a few idle seconds, and may do so at the moment
//! a call is written on it. The business has then most likely seen nothing, so such a call is
//! repeated once, on a fresh connection, and no attempt is spent. The repeat goes through a second
//! client without a pool, for the pool may hold more connections of the same age. Where the
//! connection was fresh the failure is the server's own and is reported as it is. The pool is asked
//! to forget connections before the usual five seconds, which makes all this rare.
//!
//! Whether this call's connection was fresh is known from a mark that is set in the call's own task
//! when the connector has finished for it. (A call that waited for a connection and was then handed
//! a used one in the same instant counts as fresh: an attempt too many is spent, which does no
//! harm.) The library does not tell a connection closed in the middle of an answer's head from one
//! closed before it; both are repeated.
//!
//! A call of which not a byte was written yet is no failure: the library moves it to another
//! connection by itself.
//!
//! # A connection that is full
//!
//! The library opens one HTTP/2 connection to a server, and a call beyond the streams that the
//! server allows waits on it, unsent, however long. So a call over TLS that has not begun within
//! [`PATIENCE`] is withdrawn ([`Content`]) and goes by a connection of its own, through the client
//! without a pool. A call that the server refuses because it has too many (`REFUSED_STREAM`) goes
//! there as well: by the protocol it has not been looked at. There are no more such connections
//! than calls, which have their own limits.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::classify::{self, Reply, Rules};
use super::connector::{self, Connector, Pooled};
use super::content::{self, Content};
use super::guard::{Guard, Reach};
use super::services::Aim;
use super::signature::signatures;
use super::trouble::Trouble;
use super::{Answer, Excerpt, Fault, Service};
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{Headers, Receipt, TaskId, Topic};

/// How much of an answer is read, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// How long an unused connection is kept: less than the five seconds after which many servers close
/// it.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// How long a call may wait for a stream of an HTTP/2 connection.
const PATIENCE: Duration = Duration::from_millis(100);

/// The headers of every call, those of the library (host, content-length) among them: a map that
/// has room for no more takes half as much.
const HEADERS: usize = 12;
/// Those of a call that is signed.
const SIGNED_HEADERS: usize = 2;

const DELAYD: HeaderValue = HeaderValue::from_static(concat!("delayd/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const ANY: HeaderValue = HeaderValue::from_static("*/*");

/// The settings of the client.
#[derive(Clone, Debug)]
pub struct Params {
    /// How long a connection, TLS included, may take to come about.
    pub connect_timeout: Duration,
    /// The statuses after which a task is not tried again.
    pub final_statuses: Vec<u16>,
    /// Tells how far away a `Retry-After` date is.
    pub clock: Clock,
}

/// The client could not be built, most likely because no root certificates were found.
#[derive(Debug, thiserror::Error)]
#[error(
    "the HTTP client for callbacks cannot be built; install the system's root certificates, or name a PEM file of them in SSL_CERT_FILE"
)]
pub struct BuildError(#[from] rustls::Error);

/// One call: whom, with what, and what is said about the task in the headers.
///
/// Not `Debug` on purpose: the body and the receipt belong in no log.
#[derive(Clone)]
pub struct Call<'a> {
    /// Whom.
    pub service: &'a Service,
    /// The path on the service's endpoint.
    pub url: &'a str,
    /// The task.
    pub id: TaskId,
    /// What no other task of any store is called: visible ASCII, without a dot.
    pub webhook_id: &'a str,
    /// Its topic.
    pub topic: &'a Topic,
    /// This attempt's number, from 1.
    pub attempt: u32,
    /// When it fell due.
    pub due: UnixMillis,
    /// The lease's name, for a later acknowledgement.
    pub receipt: &'a Receipt,
    /// What goes along with it.
    pub headers: &'a Headers,
    /// How long the call may take, from connecting to the answer's end.
    pub timeout: Duration,
    /// The statuses after which this task is not tried again, instead of
    /// [`Params::final_statuses`].
    pub final_statuses: Option<&'a [u16]>,
    /// Where the beginning of the answer is kept.
    pub excerpt: &'a Excerpt,
    /// The task's content, byte for byte.
    pub body: Bytes,
}

/// Whoever makes the calls: the [`Client`], or its twin in a simulation.
pub trait Caller: Send + Sync + 'static {
    /// Makes a call. Whatever happens to it is an answer.
    fn call(&self, call: &Call<'_>) -> impl Future<Output = Answer> + Send;
}

/// Makes the calls. One is enough for all; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    anywhere: Pair,
    private: Pair,
    network: Pair,
    public: Pair,
    params: Params,
}

/// The clients of one reach, with connections that no other uses.
#[derive(Clone, Debug)]
struct Pair {
    pooled: legacy::Client<Connector, Content>,
    /// Keeps no connections: each call gets a fresh one.
    unpooled: legacy::Client<Connector, Content>,
}

impl Pair {
    fn new(params: &Params, tls: &ClientConfig, guard: &Guard) -> Self {
        let client = |pooled| connector::client(params.connect_timeout, guard.clone(), tls, pooled);
        Self { pooled: client(Pooled::For(POOL_IDLE)), unpooled: client(Pooled::Never) }
    }
}

impl Client {
    /// Builds the client. rustls' provider must have been installed before.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(params: Params) -> Result<Self, BuildError> {
        Ok(Self::trusting(params, &connector::tls()?))
    }

    fn trusting(params: Params, tls: &ClientConfig) -> Self {
        let pair = |reach| Pair::new(&params, tls, &Guard::new(reach));
        Self {
            anywhere: pair(Reach::Anywhere),
            private: pair(Reach::Private),
            network: pair(Reach::Network),
            public: pair(Reach::Public),
            params,
        }
    }

    fn pair(&self, reach: Reach) -> &Pair {
        match reach {
            Reach::Anywhere => &self.anywhere,
            Reach::Private => &self.private,
            Reach::Network => &self.network,
            Reach::Public => &self.public,
        }
    }

    /// Makes the call, and waits for its answer's head.
    async fn answered(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Answer> {
        let aim = call
            .service
            .aim(call.url)
            .map_err(|error| refused(format!("not called: url {error}")))?;
        let sent = timeout_at(deadline, self.send(call, &aim)).await;
        sent.unwrap_or(Err(Trouble::TimedOut(call.timeout))).map_err(|trouble| {
            if let (Trouble::Refused, Some(endpoint)) = (trouble, aim.endpoint) {
                endpoint.has_refused();
            }
            classify::unanswered(trouble)
        })
    }

    /// Sends the call, once more if its connection had gone stale or was full.
    async fn send(&self, call: &Call<'_>, aim: &Aim<'_>) -> Result<Response<Incoming>, Trouble> {
        let pair = self.pair(call.service.reach());
        let (sent, is_fresh) = connector::with_mark(self.send_pooled(pair, call, aim)).await;
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
        let content = Content::new(call.body.clone());
        pair.unpooled
            .request(self.request(call, aim, content))
            .await
            .map_err(|error| self.trouble(&error))
    }

    /// Sends the call by a connection that others use as well; `None` if it got no stream of one
    /// and was withdrawn.
    async fn send_pooled(
        &self,
        pair: &Pair,
        call: &Call<'_>,
        aim: &Aim<'_>,
    ) -> Option<Result<Response<Incoming>, legacy::Error>> {
        // Only TLS tells that a server speaks HTTP/2. What has no second part would never begin.
        let may_be_queued =
            aim.url.scheme() == Some(&Scheme::HTTPS) && call.body.len() > content::SEND_BUFFER;
        if !may_be_queued {
            return Some(
                pair.pooled.request(self.request(call, aim, Content::new(call.body.clone()))).await,
            );
        }
        let (content, beginning) = Content::watched(call.body.clone());
        let mut sending = pin!(pair.pooled.request(self.request(call, aim, content)));
        let since = Instant::now();
        let mut until = since + PATIENCE;
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return Some(sent),
                () = sleep_until(until) => {}
            }
            // A connection that is being made for the call may still come.
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

    fn request(&self, call: &Call<'_>, aim: &Aim<'_>, content: Content) -> Request<Content> {
        let mut request = Request::new(content);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = aim.url.clone();
        *request.headers_mut() = headers(call, aim, self.params.clock.now());
        request
    }

    /// Reads what matters of the answer, and what broke it off.
    async fn read(
        &self,
        answer: &mut Incoming,
        call: &Call<'_>,
        deadline: Instant,
    ) -> (Vec<u8>, Option<Trouble>) {
        let mut body = Vec::new();
        while body.len() < MAX_ANSWER && !answer.is_end_stream() {
            match timeout_at(deadline, answer.frame()).await {
                Ok(Some(Ok(frame))) => {
                    let chunk = frame.into_data().unwrap_or_default();
                    body.extend_from_slice(&chunk[..chunk.len().min(MAX_ANSWER - body.len())]);
                }
                Ok(None) => break,
                Ok(Some(Err(error))) => {
                    let broken = Some(self.trouble(&error));
                    return (body, broken);
                }
                Err(_) => return (body, Some(Trouble::TimedOut(call.timeout))),
            }
        }
        (body, None)
    }

    fn trouble(&self, error: &(dyn Error + 'static)) -> Trouble {
        Trouble::of(error, self.params.connect_timeout)
    }
}

/// What is held while an answer is waited for is held once for every call in flight: no more than
/// it takes stays across an await.
impl Caller for Client {
    async fn call(&self, call: &Call<'_>) -> Answer {
        let deadline = Instant::now() + call.timeout;
        let (head, mut answer) = match self.answered(call, deadline).await {
            Ok(response) => response.into_parts(),
            Err(answer) => return answer,
        };
        let (body, broken) = self.read(&mut answer, call, deadline).await;
        let reply = Reply { status: head.status, headers: &head.headers, body: &body, broken };
        let rules = Rules {
            success: call.service.success(),
            final_statuses: call.final_statuses.unwrap_or(&self.params.final_statuses),
            now: self.params.clock.now(),
        };
        let answer = classify::replied(&reply, &rules);
        call.excerpt.keep(body);
        answer
    }
}

/// A call that was not made: the URL was checked when the task was added, but endpoints may have
/// changed since.
fn refused(outcome: String) -> Answer {
    Answer::Failed { outcome, retry_after: None, hold: None, fault: Fault::Here }
}

/// What the headers say about the task, and who says so.
fn headers(call: &Call<'_>, aim: &Aim<'_>, now: UnixMillis) -> HeaderMap {
    let text = |text: &str| {
        HeaderValue::from_str(text).expect("names, receipts and base64 are visible ASCII")
    };
    let is_signed = !call.service.secrets().is_empty();
    let further =
        usize::from(aim.authorization().is_some()) + if is_signed { SIGNED_HEADERS } else { 0 };
    let mut headers = HeaderMap::with_capacity(HEADERS + call.headers.len() + further);
    headers.extend([(CONTENT_TYPE, JSON), (ACCEPT, ANY), (USER_AGENT, DELAYD)]);
    if let Some(authorization) = aim.authorization() {
        headers.insert(AUTHORIZATION, authorization.clone());
    }
    call.headers.put_into(&mut headers);
    if !headers.contains_key(&name::TRACEPARENT) {
        let trace: u128 = rand::random();
        headers.insert(name::TRACEPARENT, text(&traceparent(trace, rand::random())));
        tracing::debug!(task.id = %call.id, attempt = call.attempt, trace_id = format_args!("{trace:032x}"),
            "Calling for task {}, attempt {}", call.id, call.attempt);
    }
    // None of these can be the task's own.
    headers.extend([
        (name::TASK_ID, HeaderValue::from(call.id.0)),
        (name::TOPIC, text(call.topic.as_str())),
        (name::ATTEMPT, HeaderValue::from(call.attempt)),
        (name::DUE_MS, HeaderValue::from(call.due.0)),
        (name::RECEIPT, text(call.receipt.as_str())),
        (name::ID, text(call.webhook_id)),
    ]);
    if is_signed {
        let seconds = now.0 / 1000;
        let signed = signatures(call.service.secrets(), call.webhook_id, seconds, &call.body);
        headers.insert(name::TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(name::SIGNATURE, text(&signed));
    }
    headers
}

/// The headers that HTTP has no names for.
mod name {
    use http::HeaderName;

    pub(super) const TASK_ID: HeaderName = HeaderName::from_static("delay-task-id");
    pub(super) const TOPIC: HeaderName = HeaderName::from_static("delay-topic");
    pub(super) const ATTEMPT: HeaderName = HeaderName::from_static("delay-attempt");
    pub(super) const DUE_MS: HeaderName = HeaderName::from_static("delay-due-ms");
    pub(super) const RECEIPT: HeaderName = HeaderName::from_static("delay-receipt");
    pub(super) const ID: HeaderName = HeaderName::from_static("webhook-id");
    pub(super) const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
    pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
    pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
}

/// W3C Trace Context, version 00, not sampled. Ids of zero are not allowed.
fn traceparent(trace: u128, span: u64) -> String {
    format!("00-{:032x}-{:016x}-00", trace.max(1), span.max(1))
}

#[cfg(test)]
mod tests;
