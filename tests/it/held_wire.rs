//! A TCP proxy before Redis that counts the round trips of scripts, can hold answers back, and can
//! break its connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The running proxy. It lasts as long as the runtime.
pub struct HeldWire {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// Each write with a script call since the last [`HeldWire::forget`]: its connection and text.
    sent: Mutex<Vec<(SocketAddr, String)>>,
    /// Whether answers are held back.
    holds: watch::Sender<bool>,
    /// The connections that called a script with this text are broken.
    breaks: watch::Sender<&'static str>,
}

impl HeldWire {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            sent: Mutex::default(),
            holds: watch::Sender::new(false),
            breaks: watch::Sender::new(""),
        });
        let carried = state.clone();
        tokio::spawn(async move {
            while let Ok((client, from)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                tokio::spawn(carry(from, client, server, carried.clone()));
            }
        });
        Self { address, state }
    }

    /// From now on, no answer is passed on.
    pub fn hold(&self) {
        self.state.holds.send_replace(true);
    }

    /// All answers that are held back are passed on.
    pub fn release(&self) {
        self.state.holds.send_replace(false);
    }

    /// Closes the connections that have called a script with this text in it since
    /// [`Self::forget`]. Their answers that are held back are lost; the others are passed on.
    pub fn break_off(&self, text: &'static str) {
        self.state.breaks.send_replace(text);
        self.release();
    }

    /// How many writes have called a script with this text in it, since [`Self::forget`]. A caller
    /// that awaits each answer makes one round trip for each.
    pub fn trips(&self, text: &str) -> usize {
        let sent = self.state.sent.lock().unwrap();
        sent.iter().filter(|(_, call)| call.contains(text)).count()
    }

    /// Counts from zero again.
    pub fn forget(&self) {
        self.state.sent.lock().unwrap().clear();
    }
}

async fn carry(from: SocketAddr, client: TcpStream, server: TcpStream, state: Arc<State>) {
    let mut breaks = state.breaks.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let breaks_here = |text: &&'static str| {
        let sent = state.sent.lock().unwrap();
        !text.is_empty() && sent.iter().any(|(by, call)| *by == from && call.contains(text))
    };
    tokio::select! {
        biased;
        _ = breaks.wait_for(breaks_here) => {}
        () = there(from, from_client, to_server, &state) => {}
        () = back(from_server, to_client, state.holds.subscribe()) => {}
    }
}

async fn there(number: SocketAddr, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let text = String::from_utf8_lossy(&buffer[..read]);
        if text.contains("EVALSHA") {
            state.sent.lock().unwrap().push((number, text.into_owned()));
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn back(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut holds: watch::Receiver<bool>) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if holds.wait_for(|holds| !holds).await.is_err()
            || to.write_all(&buffer[..read]).await.is_err()
        {
            return;
        }
    }
}
