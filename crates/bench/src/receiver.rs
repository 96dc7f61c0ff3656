//! Where the callbacks go: each is stamped as it arrives, and answered 200 with nothing; at once,
//! unless they are held.

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
/// How much a connection reads at a time, at first: a call with a short content comes whole.
const READ: usize = 4 * 1024;

/// A receiver that runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    desk: Arc<Desk>,
    accepting: JoinSet<()>,
}

/// What all connections share.
#[derive(Debug)]
struct Desk {
    arrivals: Mutex<Vec<Arrival>>,
    /// Whether nobody is answered for now.
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

    /// Listens at one more address; answers which it is.
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

    /// How many callbacks there were since they were taken.
    pub(crate) fn count(&self) -> usize {
        self.desk.arrivals().len()
    }

    /// The callbacks, which are then forgotten.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.desk.arrivals())
    }

    /// How many connections are open.
    pub(crate) fn connections(&self) -> usize {
        self.desk.connections.load(Ordering::Relaxed)
    }

    /// Whether callbacks are kept waiting for their answers from now on.
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
        // Out of file descriptors, as a rule: whoever waits shows as lateness.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let desk = desk.clone();
        connections.spawn(async move {
            desk.connections.fetch_add(1, Ordering::Relaxed);
            // A connection that breaks takes its unanswered callback along: the account says if
            // that was one too many.
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
