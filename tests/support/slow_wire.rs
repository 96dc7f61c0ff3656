//! A slow network to a server: each answer takes a while. Answers do not delay each other, so a
//! thousand requests at a time get a thousand answers at a time. The network can also be cut.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The slow network. It lasts as long as the runtime.
#[derive(Debug)]
pub struct SlowWire {
    pub address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
    is_cut: watch::Sender<bool>,
}

impl SlowWire {
    pub async fn to(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay_ms = Arc::new(AtomicU64::new(delay.as_millis() as u64));
        let is_cut = watch::Sender::new(false);
        let (delays, cut) = (delay_ms.clone(), is_cut.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, port, delays.clone(), cut.clone()));
            }
        });
        Self { address, delay_ms, is_cut }
    }

    /// From now on, nothing passes. The connections stay open, and new ones are accepted.
    pub fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    /// The network is whole again. What was sent meanwhile arrives now, as TCP sends it again.
    pub fn mend(&self) {
        self.is_cut.send_replace(false);
    }

    /// From now on, answers take this long.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

async fn connect(
    client: TcpStream,
    port: u16,
    delays: Arc<AtomicU64>,
    mut cut: watch::Receiver<bool>,
) {
    let _ = cut.wait_for(|is_cut| !is_cut).await;
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(carry(from_client, to_server, Arc::default(), cut.clone()));
    carry(from_server, to_client, delays, cut).await;
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay_ms: Arc<AtomicU64>,
    mut cut: watch::Receiver<bool>,
) {
    let (on_the_way, mut arriving) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, bytes)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            // The network lasts as long as the runtime.
            let _ = cut.wait_for(|is_cut| !is_cut).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let at = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
        if on_the_way.send((at, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}
