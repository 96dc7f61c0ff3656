//! The accept loop: a bounded number of connections, with timeouts, and a drain at the end.
//!
//! `axum::serve` lacks three things that a server on an open network needs. It has no timeouts, so
//! a few slow callers can occupy it. It accepts connections without a limit. Its drain waits for
//! the slowest connection. So this loop is our own, around hyper's connection.
//!
//! ```text
//! wait for a free slot ─▶ accept ─▶ connection ─▶ … ─▶ slot is free
//!             │ shutdown
//!             └─▶ stop accepting ─▶ linger ─▶ running requests end ─▶ cut off the rest
//! ```
//!
//! A caller cannot keep all slots: [`crate::api::transport::io_timeouts`] ends its idle
//! connections, and its next ones queue behind those of other callers.

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
use crate::api::transport::handshake::Secured;
pub use crate::api::transport::io_timeouts::IoTimeouts;
use crate::tls;

/// The accept queue's length. The system may allow less (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;
/// The first and the longest wait after a failed accept (usually: no file descriptors left).
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long connections are still accepted after the shutdown, and how long open ones are read
/// after that, because requests may be on their way.
const LAST_CALL: Duration = Duration::from_millis(50);
const LINGER: Duration = Duration::from_millis(500);

/// The settings of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerParams {
    /// The limit of open connections. Further ones wait in the system's accept queue.
    pub max_connections: usize,
    /// How long a connection may wait for its caller.
    pub timeouts: IoTimeouts,
    /// How long running requests may take after the shutdown.
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

/// Listens with a long accept queue. If the queue is full, the system drops a caller's first
/// packet, and the caller tries again only after one second, then after three.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait until the system forgets the old process's connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown` resolves, with TLS if `tls` is there. Then accepts no more connections,
/// lets running requests finish, and cuts off the rest after [`ServerParams::drain`].
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    params: ServerParams,
    tls: Option<Arc<tls::TlsServer>>,
    shutdown: impl Future<Output = ()>,
) where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Unpin
        + 'static,
{
    let slots = Arc::new(Semaphore::new(params.max_connections));
    let (draining, cut_off) = (CancellationToken::new(), CancellationToken::new());
    let serving = Serving {
        service,
        tls: tls.map(Secured::new),
        timeouts: params.timeouts,
        slots: slots.clone(),
        draining: draining.clone(),
        linger: LINGER.min(params.drain / 4),
        cut_off: cut_off.clone(),
    };
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
    for (stream, slot) in rest(listener, &slots) {
        tokio::spawn(serving.clone().connection(stream, slot));
    }
    // The system refuses new connections at once from now on.
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
    // Every connection holds its slot to the end. Code after `serve` relies on all response bodies
    // having been dropped.
    let _ = slots.acquire_many(all).await.expect("the semaphore is never closed");
}

/// Waits for a slot, and then for a connection.
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
                // Without file descriptors, accept fails at once each time, and the loop would spin
                // without this pause.
                tracing::warn!(
                    %error,
                    "Cannot accept a connection, trying again in {pause:?}: {error}"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// The connections in the accept queue, which would be reset with the listener. It is closed then.
fn rest(
    listener: TcpListener,
    slots: &Arc<Semaphore>,
) -> impl Iterator<Item = (TcpStream, OwnedSemaphorePermit)> {
    // tokio may not know yet that there are some, so the system is asked.
    let listener = listener.into_std();
    std::iter::from_fn(move || {
        let slot = slots.clone().try_acquire_owned().ok()?;
        let (stream, _) = listener.as_ref().ok()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, slot))
    })
}

/// Whether the caller disconnected before it was accepted.
fn is_callers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
