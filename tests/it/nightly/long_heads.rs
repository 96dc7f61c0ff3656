//! Receivers that answer with long heads, beside a healthy service.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::open_loop::{Callers, End, resident_kib};
use crate::program::{Program, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores, poll};

on_both_stores!(long_heads_delay_no_others_and_take_little_memory);

/// The longest head that is read, in bytes.
const LONGEST: usize = 32 << 10;
/// What each receiver sends: a little less, and what was once read of a call.
const HEADS: [(&str, usize); 2] = [("below", LONGEST - 512), ("above", 390 << 10)];
/// How long a receiver keeps each head unfinished.
const HOLD: Duration = Duration::from_secs(2);
/// Calls in flight to each of them.
const CALLS: usize = 600;
/// The load of the healthy service, and how long it is measured.
const RATE: f64 = 100.0;
const SPAN: Duration = Duration::from_secs(10);
/// What a timer or a busy moment of the machine may add.
const FLOOR_MS: u128 = 20;
/// The most memory of one call: its head, twice that while the buffer grows, and as much again for
/// its task, its connection and what the allocator keeps. It was 390 KiB for the head alone.
const MOST_KIB_OF_A_CALL: u64 = 128;

/// A receiver that sends a head of this length, keeps it unfinished for a while, and then ends it.
struct LongHeads {
    port: u16,
    /// How many calls wait for the end of the head, and the most so far.
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl LongHeads {
    async fn start(length: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (open, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let heads = Self { port: listener.local_addr().unwrap().port(), open, most };
        let (open, most) = (heads.open.clone(), heads.most.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (open, most) = (open.clone(), most.clone());
                tokio::spawn(async move {
                    most.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                    // The caller may have left.
                    let _ = answer(stream, length).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        heads
    }

    fn set(&self, name: &str) -> String {
        let (port, rate) = (self.port, CALLS as u64 / HOLD.as_secs());
        format!(
            "services.{name}={{endpoints=[\"http://127.0.0.1:{port}\"], concurrency={CALLS}, \
             rate=\"{rate}/s\"}}"
        )
    }
}

async fn answer(mut stream: TcpStream, length: usize) -> std::io::Result<()> {
    let mut request = vec![0; 4 << 10];
    let _ = stream.read(&mut request).await?;
    let begin = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n";
    stream.write_all(begin.as_bytes()).await?;
    stream.write_all(format!("x-long: {}", "a".repeat(length)).as_bytes()).await?;
    tokio::time::sleep(HOLD).await;
    stream.write_all(b"\r\n\r\n").await
}

fn task(sn: &str) -> Value {
    json!({"topic": sn, "delay": 0, "max_attempts": 1, "content": {"sn": sn, "url": "/"}})
}

/// The time of adds and the lateness of the healthy service, each as p99 in milliseconds.
async fn measured(delayd: &Program, healthy: &Receiver) -> [u128; 2] {
    let before = healthy.seen().len();
    let callers = Callers::of(delayd.address, 50, Duration::from_secs(10));
    callers.connect().await;
    let answers = callers.open_loop(RATE, SPAN, |_| task("healthy").to_string()).await;
    let stored = answers.count(End::is_stored);
    assert!(stored as f64 > 0.95 * RATE * SPAN.as_secs_f64(), "{stored} adds were stored");
    let seen = healthy.wait_for(before + stored).await;
    let mut late: Vec<u128> =
        seen[before..].iter().map(|seen| seen.lateness_ms().max(0) as u128).collect();
    late.sort_unstable();
    [answers.percentile_ms(99, End::is_stored), late[late.len() * 99 / 100]]
}

/// Each call held up to 390 KiB of a head that did not end.
async fn long_heads_delay_no_others_and_take_little_memory(kept: Kept) {
    let healthy = Receiver::start().await;
    let mut receivers = Vec::new();
    // Heads that are too long are failures: the breaker must not stop the calls.
    let mut sets = vec![
        service("healthy", &healthy),
        "callback.breaker={min_calls=1000000, consecutive_failures=1000000}".to_owned(),
    ];
    for (name, length) in HEADS {
        let receiver = LongHeads::start(length).await;
        sets.push(receiver.set(name));
        receivers.push(receiver);
    }
    let delayd = kept.start_as_shipped(&sets).await;
    let alone = measured(&delayd, &healthy).await;
    let idle_kib = resident_kib(delayd.pid());

    let seconds = SPAN.as_secs() as usize + 5;
    for sn in ["below", "above"] {
        let count = CALLS * seconds / HOLD.as_secs() as usize;
        for part in vec![task(sn); count].chunks(1_000) {
            delayd.add_all(part).await;
        }
    }
    let below = &receivers[0];
    let is_full = async || below.most.load(Ordering::Relaxed) >= 500;
    assert!(poll::until(is_full).await, "500 calls are not in flight");
    let pid = delayd.pid();
    let memory = tokio::spawn(async move {
        let mut most = 0;
        for _ in 0..SPAN.as_secs() * 10 {
            most = most.max(resident_kib(pid));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        most
    });
    let beside = measured(&delayd, &healthy).await;
    assert!(below.open.load(Ordering::Relaxed) > 0, "the long heads ended too early");
    let grew_kib = memory.await.unwrap().saturating_sub(idle_kib);
    let calls = receivers.iter().map(|r| r.most.load(Ordering::Relaxed) as u64).sum::<u64>();
    println!(
        "p99 of adds and of lateness: {alone:?} ms alone, {beside:?} ms beside {calls} long heads; \
         {grew_kib} KiB more"
    );
    for (name, alone, beside) in [("adds", alone[0], beside[0]), ("lateness", alone[1], beside[1])]
    {
        assert!(beside <= 2 * alone + FLOOR_MS, "{name}: {alone} ms alone, {beside} ms beside");
    }
    assert!(grew_kib < 2 * CALLS as u64 * MOST_KIB_OF_A_CALL, "{grew_kib} KiB more");
}
