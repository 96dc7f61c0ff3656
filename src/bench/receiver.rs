//! Where the callbacks go: each is stamped as it arrives, and answered 200 with nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::account::Arrival;
use super::wire::{Frame, header};
use crate::clock::Clock;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const BACKLOG: u32 = 4096;
const READ: usize = 16 * 1024;

/// A receiver that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Receiver {
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    _accepting: JoinSet<()>,
}

impl Receiver {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = if address.is_ipv6() { TcpSocket::new_v6()? } else { TcpSocket::new_v4()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let arrivals = Arc::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&arrivals)));
        Ok(Self { address, arrivals, _accepting: accepting })
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// How many callbacks there were since they were taken.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// The callbacks, which are then forgotten.
    pub(super) fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, arrivals: Arc<Mutex<Vec<Arrival>>>) {
    let mut connections = JoinSet::new();
    loop {
        // Out of file descriptors, as a rule: whoever waits shows as lateness.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let arrivals = arrivals.clone();
        // A connection that breaks takes its unanswered callback along: the account says if that was one too many.
        connections.spawn(async move { drop(serve(stream, &arrivals).await) });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, arrivals: &Mutex<Vec<Arrival>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let clock = Clock::system();
    let mut read = Vec::with_capacity(READ);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
        while let Some(frame) = Frame::of(&read)? {
            let arrival =
                header(&read[..frame.body], "delay-task-id").map(|id| Arrival { id, at_us: clock.now_micros() });
            arrivals.lock().unwrap_or_else(PoisonError::into_inner).extend(arrival);
            read.drain(..frame.end);
            stream.write_all(OK).await?;
        }
    }
}
