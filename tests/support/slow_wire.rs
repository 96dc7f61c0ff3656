//! A slow network to a server: each answer takes a while. Answers do not delay each other, so a
//! thousand requests at a time get a thousand answers at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The slow network. It lasts as long as the runtime.
#[derive(Debug)]
pub struct SlowWire {
    pub address: SocketAddr,
    delay_ms: Arc<AtomicU64>,
}

impl SlowWire {
    pub async fn to(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let delay_ms = Arc::new(AtomicU64::new(delay.as_millis() as u64));
        let delays = delay_ms.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (mut from_client, to_client) = client.into_split();
                let (from_server, mut to_server) = server.into_split();
                tokio::spawn(
                    async move { tokio::io::copy(&mut from_client, &mut to_server).await },
                );
                tokio::spawn(carry(from_server, to_client, delays.clone()));
            }
        });
        Self { address, delay_ms }
    }

    /// From now on, answers take this long.
    pub fn set_delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

async fn carry(
    mut from_server: OwnedReadHalf,
    mut to_client: OwnedWriteHalf,
    delay_ms: Arc<AtomicU64>,
) {
    let (on_the_way, mut arriving) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((at, bytes)) = arriving.recv().await {
            tokio::time::sleep_until(at).await;
            if to_client.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
        let at = Instant::now() + Duration::from_millis(delay_ms.load(Ordering::Relaxed));
        if on_the_way.send((at, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}
