//! Connections to those who are called: names are resolved by the [`Guard`], TLS is rustls' by the
//! system's certificates, and no proxy is asked.
//!
//! # Invariant
//!
//! - The clients share no connections: each has a pool of its own, or none, and TLS sessions of its
//!   own.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::net::TcpStream;
use tower::Service;

use super::content::{self, Content};
use super::guard::Guard;

/// How often a silent connection is asked whether its other side is there, how many times in vain,
/// and how long what was written may wait to be acknowledged.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// How many TLS sessions are remembered.
const SESSIONS: usize = 256;

tokio::task_local! {
    /// What became of a connection for the call that runs in this task.
    static CONNECTION: Cell<Made>;
}

/// Whether a connection is made for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    No,
    /// It was begun. Should a used one have come first, the rest happens elsewhere.
    Begun,
    Yes,
}

/// What `call` comes to, and whether a connection was made for it.
///
/// A connection that lost the race against a used one is finished elsewhere than in the call's
/// task, for whoever comes next.
pub(super) async fn with_mark<T>(call: impl Future<Output = T>) -> (T, bool) {
    CONNECTION
        .scope(Cell::new(Made::No), async { (call.await, CONNECTION.with(Cell::get) == Made::Yes) })
        .await
}

/// Whether a connection was begun for the call that runs in this task, and may not have come about.
pub(super) fn is_connecting() -> bool {
    CONNECTION.try_with(Cell::get) == Ok(Made::Begun)
}

/// What the system trusts could not be read: most likely no root certificates were found.
pub(super) fn tls() -> Result<ClientConfig, rustls::Error> {
    ClientConfig::with_platform_verifier()
}

/// How long a client keeps an unused connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pooled {
    For(Duration),
    Never,
}

/// A client with connections of its own.
pub(super) fn client(
    connect_timeout: Duration,
    guard: Guard,
    tls: &ClientConfig,
    pooled: Pooled,
) -> Client<Connector, Content> {
    let mut tcp = HttpConnector::new_with_resolver(guard);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(connect_timeout));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut tls = tls.clone();
    tls.resumption = Resumption::in_memory_sessions(SESSIONS);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    let mut builder = Client::builder(TokioExecutor::new());
    match pooled {
        Pooled::For(idle) => builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .http2_max_send_buf_size(content::SEND_BUFFER),
        Pooled::Never => builder.pool_max_idle_per_host(0),
    };
    builder.build(Connector { https, timeout: connect_timeout })
}

/// A connection did not come about in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection in time")]
pub(super) struct TooLate;

/// Makes connections, TLS included, in no more than its time, and marks that they are fresh.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector<Guard>>,
    timeout: Duration,
}

type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;
type Error = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let _ = CONNECTION.try_with(|made| made.set(Made::Begun));
        let (connecting, timeout) = (self.https.call(to), self.timeout);
        Box::pin(async move {
            let connection =
                tokio::time::timeout(timeout, connecting).await.map_err(|_| TooLate)??;
            let _ = CONNECTION.try_with(|made| made.set(Made::Yes));
            Ok(connection)
        })
    }
}
