//! The accept loop: connections in, bounded in number and patience, drained at the end.
//!
//! `axum::serve` would do, but for what keeps a server up among strangers: it arms no timeout for a request's head,
//! so that a handful of callers who drip bytes hold it; it takes connections without bound; and its drain waits for
//! the slowest. So the loop is our own, around hyper-util's connection (HTTP/1.1 and HTTP/2 on one port).
//!
//! ```text
//! wait for a free slot ─▶ accept ─▶ connection ─▶ … ─▶ slot is free
//!             │ shutdown
//!             └─▶ stop accepting ─▶ connections end after their running requests ─▶ cut off what remains
//! ```

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How much of an answer hyper may keep before the socket has taken it. Small, so that [`super::written`] is asked for
/// an answer's last byte only when the rest is on its way; it is also the longest request head.
const WRITE_BUFFER: usize = 64 * 1024;
/// The first wait after a failed accept (out of file descriptors, as a rule), and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The settings of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerParams {
    /// The most open connections; further ones wait in the system's queue.
    pub max_connections: usize,
    /// The longest time from the opening of a connection, or from the last answer, to the end of a request's head.
    pub header_timeout: Duration,
    /// How long running requests may take to end after the shutdown.
    pub drain: Duration,
}

impl Default for ServerParams {
    fn default() -> Self {
        Self { max_connections: 10_000, header_timeout: Duration::from_secs(10), drain: Duration::from_secs(5) }
    }
}

/// Serves until `shutdown` resolves; then takes no more connections, lets running requests end, and cuts off what has
/// not ended after [`ServerParams::drain`].
pub async fn serve(listener: TcpListener, router: Router, params: ServerParams, shutdown: impl Future<Output = ()>) {
    let slots = Arc::new(Semaphore::new(params.max_connections));
    let cut_off = CancellationToken::new();
    let connections = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let connection = Connection { stream, slot, watcher: connections.watcher(), cut_off: cut_off.clone() };
        tokio::spawn(connection.run(router.clone(), params.header_timeout));
    }
    // Callers who come now are to be refused by the system at once, not kept waiting.
    drop(listener);
    let open = connections.count();
    if tokio::time::timeout(params.drain, connections.shutdown()).await.is_err() {
        tracing::warn!(open, "Some of {open} connections did not end within {:?} and are cut off", params.drain);
    }
    cut_off.cancel();
    // Each connection holds a slot to its end. Whoever comes after this relies on their bodies having told their fate.
    let all = u32::try_from(params.max_connections).unwrap_or(u32::MAX);
    let _ = slots.acquire_many(all).await.expect("the semaphore is never closed");
}

/// The next connection, once there is a slot for it.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) if is_callers(&error) => {}
            Err(error) => {
                // Out of descriptors, accept fails at once and again: without a pause the loop would spin.
                tracing::warn!(%error, "Cannot accept a connection, trying again in {pause:?}: {error}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Whether the caller gave up before it was accepted, which is no trouble of ours.
fn is_callers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

struct Connection {
    stream: TcpStream,
    /// Freed with the connection.
    slot: OwnedSemaphorePermit,
    watcher: Watcher,
    cut_off: CancellationToken,
}

impl Connection {
    async fn run(self, router: Router, header_timeout: Duration) {
        let Self { stream, slot, watcher, cut_off } = self;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "A connection was gone before it began: {error}");
            return;
        }
        let asked = Arc::new(AtomicBool::new(false));
        let service = {
            let asked = asked.clone();
            hyper::service::service_fn(move |request: http::Request<Incoming>| {
                asked.store(true, Ordering::Relaxed);
                router.clone().oneshot(request.map(Body::new))
            })
        };
        let builder = builder(header_timeout);
        let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        tokio::select! {
            ended = connection => if let Err(error) = ended {
                tracing::debug!(%error, "A connection ended early: {error}");
            },
            () = silent(&asked, header_timeout) => tracing::debug!("A connection asked for nothing and is closed"),
            () = cut_off.cancelled() => {}
        }
        drop(slot);
    }
}

/// Resolves if nothing was asked for in time. hyper's own timeout begins only when the first bytes have told HTTP/1 from
/// HTTP/2, and so never for who sends nothing.
async fn silent(asked: &AtomicBool, patience: Duration) {
    // A little longer than hyper's, which answers 408 where it can.
    tokio::time::sleep(patience + patience / 10).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending().await
    }
}

fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(WRITE_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10))
        .max_send_buf_size(WRITE_BUFFER);
    builder
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
