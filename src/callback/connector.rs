//! Connections to destinations. The [`Guard`] resolves names, rustls does TLS with the system's
//! root certificates, and no proxy is used.
//!
//! # Invariant
//!
//! - Clients share no connections: each has its own pool, or none, and its own TLS sessions.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{
    FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::net::TcpStream;
use tower::Service;

use super::content::{self, CallBody};
use super::guard::Guard;

/// TCP keep-alive: the time between probes, how many may fail, and how long sent data may stay
/// unacknowledged.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// The largest head of an answer, in bytes. A call in flight may hold that much, whatever its
/// receiver sends; by default, HTTP/1 would take 400 KiB. HTTP/1 reads twice as much at most, since
/// the library looks at the limit between two reads. It also takes at most 100 headers.
const LARGEST_HEAD: usize = 32 * 1024;

/// The number of TLS sessions that each client keeps for resumption.
const SESSIONS: usize = 256;

tokio::task_local! {
    /// Whether a connection was made for the call of this tokio task.
    static CONNECTION: Cell<Made>;
}

/// Whether a connection is made for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    No,
    /// It has begun. If a pooled connection is free first, it is finished in another tokio task.
    Begun,
    Yes,
}

/// Runs `call`, and returns whether a new connection was made for it.
///
/// If a pooled connection becomes free first, the call uses that one. The new connection is
/// finished in another tokio task, for a later call.
pub(super) async fn with_mark<T>(call: impl Future<Output = T>) -> (T, bool) {
    CONNECTION
        .scope(Cell::new(Made::No), async { (call.await, CONNECTION.with(Cell::get) == Made::Yes) })
        .await
}

/// Whether a connection was begun for the call of this tokio task and is not ready yet.
pub(super) fn is_connecting() -> bool {
    CONNECTION.try_with(Cell::get) == Ok(Made::Begun)
}

/// Fails if the system's root certificates cannot be read. Most likely there are none.
pub(super) fn tls() -> Result<ClientConfig, rustls::Error> {
    ClientConfig::with_platform_verifier()
}

/// How long a client keeps an unused connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pooled {
    For(Duration),
    Never,
}

/// A client with connections of its own. The server's certificate must have the given name, or that
/// of the URL's host.
pub(super) fn client(
    connect_timeout: Duration,
    guard: Guard,
    (tls, name): (&ClientConfig, Option<&ServerName<'static>>),
    pooled: Pooled,
) -> Client<Connector, CallBody> {
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
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let https = match name {
        Some(name) => https.with_server_name_resolver(FixedServerNameResolver::new(name.clone())),
        None => https,
    };
    let https = https.enable_all_versions().wrap_connector(tcp);
    let mut builder = Client::builder(TokioExecutor::new());
    builder.http1_max_buf_size(LARGEST_HEAD).http2_max_header_list_size(LARGEST_HEAD as u32);
    match pooled {
        Pooled::For(idle) => builder
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .http2_max_send_buf_size(content::SEND_BUFFER),
        Pooled::Never => builder.pool_max_idle_per_host(0),
    };
    builder.build(Connector { https, timeout: connect_timeout })
}

/// The connection was not ready in time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no connection in time")]
pub(super) struct ConnectTimeout;

/// Makes connections, with TLS, within a timeout, and marks that they are new.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    https: HttpsConnector<HttpConnector<Guard>>,
    timeout: Duration,
}

type CallConnection = MaybeHttpsStream<TokioIo<TcpStream>>;
type Error = Box<dyn std::error::Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = CallConnection;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<CallConnection, Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let _ = CONNECTION.try_with(|made| made.set(Made::Begun));
        let (connecting, timeout) = (self.https.call(to), self.timeout);
        Box::pin(async move {
            let connection =
                tokio::time::timeout(timeout, connecting).await.map_err(|_| ConnectTimeout)??;
            let _ = CONNECTION.try_with(|made| made.set(Made::Yes));
            Ok(connection)
        })
    }
}
