//! Receivers that misbehave on the wire, each in its own way, until they are mended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::receiver::{Seen, now_ms};

/// How a receiver misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// RST instead of an answer.
    Reset,
    /// Reads the request and does not answer.
    StallBeforeHead,
    /// Sends a head that announces a body, and then nothing.
    StallAfterHead,
    /// Sends one byte a second.
    Drip,
    /// Sends a body without an end, as fast as the caller reads. Every other answer is a success.
    Endless,
    /// Redirects the caller to another address, where the call would succeed.
    Redirect,
    /// Answers correctly, and closes the connection a moment later without having announced it.
    CloseIdle,
    /// Does not speak HTTP.
    Garbage,
    /// Accepts no connection: requests stay in the kernel's buffers.
    Deaf,
}

pub const MANNERS: [Manner; 9] = [
    Manner::Reset,
    Manner::StallBeforeHead,
    Manner::StallAfterHead,
    Manner::Drip,
    Manner::Endless,
    Manner::Redirect,
    Manner::CloseIdle,
    Manner::Garbage,
    Manner::Deaf,
];

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// The running receiver. It records only the calls that it has answered with success.
#[derive(Clone, Debug)]
pub struct BadReceiver {
    pub endpoint: String,
    notes: Arc<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    seen: Mutex<Vec<Seen>>,
    is_well: AtomicBool,
}

impl BadReceiver {
    /// Starts a receiver. `elsewhere` is the target of its redirects.
    pub async fn start(manner: Manner, elsewhere: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            notes: Arc::default(),
        };
        let (notes, elsewhere) = (receiver.notes.clone(), elsewhere.to_owned());
        tokio::spawn(async move {
            while manner == Manner::Deaf && !notes.is_well() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            while let Ok((stream, _)) = listener.accept().await {
                let (notes, elsewhere) = (notes.clone(), elsewhere.clone());
                tokio::spawn(async move {
                    // The next connection starts afresh, however this one ends.
                    let _ = serve(stream, manner, &elsewhere, &notes).await;
                });
            }
        });
        receiver
    }

    /// From now on it answers every call correctly.
    pub fn mend(&self) {
        self.notes.is_well.store(true, Ordering::Relaxed);
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.notes.seen.lock().unwrap().clone()
    }
}

impl Notes {
    fn is_well(&self) -> bool {
        self.is_well.load(Ordering::Relaxed)
    }

    fn take(&self, call: Seen) {
        self.seen.lock().unwrap().push(call);
    }
}

async fn serve(
    mut stream: TcpStream,
    manner: Manner,
    elsewhere: &str,
    notes: &Notes,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(call) = request(&mut stream, &mut buffer).await? {
        let answers_well = matches!(manner, Manner::CloseIdle | Manner::Deaf);
        if !answers_well && !notes.is_well() {
            if manner == Manner::Endless && call.id % 2 == 0 {
                notes.take(call);
                return endless(stream, "200 OK").await;
            }
            return misbehave(stream, manner, elsewhere).await;
        }
        notes.take(call);
        stream.write_all(OK).await?;
        if manner == Manner::CloseIdle {
            // At a moment when the caller may be about to use the connection again.
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..60))).await;
            return Ok(());
        }
    }
    Ok(())
}

async fn misbehave(mut stream: TcpStream, manner: Manner, elsewhere: &str) -> std::io::Result<()> {
    match manner {
        Manner::Reset => {
            // The peer gets a RST, whether or not data is unread.
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
            drop(stream);
            Ok(())
        }
        Manner::StallBeforeHead => gone(stream).await,
        Manner::StallAfterHead => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{").await?;
            gone(stream).await
        }
        Manner::Drip => {
            for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}" {
                stream.write_all(&[*byte]).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        }
        Manner::Endless => endless(stream, "500 Internal Server Error").await,
        Manner::Redirect => {
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}/\r\n\
                 content-length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await?;
            gone(stream).await
        }
        Manner::Garbage => stream.write_all(b"\x16\x03\x01 220 welcome\r\n\r\n\0\0\0\0").await,
        Manner::CloseIdle | Manner::Deaf => unreachable!("it answers correctly"),
    }
}

/// Waits until the peer gives up.
async fn gone(mut stream: TcpStream) -> std::io::Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn endless(mut stream: TcpStream, status: &str) -> std::io::Result<()> {
    stream
        .write_all(format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes())
        .await?;
    let mut chunk = format!("{:x}\r\n", 64 << 10).into_bytes();
    chunk.resize(chunk.len() + (64 << 10), b' ');
    chunk.extend_from_slice(b"\r\n");
    loop {
        stream.write_all(&chunk).await?;
    }
}

/// Reads one request; `None` at the connection's end.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Seen>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).to_lowercase();
    let header = |name: &str| -> i64 {
        let value = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
    };
    let end = head_end + usize::try_from(header("content-length")).unwrap();
    while buffer.len() < end {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let seen = Seen {
        path: head.split(' ').nth(1).unwrap_or_default().to_owned(),
        id: header("delay-task-id") as u64,
        attempt: header("delay-attempt") as u32,
        due_ms: header("delay-due-ms"),
        arrived_ms: now_ms(),
        headers: Default::default(),
        body: String::from_utf8_lossy(&buffer[head_end..end]).into_owned(),
    };
    buffer.drain(..end);
    Ok(Some(seen))
}
