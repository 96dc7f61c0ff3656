//! The receiver of callbacks. Each callback gets a timestamp on arrival, and an empty 200.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
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
    pub(crate) address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    _accepting: JoinSet<()>,
}

impl Receiver {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let (address, arrivals) = (listener.local_addr()?, Arc::default());
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&arrivals)));
        Ok(Self { address, arrivals, _accepting: accepting })
    }

    /// The number of callbacks since the last [`Receiver::take`].
    pub(crate) fn count(&self) -> usize {
        lock(&self.arrivals).len()
    }

    /// Returns the callbacks and forgets them.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *lock(&self.arrivals))
    }
}

fn lock(arrivals: &Mutex<Vec<Arrival>>) -> MutexGuard<'_, Vec<Arrival>> {
    arrivals.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, arrivals: Arc<Mutex<Vec<Arrival>>>) {
    let mut connections = JoinSet::new();
    loop {
        // Most likely no file descriptors are left. The delay shows as lateness.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        // An unanswered callback is lost with a broken connection. The account detects repeats.
        connections.spawn(serve(stream, Arc::clone(&arrivals)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, arrivals: Arc<Mutex<Vec<Arrival>>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::with_capacity(READ);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        while let Some(frame) = Frame::of(&read)? {
            let arrival = header(&read[..frame.body], "delay-task-id")
                .map(|id| Arrival { id, at_us: clock::now_us() });
            lock(&arrivals).extend(arrival);
            read.drain(..frame.end);
            stream.write_all(OK).await?;
        }
    }
}
