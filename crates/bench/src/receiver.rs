//! The receiver of callbacks. Each callback gets a timestamp on arrival, and an empty 200. The
//! answers can be held back.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::account::Arrival;
use crate::clock;
use crate::wire::{Frame, header};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BACKLOG: u32 = 4096;
/// The initial read buffer of a connection: a call with a short content fits.
const READ: usize = 4 * 1024;

/// A receiver that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    desk: Arc<Desk>,
    accepting: JoinSet<()>,
}

/// The state that all connections share.
#[derive(Debug)]
struct Desk {
    arrivals: Mutex<Vec<Arrival>>,
    /// Whether answers are held back.
    is_held: watch::Sender<bool>,
    connections: AtomicUsize,
}

impl Receiver {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let (arrivals, is_held, connections) =
            (Mutex::default(), watch::Sender::new(false), AtomicUsize::new(0));
        let desk = Arc::new(Desk { arrivals, is_held, connections });
        let mut receiver = Self { address, desk, accepting: JoinSet::new() };
        receiver.address = receiver.listen(address)?;
        Ok(receiver)
    }

    /// Listens at one more address, and returns it.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        self.accepting.spawn(accept(listener, Arc::clone(&self.desk)));
        Ok(address)
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The number of callbacks since the last [`Receiver::take`].
    pub(crate) fn count(&self) -> usize {
        self.desk.arrivals().len()
    }

    /// Returns the callbacks and forgets them.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.desk.arrivals())
    }

    /// The number of open connections.
    pub(crate) fn connections(&self) -> usize {
        self.desk.connections.load(Ordering::Relaxed)
    }

    /// Holds answers back, or releases them.
    pub(crate) fn hold(&self, is_held: bool) {
        self.desk.is_held.send_replace(is_held);
    }
}

impl Desk {
    fn arrivals(&self) -> std::sync::MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    loop {
        // Most likely no file descriptors are left. The delay shows as lateness.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let desk = desk.clone();
        connections.spawn(async move {
            desk.connections.fetch_add(1, Ordering::Relaxed);
            // An unanswered callback is lost with a broken connection. The account detects repeats.
            drop(serve(stream, &desk).await);
            desk.connections.fetch_sub(1, Ordering::Relaxed);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, desk: &Desk) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut is_held = desk.is_held.subscribe();
    let mut read = Vec::with_capacity(READ);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        while let Some(frame) = Frame::of(&read)? {
            let arrival = header(&read[..frame.body], "delay-task-id")
                .map(|id| Arrival { id, at_us: clock::now_us() });
            desk.arrivals().extend(arrival);
            read.drain(..frame.end);
            is_held.wait_for(|is_held| !is_held).await.map_err(io::Error::other)?;
            stream.write_all(OK).await?;
        }
    }
}
