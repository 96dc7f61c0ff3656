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
    /// Answers are held back from connections that called a script with this text.
    holds: watch::Sender<Option<&'static str>>,
    /// The connections that called a script with this text are broken.
    breaks: watch::Sender<&'static str>,
}

impl HeldWire {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            sent: Mutex::default(),
            holds: watch::Sender::new(None),
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
        self.hold_of("");
    }

    /// From now on, no answer is passed on to connections that call a script with this text in it,
    /// or have called one since [`Self::forget`]. An empty text: to none.
    pub fn hold_of(&self, text: &'static str) {
        self.state.holds.send_replace(Some(text));
    }

    /// All answers that are held back are passed on.
    pub fn release(&self) {
        self.state.holds.send_replace(None);
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

    /// How often a script was called with this text, since [`Self::forget`].
    pub fn calls(&self, text: &str) -> usize {
        let sent = self.state.sent.lock().unwrap();
        sent.iter().map(|(_, call)| call.matches(text).count()).sum()
    }

    /// Counts from zero again.
    pub fn forget(&self) {
        self.state.sent.lock().unwrap().clear();
    }
}

impl State {
    fn has_called(&self, connection: SocketAddr, text: &str) -> bool {
        let sent = self.sent.lock().unwrap();
        sent.iter().any(|(by, call)| *by == connection && call.contains(text))
    }
}

async fn carry(from: SocketAddr, client: TcpStream, server: TcpStream, state: Arc<State>) {
    let mut breaks = state.breaks.subscribe();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let breaks_here = |text: &&'static str| !text.is_empty() && state.has_called(from, text);
    tokio::select! {
        biased;
        _ = breaks.wait_for(breaks_here) => {}
        () = there(from, from_client, to_server, &state) => {}
        () = back(from, from_server, to_client, &state) => {}
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

async fn back(number: SocketAddr, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State) {
    let mut holds = state.holds.subscribe();
    let goes_on = |held: &Option<&'static str>| {
        held.is_none_or(|text| !text.is_empty() && !state.has_called(number, text))
    };
    let mut buffer = vec![0; 1 << 20];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if holds.wait_for(goes_on).await.is_err() || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
