//! Load that does not wait: requests leave on schedule, over connections that are kept alive.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// An add of a task that is due tomorrow.
pub(crate) const ADD: &str = "POST /delay/task/add HTTP/1.1\r\nhost: x\r\ncontent-length: 56\r\n\r\n\
    {\"topic\":\"load\",\"delay\":\"24h\",\"content\":{\"order\":12345}}";

/// What is offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Requests a second.
    pub(crate) rate: u64,
    /// For how long.
    pub(crate) span: Duration,
    /// How long each waits for its answer.
    pub(crate) patience: Duration,
    /// A request that finds none free, and no room for another, is not sent.
    pub(crate) most_connections: usize,
}

/// Times, in milliseconds since each request's scheduled departure.
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<u64>);

impl Times {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn percentile(&self, percent: usize) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// 200.
    pub(crate) good: Times,
    /// 503 with `Retry-After`.
    pub(crate) refused: Times,
    /// Not answered in time, or the connection broke.
    pub(crate) left: usize,
    /// Not sent, for want of a connection.
    pub(crate) unconnected: usize,
    /// Anything else; the first bytes of one.
    pub(crate) odd: Option<String>,
}

impl Seen {
    /// Good answers a second.
    pub(crate) fn goodput(&self, span: Duration) -> u64 {
        self.good.len() as u64 / span.as_secs().max(1)
    }
}

/// The connections that are free, and how many there are in all.
#[derive(Default)]
struct Connections {
    free: Vec<TcpStream>,
    open: usize,
}

impl Connections {
    /// So many, one after the other: the storm of connections at the start would be all there is to see.
    async fn open(to: SocketAddr, most: usize) -> Self {
        let mut free = Vec::with_capacity(most);
        for _ in 0..most {
            free.push(TcpStream::connect(to).await.unwrap());
        }
        Self { open: free.len(), free }
    }

    /// One that is free, or leave to open another; `None` if there are too many.
    fn take(&mut self, most: usize) -> Option<Option<TcpStream>> {
        if let Some(free) = self.free.pop() {
            return Some(Some(free));
        }
        self.open += 1;
        if self.open > most {
            self.open -= 1;
            return None;
        }
        Some(None)
    }
}

impl Load {
    /// Offers `request`, and returns when everything has been answered or given up.
    pub(crate) async fn run(self, to: SocketAddr, request: &'static str) -> Seen {
        let connections = Arc::new(Mutex::new(Connections::open(to, self.most_connections).await));
        let seen = Arc::new(Mutex::new(Seen::default()));
        let started = Instant::now();
        let mut sent = 0_u64;
        let mut under_way = tokio::task::JoinSet::new();
        while started.elapsed() < self.span {
            let due = (started.elapsed().as_secs_f64() * self.rate as f64) as u64;
            while sent < due {
                let departure = started + Duration::from_secs_f64(sent as f64 / self.rate as f64);
                sent += 1;
                let Some(free) = connections.lock().unwrap().take(self.most_connections) else {
                    seen.lock().unwrap().unconnected += 1;
                    continue;
                };
                let (connections, seen) = (connections.clone(), seen.clone());
                under_way.spawn(async move {
                    let asked = tokio::time::timeout_at(departure + self.patience, ask(free, to, request)).await;
                    let took = u64::try_from(departure.elapsed().as_millis()).unwrap();
                    let Ok(Ok((connection, answer))) = asked else {
                        connections.lock().unwrap().open -= 1;
                        seen.lock().unwrap().left += 1;
                        return;
                    };
                    connections.lock().unwrap().free.push(connection);
                    let mut seen = seen.lock().unwrap();
                    if answer.starts_with("HTTP/1.1 200") {
                        seen.good.0.push(took);
                    } else if answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: ") {
                        seen.refused.0.push(took);
                    } else {
                        seen.odd = Some(answer);
                    }
                });
            }
            while under_way.try_join_next().is_some() {}
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while under_way.join_next().await.is_some() {}
        std::mem::take(&mut *seen.lock().unwrap())
    }
}

/// One request and its answer; the connection is good for another then.
async fn ask(free: Option<TcpStream>, to: SocketAddr, request: &str) -> std::io::Result<(TcpStream, String)> {
    let mut connection = match free {
        Some(connection) => connection,
        None => TcpStream::connect(to).await?,
    };
    connection.write_all(request.as_bytes()).await?;
    let answer = read_answer(&mut connection).await?;
    Ok((connection, answer))
}

/// Reads one answer whole.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let text = String::from_utf8_lossy(&read);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
            return Ok(text.into_owned());
        }
    }
}

/// The resident memory of a process.
pub(crate) fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
