//! A TCP proxy before a server. It can lose an answer: the request is carried out, and its answer
//! never arrives.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify, watch};

/// The running proxy. Cheap to clone.
#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    plan: Arc<Mutex<Option<Loss>>>,
}

/// One answer that is to be lost.
#[derive(Clone, Default)]
pub struct Loss {
    executed: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Loss {
    /// Returns once the server has answered. The proxy does not pass the answer on.
    pub async fn executed(&self) {
        self.executed.notified().await;
    }

    /// Closes the connection on which the answer was expected.
    pub fn close(&self) {
        self.go_on.notify_one();
    }
}

impl Proxy {
    pub async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), plan: Arc::default() };
        let plan = proxy.plan.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(carry(client, server, plan.clone()));
            }
        });
        proxy
    }

    /// Loses the answer to the next request.
    pub async fn lose_next(&self) -> Loss {
        let loss = Loss::default();
        *self.plan.lock().await = Some(loss.clone());
        loss
    }
}

async fn carry(client: TcpStream, server: TcpStream, plan: Arc<Mutex<Option<Loss>>>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (closed, mut closing) = watch::channel(());
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
            _ = closing.changed() => {}
        }
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
        // Once a second, each link asks for the server's role. That answer is not the one to lose.
        let is_role = buffer[..read].windows(13).any(|part| part == b"# Replication");
        if !is_role && let Some(loss) = plan.lock().await.take() {
            loss.executed.notify_one();
            loss.go_on.notified().await;
            break;
        }
        if to_client.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    drop(closed);
}
