//! The accept loop: connections in, bounded in number and timeouts, drained at the end.
//!
//! `axum::serve` would do, but for what keeps a server up among strangers: it times nothing, so
//! that a handful of callers who drip bytes, or read none, hold it; it takes connections without
//! bound; and its drain waits for the slowest. So the loop is our own, around hyper-util's
//! connection (HTTP/1.1 and HTTP/2 on one port).
//!
//! ```text
//! wait for a free slot ─▶ accept ─▶ connection ─▶ … ─▶ slot is free
//!             │ shutdown
//!             └─▶ stop accepting ─▶ linger ─▶ connections end after their running requests ─▶ cut off what remains
//! ```
//!
//! Whoever holds all slots holds them for as long as [`crate::api::transport::io_timeouts`] lets a
//! connection wait, and then stands in line behind those who came meanwhile.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::Response;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::api::transport::connection::Serving;
pub use crate::api::transport::io_timeouts::IoTimeouts;

/// The most callers who wait to be accepted; the system may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;
/// The first wait after a failed accept (out of file descriptors, as a rule), and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long connections are still taken after the shutdown, for those who wait to be accepted, and
/// how long open ones are still listened to after that, for requests that are on their way.
const LAST_CALL: Duration = Duration::from_millis(50);
const LINGER: Duration = Duration::from_millis(500);

/// The settings of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerParams {
    /// The most open connections; further ones wait in the system's queue.
    pub max_connections: usize,
    /// How long a caller may take for what is his part.
    pub timeouts: IoTimeouts,
    /// How long running requests may take to end after the shutdown.
    pub drain: Duration,
}

impl Default for ServerParams {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            timeouts: IoTimeouts::default(),
            drain: Duration::from_secs(5),
        }
    }
}

/// Listens, with room for those who come together: beyond it the system drops a caller's first
/// packet, who tries again only a second later, then three.
///
/// # Errors
/// The system's.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for the connections of the process before to be forgotten.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown` resolves; then takes no more connections, lets running requests end, and
/// cuts off what has not ended after [`ServerParams::drain`].
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    params: ServerParams,
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let slots = Arc::new(Semaphore::new(params.max_connections));
    let (draining, cut_off) = (CancellationToken::new(), CancellationToken::new());
    let serving = Serving {
        service,
        timeouts: params.timeouts,
        slots: slots.clone(),
        draining: draining.clone(),
        linger: LINGER.min(params.drain / 4),
        cut_off: cut_off.clone(),
    };
    // Whoever has connected by then is answered: the system would cut him off with the listener.
    let last_call = async {
        shutdown.await;
        tokio::time::sleep(LAST_CALL).await;
    };
    let mut last_call = pin!(last_call);
    loop {
        let (stream, slot) = tokio::select! {
            biased;
            () = &mut last_call => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        tokio::spawn(serving.clone().connection(stream, slot));
    }
    // Callers who come now are to be refused by the system at once, not kept waiting.
    drop(listener);
    draining.cancel();
    let all = u32::try_from(params.max_connections).unwrap_or(u32::MAX);
    if tokio::time::timeout(params.drain, slots.acquire_many(all)).await.is_err() {
        let open = params.max_connections - slots.available_permits();
        tracing::warn!(
            open,
            "{open} connections did not end within {:?} and are cut off",
            params.drain
        );
    }
    cut_off.cancel();
    // Each connection holds a slot to its end. Whoever comes after this relies on their bodies
    // having told their confirmation.
    let _ = slots.acquire_many(all).await.expect("the semaphore is never closed");
}

/// The next connection, once there is a slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    let mut pause = FIRST_PAUSE;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) if is_callers(&error) => {}
            Err(error) => {
                // Out of descriptors, accept fails at once and again: without a pause the loop
                // would spin.
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

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
