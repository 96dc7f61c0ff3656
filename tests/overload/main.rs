//! Measures how delayd bears more than it can do: an open loop of adds, at multiples of its capacity, on both stores.
//!
//! Arrivals come on schedule, whether or not the ones before were answered, as callers do who know nothing of each other; each
//! waits for its answer for so long and then leaves. (A closed loop slows down with the server, and so hides a collapse.)
//!
//! ```sh
//! cargo build --release && cargo test --release --test overload
//! ```
//!
//! It starts `target/release/delayd` and a redis-server of its own, finds each store's capacity by offering more and more, and
//! prints one line per multiple of it: what was offered, what was answered well in time, how long that took, how soon the
//! others were refused, and what memory delayd had. Nothing here passes or fails; the machine decides the figures. The load takes
//! processors away from delayd, the more the more is offered: on a small machine goodput falls with it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for people: a panic is its report")]
#![allow(unreachable_pub, missing_docs, reason = "nobody else sees it")]

#[path = "../support/open_loop.rs"]
mod open_loop;
#[path = "../support/redis.rs"]
mod redis_server;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use open_loop::{Load, Seen};

/// How long each rate is offered.
const SPAN: Duration = Duration::from_secs(6);

/// How many callers there are. Fewer than delayd takes by the limit of open files: the others would wait outside.
const CONNECTIONS: usize = 4_500;

struct Delayd(Child, SocketAddr);

impl Delayd {
    fn start(sets: &[String]) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/target/release/delayd");
        let mut command = Command::new(program);
        for set in sets {
            command.args(["--set", set]);
        }
        let mut child = command
            .args(["--set", "http.bind=127.0.0.1:0", "serve"])
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .expect("build it first: cargo build --release");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let (_, rest) = line.split_once("listens on http://")?;
            rest.split(',').next()?.parse().ok()
        });
        // Read on, or it would block on its log.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child, address.expect("it says where it listens"))
    }

    fn resident_mib(&self) -> u64 {
        open_loop::resident_kib(self.0.id()) / 1024
    }
}

impl Drop for Delayd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn offer(delayd: &Delayd, rate: u64) -> Seen {
    let load = Load { rate, span: SPAN, patience: Duration::from_secs(2), most_connections: CONNECTIONS };
    load.run(delayd.1, open_loop::ADD).await
}

/// The best goodput of growing rates: the last before more offered brought less, or no more.
async fn capacity(delayd: &Delayd) -> u64 {
    let (mut best, mut rate) = (0, 1_000);
    loop {
        let good = offer(delayd, rate).await.goodput(SPAN);
        if good < best + best / 20 {
            return best.max(good);
        }
        (best, rate) = (good, rate * 3 / 2);
    }
}

fn at(redis: &redis_server::Server) -> [String; 2] {
    ["store.kind=redis".into(), format!("store.redis.urls=[{:?}]", redis.url())]
}

async fn measure(store: &str, sets: &[String]) {
    let delayd = Delayd::start(sets);
    let capacity = capacity(&delayd).await;
    println!("{store}: capacity {capacity}/s");
    println!("   ×  offered/s  good/s  p50 ms  p99 ms  503/s  503 p99 ms  left/s  no conn/s  RSS MiB before→after");
    for factor in [0.5, 1.0, 2.0, 3.0] {
        let before = delayd.resident_mib();
        let rate = (capacity as f64 * factor) as u64;
        let seen = offer(&delayd, rate).await;
        let per_second = |count: usize| count as u64 / SPAN.as_secs();
        println!(
            "{factor:>4}  {rate:>9}  {:>6}  {:>6}  {:>6}  {:>5}  {:>10}  {:>6}  {:>9}  {before}→{}",
            seen.goodput(SPAN),
            seen.good.percentile(50),
            seen.good.percentile(99),
            per_second(seen.refused.len()),
            seen.refused.percentile(99),
            per_second(seen.left),
            per_second(seen.unconnected),
            delayd.resident_mib(),
        );
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |store: &str| wanted.is_empty() || wanted.iter().any(|name| name == store);
    if wants("embedded") {
        measure("embedded", &[format!("store.embedded.path={:?}", folder.path().join("delayd.db"))]).await;
    }
    if wants("redis") {
        let redis = redis_server::Server::start();
        measure("redis", &at(&redis)).await;
    }
    if wants("slow-redis") {
        let redis = Arc::new(redis_server::Server::start());
        let slow = redis.clone();
        // On a machine that gives it a tenth of the time. Detached: it ends with this process.
        std::thread::spawn(move || {
            loop {
                for (signal, for_ms) in [("STOP", 45), ("CONT", 5)] {
                    slow.signal(signal);
                    std::thread::sleep(Duration::from_millis(for_ms));
                }
            }
        });
        measure("slow-redis", &at(&redis)).await;
        std::process::exit(0);
    }
}
