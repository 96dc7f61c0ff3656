//! Open-loop load: adds leave on schedule, whether or not earlier ones were answered, as from
//! independent callers. (A closed loop slows down with the server and so hides a collapse. It is
//! here to measure the server's capacity.)
//!
//! The load uses bare sockets, so that a caller costs less than the server. An add takes a free
//! connection or opens a new one, and never waits for another add. Without a free connection, and
//! with no room for a new one, it is not sent and is counted as such. Times count from the moment
//! at which the add was scheduled, so that a generator that falls behind shows as slowness.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// An add of a task that is due tomorrow.
pub(crate) const ADD: &str = "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\n\
                              content-length: 56\r\n\r\n\
    {\"topic\":\"load\",\"delay\":\"24h\",\"content\":{\"order\":12345}}";

/// The result of one add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// 200.
    Stored { id: u64, due_ms: i64 },
    /// 503 or 429, with `Retry-After`.
    Refused,
    /// Any other answer.
    Odd(u16),
    /// The connection broke or was refused.
    Broken,
    /// The caller had waited for long enough.
    Left,
    /// There was no connection for it.
    Unsent,
}

impl End {
    pub(crate) fn is_stored(self) -> bool {
        matches!(self, Self::Stored { .. })
    }

    /// Whether the server answered as it should, with 200 or a refusal.
    pub(crate) fn is_proper(self) -> bool {
        self.is_stored() || matches!(self, Self::Refused | Self::Unsent)
    }
}

/// One add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Its number, unique in all loads of the same callers.
    pub(crate) n: u64,
    pub(crate) end: End,
    /// Since the scheduled moment.
    pub(crate) took: Duration,
    pub(crate) at: Instant,
}

/// All adds of a load.
#[derive(Debug, Default)]
pub(crate) struct Answers(pub(crate) Vec<Ended>);

impl Answers {
    pub(crate) fn count(&self, is: impl Fn(End) -> bool) -> usize {
        self.0.iter().filter(|ended| is(ended.end)).count()
    }

    /// Adds stored per second between two moments.
    pub(crate) fn goodput(&self, from: Instant, until: Instant) -> f64 {
        let stored = self
            .0
            .iter()
            .filter(|ended| ended.end.is_stored() && (from..until).contains(&ended.at))
            .count();
        stored as f64 / (until - from).as_secs_f64()
    }

    /// A percentile of the time until such a result, in milliseconds; 0 without such a result.
    pub(crate) fn percentile_ms(&self, percent: usize, is: impl Fn(End) -> bool) -> u128 {
        let mut took: Vec<Duration> =
            self.0.iter().filter(|ended| is(ended.end)).map(|ended| ended.took).collect();
        took.sort_unstable();
        let last = took.len().saturating_sub(1);
        took.get((took.len() * percent / 100).min(last)).map_or(0, Duration::as_millis)
    }
}

/// The callers of one server, and the connections that they share. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Callers {
    to: SocketAddr,
    most_connections: usize,
    patience: Duration,
    idle: Arc<Mutex<Vec<TcpStream>>>,
    open: Arc<AtomicUsize>,
    next: Arc<AtomicU64>,
}

impl Callers {
    /// Callers with at most this many connections. They leave after `patience` without an answer.
    pub(crate) fn of(to: SocketAddr, most_connections: usize, patience: Duration) -> Self {
        Self {
            to,
            most_connections,
            patience,
            idle: Arc::default(),
            open: Arc::default(),
            next: Arc::default(),
        }
    }

    /// Opens all connections, one after the other. Otherwise a storm of them at the start would
    /// dominate the measurement.
    pub(crate) async fn connect(&self) {
        while self.may_open() {
            let stream = TcpStream::connect(self.to)
                .await
                .expect("the server takes connections before the load");
            self.idle.lock().unwrap().push(stream);
        }
    }

    /// Keeps `at_a_time` adds running, each sent as soon as the one before it was answered. `add`
    /// makes a body of a number.
    pub(crate) async fn closed_loop(
        &self,
        at_a_time: usize,
        span: Duration,
        add: impl Fn(u64) -> String + Clone + Send + 'static,
    ) -> Answers {
        let (until, mut loops) = (Instant::now() + span, JoinSet::new());
        for _ in 0..at_a_time {
            let (callers, add) = (self.clone(), add.clone());
            loops.spawn(async move {
                let mut ended = Vec::new();
                while Instant::now() < until {
                    let (n, now) = (callers.number(), Instant::now());
                    ended.push(callers.add(n, add(n), now).await);
                }
                ended
            });
        }
        Answers(loops.join_all().await.into_iter().flatten().collect())
    }

    /// Sends `a_second` adds a second, on schedule. Returns when each has ended.
    pub(crate) async fn open_loop(
        &self,
        a_second: f64,
        span: Duration,
        add: impl Fn(u64) -> String,
    ) -> Answers {
        let (began, mut sent, mut under_way) = (Instant::now(), 0_u64, JoinSet::new());
        let mut answers = Answers::default();
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        while began.elapsed() < span {
            ticks.tick().await;
            let due = (began.elapsed().as_secs_f64() * a_second) as u64;
            for this in sent..due {
                let (callers, n) = (self.clone(), self.number());
                let (body, departure) =
                    (add(n), began + Duration::from_secs_f64(this as f64 / a_second));
                under_way.spawn(async move { callers.add(n, body, departure).await });
            }
            sent = sent.max(due);
            while let Some(ended) = under_way.try_join_next() {
                answers.0.push(ended.unwrap());
            }
        }
        answers.0.extend(under_way.join_all().await);
        answers
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn may_open(&self) -> bool {
        let more = |open| (open < self.most_connections).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    async fn add(&self, n: u64, body: String, departure: Instant) -> Ended {
        let idle = self.idle.lock().unwrap().pop();
        let end = if idle.is_none() && !self.may_open() {
            End::Unsent
        } else {
            let asked =
                tokio::time::timeout_at(departure + self.patience, exchange(idle, self.to, &body))
                    .await;
            let (end, kept) = match asked {
                Ok(Ok((end, kept))) => (end, kept),
                Ok(Err(_)) => (End::Broken, None),
                Err(_) => (End::Left, None),
            };
            match kept {
                Some(stream) => self.idle.lock().unwrap().push(stream),
                None => drop(self.open.fetch_sub(1, Ordering::Relaxed)),
            }
            end
        };
        Ended { n, end, took: departure.elapsed(), at: Instant::now() }
    }
}

/// Sends one request and reads its answer. Returns the connection if it can be used again.
async fn exchange(
    idle: Option<TcpStream>,
    to: SocketAddr,
    body: &str,
) -> std::io::Result<(End, Option<TcpStream>)> {
    let mut stream = match idle {
        Some(stream) => stream,
        None => TcpStream::connect(to).await?,
    };
    let head = format!(
        "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await?;
    let answer = read_answer(&mut stream).await?;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
    let end = match status {
        200 => {
            End::Stored { id: number_in(body, "task_id") as u64, due_ms: number_in(body, "due_ms") }
        }
        429 | 503 if head.contains("retry-after: ") => End::Refused,
        odd => End::Odd(odd),
    };
    let is_last = head.contains("connection: close");
    Ok((end, (!is_last).then_some(stream)))
}

/// The number in a field of an answer. (Parsing it as JSON would cost more than writing the
/// request.)
fn number_in(body: &str, field: &str) -> i64 {
    let (_, rest) =
        body.split_once(&format!("\"{field}\":")).expect("an answer to an add has the field");
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("the field is a number")
}

/// Reads one whole answer.
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
