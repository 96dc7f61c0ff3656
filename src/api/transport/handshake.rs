//! The TLS handshake of a connection.
//!
//! TLS lies over [`TrackedIo`], so that the timeouts of a connection see what the socket accepts,
//! and bound the handshake as well: it belongs to the first head.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api::transport::tracked_io::TrackedIo;
use crate::tls;

/// The limit of handshakes in progress. One needs up to 64 KiB and a millisecond of a processor. A
/// further one ends the oldest, because callers that do not go on must not delay others.
const HANDSHAKES: usize = 512;
/// How long a handshake may take. A caller that is silent before it has the time of a head.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How much TLS keeps until the socket accepts it. See
/// [`delivery_confirmation`](crate::api::transport::delivery_confirmation).
const WRITE_BUFFER: usize = 16 * 1024;

/// A connection with TLS.
type TlsConnection = Box<TlsStream<TrackedIo<TcpStream>>>;

/// TLS on the port.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    server: Arc<tls::TlsServer>,
    handshakes: Arc<Handshakes>,
}

/// The handshakes in progress, by their order. Dropping a sender ends the handshake.
#[derive(Debug, Default)]
struct Handshakes(Mutex<(u64, BTreeMap<u64, oneshot::Sender<()>>)>);

impl Handshakes {
    /// Takes a place. The receiver resolves when the place is needed for a later handshake.
    fn enter(&self) -> (HandshakePlace<'_>, oneshot::Receiver<()>) {
        let (open, ends) = oneshot::channel();
        let mut handshakes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, all) = &mut *handshakes;
        *next += 1;
        if all.len() >= HANDSHAKES {
            all.pop_first();
        }
        all.insert(*next, open);
        (HandshakePlace { handshakes: self, number: *next }, ends)
    }
}

/// The place of a handshake. Dropping it leaves the place to others.
struct HandshakePlace<'a> {
    handshakes: &'a Handshakes,
    number: u64,
}

impl Drop for HandshakePlace<'_> {
    fn drop(&mut self) {
        let mut handshakes = self.handshakes.0.lock().unwrap_or_else(PoisonError::into_inner);
        handshakes.1.remove(&self.number);
    }
}

impl Secured {
    pub(crate) fn new(server: Arc<tls::TlsServer>) -> Self {
        Self { server, handshakes: Arc::default() }
    }

    /// The connection after the handshake; `None` if that failed.
    pub(crate) async fn accept(&self, io: TrackedIo<TcpStream>) -> Option<TlsConnection> {
        // A silent caller takes no place from others. `readable` would resolve for some of them.
        io.stream.peek(&mut [0]).await.ok()?;
        let (_place, ends) = self.handshakes.enter();
        let acceptor = TlsAcceptor::from(self.server.config());
        let shaking =
            acceptor.accept_with(io, |session| session.set_buffer_limit(Some(WRITE_BUFFER)));
        let shaken = tokio::select! {
            shaken = timeout(HANDSHAKE, shaking) => shaken,
            _ = ends => {
                tracing::debug!("A TLS handshake was cut off: there are too many");
                return None;
            }
        };
        match shaken {
            Ok(Ok(stream)) => Some(Box::new(stream)),
            Ok(Err(error)) => {
                tracing::debug!(%error, "A TLS handshake failed: {error}");
                None
            }
            Err(_) => {
                tracing::debug!("A TLS handshake took too long");
                None
            }
        }
    }
}
