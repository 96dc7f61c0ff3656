//! Receivers that misbehave on the wire, each in a way of its own, and take a task properly only after that.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::receiver::{Seen, now_ms};

/// How it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// RST instead of an answer.
    Reset,
    /// Reads the request and says nothing.
    StallBeforeHead,
    /// Promises a body and says nothing more.
    StallAfterHead,
    /// A byte a second.
    Drip,
    /// A body without an end, as fast as it is taken; as a failure first and then as a success.
    Endless,
    /// Sends the caller elsewhere, where a call would be a success.
    Redirect,
    /// Answers well, and closes the connection a moment later without having said so.
    CloseIdle,
    /// No HTTP.
    Garbage,
    /// Accepts no connection: what is sent lies in the kernel.
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

/// How long [`Manner::Deaf`] does not listen, from its start.
const DEAF_FOR: Duration = Duration::from_secs(3);

/// The running receiver. It notes only the calls that it has answered with success.
#[derive(Clone, Debug)]
pub struct BadReceiver {
    pub endpoint: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl BadReceiver {
    /// Starts one that takes a task at its third attempt; `elsewhere` is where it redirects to.
    pub async fn start(manner: Manner, elsewhere: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let receiver = Self { endpoint: format!("http://{}", listener.local_addr().unwrap()), seen: Arc::default() };
        let (seen, elsewhere) = (receiver.seen.clone(), elsewhere.to_owned());
        tokio::spawn(async move {
            if manner == Manner::Deaf {
                tokio::time::sleep(DEAF_FOR).await;
            }
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, elsewhere) = (seen.clone(), elsewhere.clone());
                tokio::spawn(async move {
                    // However the peer ends the connection, the next one begins anew.
                    let _ = serve(stream, manner, &elsewhere, &seen).await;
                });
            }
        });
        receiver
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, manner: Manner, elsewhere: &str, seen: &Mutex<Vec<Seen>>) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(call) = request(&mut stream, &mut buffer).await? {
        let attempt = call.attempt;
        if manner == Manner::Endless && attempt == 2 {
            seen.lock().unwrap().push(call);
            return endless(stream, "200 OK").await;
        }
        if attempt < 3 && manner != Manner::CloseIdle && manner != Manner::Deaf {
            return misbehave(stream, manner, elsewhere).await;
        }
        seen.lock().unwrap().push(call);
        stream.write_all(OK).await?;
        if manner == Manner::CloseIdle {
            // Just when the caller may be about to use the connection again.
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..60))).await;
            return Ok(());
        }
    }
    Ok(())
}

async fn misbehave(mut stream: TcpStream, manner: Manner, elsewhere: &str) -> std::io::Result<()> {
    match manner {
        Manner::Reset => {
            // Closed with data unread or without, the peer gets a RST.
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
            let answer =
                format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {elsewhere}/\r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).await?;
            gone(stream).await
        }
        Manner::Garbage => stream.write_all(b"\x16\x03\x01 220 welcome\r\n\r\n\0\0\0\0").await,
        Manner::CloseIdle | Manner::Deaf => unreachable!("it answers well"),
    }
}

/// Waits until the peer gives up.
async fn gone(mut stream: TcpStream) -> std::io::Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn endless(mut stream: TcpStream, status: &str) -> std::io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status}\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes()).await?;
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
