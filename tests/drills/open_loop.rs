//! A load in an open loop: each add leaves at its time, whether or not the answers before it have come.
//!
//! Written on bare sockets, so that the caller is cheaper than what it calls. An add takes a free connection or opens one more; it
//! never queues behind another.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// No more connections than this; an add that finds none is not sent, and is counted.
const CONNECTIONS: usize = 3_000;

/// A caller gives up after this: an answer later than that is a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may take: beyond that the kernel's queue was full, and the add is not sent.
const CONNECTING: Duration = Duration::from_secs(1);

/// What became of one add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Stored,
    /// 503 or 429.
    Refused,
    /// Another status.
    Odd(u16),
    /// The connection broke or was refused.
    Broken,
    Hung,
    NoConnection,
}

/// All answers, with the time from sending to the answer, and when it came.
#[derive(Debug, Default)]
pub struct Answers(Vec<(End, Duration, Instant)>);

impl Answers {
    pub fn count(&self, is: impl Fn(End) -> bool) -> usize {
        self.0.iter().filter(|(end, ..)| is(*end)).count()
    }

    /// Adds stored a second between two moments.
    pub fn stored_a_second(&self, from: Instant, until: Instant) -> f64 {
        let stored = self.0.iter().filter(|(end, _, at)| *end == End::Stored && (from..until).contains(at)).count();
        stored as f64 / (until - from).as_secs_f64()
    }

    /// The slowest answer that came.
    pub fn slowest(&self, is: impl Fn(End) -> bool) -> Duration {
        self.0.iter().filter(|(end, ..)| is(*end)).map(|(_, took, _)| *took).max().unwrap_or_default()
    }
}

/// The callers of one server.
#[derive(Clone)]
pub struct Callers {
    address: SocketAddr,
    idle: Arc<Mutex<Vec<TcpStream>>>,
    in_use: Arc<AtomicUsize>,
}

impl Callers {
    pub fn of(address: SocketAddr) -> Self {
        Self { address, idle: Arc::default(), in_use: Arc::default() }
    }

    /// As many at a time as `connections`, each as soon as its answer has come: how much the server can take.
    pub async fn closed_loop(
        &self,
        connections: usize,
        span: Duration,
        body: impl Fn() -> String + Send + Sync + 'static,
    ) -> Answers {
        let (until, body, mut callers) = (Instant::now() + span, Arc::new(body), JoinSet::new());
        for _ in 0..connections {
            let (caller, body) = (self.clone(), body.clone());
            callers.spawn(async move {
                let mut answers = Vec::new();
                while Instant::now() < until {
                    answers.push(caller.add(body()).await);
                }
                answers
            });
        }
        Answers(callers.join_all().await.into_iter().flatten().collect())
    }

    /// So many a second, on schedule.
    pub async fn open_loop(&self, a_second: f64, span: Duration, body: impl Fn() -> String) -> Answers {
        let (began, mut sent, mut callers) = (Instant::now(), 0_u64, JoinSet::new());
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        while began.elapsed() < span {
            ticks.tick().await;
            let due = (began.elapsed().as_secs_f64() * a_second) as u64;
            for _ in sent..due {
                let (caller, body) = (self.clone(), body());
                callers.spawn(async move { caller.add(body).await });
            }
            sent = sent.max(due);
        }
        Answers(callers.join_all().await)
    }

    async fn add(&self, body: String) -> (End, Duration, Instant) {
        let in_use = self.in_use.fetch_add(1, Ordering::Relaxed);
        let stream = if in_use < CONNECTIONS { self.connection().await } else { None };
        let asked = Instant::now();
        let end = match stream {
            Some(stream) => tokio::time::timeout(PATIENCE, self.send(stream, &body)).await.unwrap_or(End::Hung),
            None => End::NoConnection,
        };
        self.in_use.fetch_sub(1, Ordering::Relaxed);
        (end, asked.elapsed(), Instant::now())
    }

    async fn connection(&self) -> Option<TcpStream> {
        let idle = self.idle.lock().unwrap().pop();
        match idle {
            Some(stream) => Some(stream),
            None => tokio::time::timeout(CONNECTING, TcpStream::connect(self.address)).await.ok()?.ok(),
        }
    }

    async fn send(&self, mut stream: TcpStream, body: &str) -> End {
        let Ok((end, may_go_on)) = exchange(&mut stream, body).await else { return End::Broken };
        if may_go_on {
            self.idle.lock().unwrap().push(stream);
        }
        end
    }
}

/// One request and its answer; whether the connection may be used again.
async fn exchange(stream: &mut TcpStream, body: &str) -> std::io::Result<(End, bool)> {
    stream.set_nodelay(true)?;
    let head = format!("POST /delay/task/add HTTP/1.1\r\nhost: drill\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).await?;
    let mut answer = Vec::with_capacity(512);
    let head_end = loop {
        if let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let head = String::from_utf8_lossy(&answer[..head_end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let end = head_end + length.unwrap_or_default();
    while answer.len() < end {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let end = match status {
        200 => End::Stored,
        503 | 429 => End::Refused,
        odd => End::Odd(odd),
    };
    Ok((end, !head.contains("connection: close")))
}
