//! A callback receiver with configurable answers, for `receive` and `demo`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::serve::ListenerExt;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::callback::{Received, Secret, Unverified};
use crate::model::clock::{Clock, UnixMillis};

/// The default body of an answer.
pub(super) const OK: &str = r#"{"dm_error":0,"error_msg":"ok"}"#;

/// The maximum body.
const LARGEST_BODY: usize = 64 << 20;

/// How the receiver answers.
#[derive(Clone, Debug)]
pub(super) struct Params {
    /// The status, unless `fail_first` applies.
    pub(super) status: StatusCode,
    /// The number of callbacks at the beginning that are answered 500.
    pub(super) fail_first: u64,
    /// The delay before each answer.
    pub(super) delay: Duration,
    /// The body of the answers.
    pub(super) body: String,
    /// If not empty, callbacks without a signature by one of these are answered 401.
    pub(super) secrets: Vec<Secret>,
}

impl Default for Params {
    /// Answers 200 at once.
    fn default() -> Self {
        let (status, body) = (StatusCode::OK, OK.to_owned());
        Self { status, fail_first: 0, delay: Duration::ZERO, body, secrets: Vec::new() }
    }
}

/// A callback that arrived.
#[derive(Clone, Debug)]
pub(super) struct ReceivedCall {
    /// The arrival time by this machine's clock.
    pub(super) at: UnixMillis,
    /// `delay-task-id`. A header that is missing is empty.
    pub(super) task_id: String,
    /// `webhook-id`.
    pub(super) webhook_id: String,
    /// `delay-attempt`.
    pub(super) attempt: String,
    /// `delay-topic`.
    pub(super) topic: String,
    /// `delay-due-ms`.
    pub(super) due: Option<UnixMillis>,
    /// Path and query.
    pub(super) path: String,
    /// The body as text.
    pub(super) body: String,
    /// The status of the answer.
    pub(super) status: StatusCode,
    /// The result of the signature check, if there are secrets.
    pub(super) signature: Option<Result<(), Unverified>>,
}

/// A receiver that listens. It answers once [`Receiver::run`] is called.
#[derive(Debug)]
pub(super) struct Receiver {
    listener: TcpListener,
    local_addr: SocketAddr,
    answering: Arc<Answering>,
}

#[derive(Debug)]
struct Answering {
    params: Params,
    clock: Clock,
    count: AtomicU64,
    arrived: mpsc::Sender<ReceivedCall>,
}

impl Receiver {
    /// Listens on `bind`. Callbacks are sent to the channel before they are answered.
    pub(super) async fn bind(
        bind: SocketAddr,
        params: Params,
    ) -> io::Result<(Self, mpsc::Receiver<ReceivedCall>)> {
        let listener = TcpListener::bind(bind).await?;
        let local_addr = listener.local_addr()?;
        let (arrived, arrivals) = mpsc::channel(1024);
        let answering = Arc::new(Answering {
            params,
            clock: Clock::system(),
            count: AtomicU64::new(0),
            arrived,
        });
        Ok((Self { listener, local_addr, answering }, arrivals))
    }

    /// The address it listens on.
    pub(super) fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Answers until `shutdown`, and then those that have arrived.
    pub(super) async fn run(
        self,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let router = Router::new()
            .fallback(answer)
            .layer(DefaultBodyLimit::max(LARGEST_BODY))
            .with_state(self.answering);
        // Without this a small answer may wait for an acknowledgement of the peer.
        let listener = self.listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, router).with_graceful_shutdown(shutdown).await
    }
}

async fn answer(
    State(answering): State<Arc<Answering>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let at = answering.clock.now();
    let params = &answering.params;
    let is_failing = answering.count.fetch_add(1, Ordering::Relaxed) < params.fail_first;
    let signature =
        (!params.secrets.is_empty()).then(|| verify(&params.secrets, &headers, &body, at));
    let status = match signature {
        Some(Err(_)) => StatusCode::UNAUTHORIZED,
        _ if is_failing => StatusCode::INTERNAL_SERVER_ERROR,
        _ => params.status,
    };
    let text_of = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let callback = ReceivedCall {
        at,
        task_id: text_of("delay-task-id"),
        webhook_id: text_of("webhook-id"),
        attempt: text_of("delay-attempt"),
        topic: text_of("delay-topic"),
        due: text_of("delay-due-ms").parse().ok().map(UnixMillis),
        path: uri.path_and_query().map_or_else(String::new, ToString::to_string),
        body: String::from_utf8_lossy(&body).into_owned(),
        status,
        signature,
    };
    // The channel may be closed already; the caller gets its answer nevertheless.
    let _ = answering.arrived.send(callback).await;
    tokio::time::sleep(params.delay).await;
    (status, [(header::CONTENT_TYPE, "application/json")], params.body.clone())
}

/// Checks the signature with each secret. The error is that of the last one.
fn verify(
    secrets: &[Secret],
    headers: &HeaderMap,
    body: &[u8],
    now: UnixMillis,
) -> Result<(), Unverified> {
    let text_of =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (id, timestamp) = (text_of("webhook-id"), text_of("webhook-timestamp"));
    let received = Received { id, timestamp, signatures: text_of("webhook-signature"), body };
    let found = |found: Result<(), Unverified>, secret: &Secret| {
        found.or_else(|_| secret.verify(&received, now))
    };
    secrets.iter().fold(Err(Unverified::Missing), found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_not_signed_by_a_known_secret_is_answered_401() {
        crate::install_crypto();
        let known = [
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDzzjGJkMzvZw=",
        ];
        let params = Params {
            secrets: known.map(|secret| secret.parse().unwrap()).into(),
            ..Params::default()
        };
        let (receiver, mut arrivals) =
            Receiver::bind(([127, 0, 0, 1], 0).into(), params).await.unwrap();
        let url = format!("http://{}/", receiver.local_addr());
        let running = tokio::spawn(receiver.run(std::future::pending()));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let now = Clock::system().now().0 / 1000;
        let mut check = async |secret: Option<&str>,
                               body: &'static str,
                               expected: Result<(), Unverified>| {
            let mut post = http
                .post(&url)
                .body(body)
                .header("webhook-id", "7")
                .header("webhook-timestamp", now);
            if let Some(secret) = secret {
                let signature =
                    standardwebhooks::Webhook::new(secret).unwrap().sign("7", now, b"{}").unwrap();
                post = post.header("webhook-signature", signature);
            }
            let status = post.send().await.unwrap().status().as_u16();
            assert_eq!(arrivals.recv().await.unwrap().signature, Some(expected));
            assert_eq!(status, if expected.is_ok() { 200 } else { 401 });
        };
        check(Some(known[0]), "{}", Ok(())).await;
        check(Some(known[1]), "{}", Ok(())).await;
        check(Some(known[1]), "{} ", Err(Unverified::Wrong)).await;
        check(Some("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "{}", Err(Unverified::Wrong)).await;
        check(None, "{}", Err(Unverified::Missing)).await;
        running.abort();
    }

    #[tokio::test]
    async fn the_first_callbacks_fail_as_asked_and_all_are_seen() {
        crate::install_crypto();
        let params = Params { status: StatusCode::ACCEPTED, fail_first: 1, ..Params::default() };
        let (receiver, mut arrivals) =
            Receiver::bind(([127, 0, 0, 1], 0).into(), params).await.unwrap();
        let url = format!("http://{}/a/b?c=d", receiver.local_addr());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(receiver.run(async { drop(stopped.await) }));
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        for expected in [500, 202] {
            let post = http
                .post(&url)
                .header("delay-task-id", "7")
                .header("delay-due-ms", "1000")
                .body("{}");
            let answer = post.send().await.unwrap();
            assert_eq!(answer.status().as_u16(), expected);
            assert_eq!(answer.text().await.unwrap(), OK);
            let callback = arrivals.recv().await.unwrap();
            assert_eq!(
                (callback.task_id.as_str(), callback.path.as_str(), callback.topic.as_str()),
                ("7", "/a/b?c=d", "")
            );
            assert_eq!((callback.due, callback.body.as_str()), (Some(UnixMillis(1000)), "{}"));
        }
        stop.send(()).unwrap();
        running.await.unwrap().unwrap();
    }
}
