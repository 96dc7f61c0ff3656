//! The sampler and the heartbeats of the real program.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use delayd::store::{Intake, Moment, NewTask, TopicEntry};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::program::{Program, StoreAt, service};
use crate::receiver::Receiver;
use crate::redis_faults::{connect, task as new_task};
use crate::redis_server::Server;
use crate::{Kept, on_both_stores, poll};

on_both_stores!(what_is_overdue_is_charged_to_its_cause, what_nobody_delivers_is_late);

/// The value of a series, once it is there.
async fn value(delayd: &Program, series: &str) -> Option<f64> {
    let text = delayd.get("/metrics").await.body;
    let line = text.as_str()?.lines().find_map(|line| line.strip_prefix(series))?.trim();
    line.parse().ok()
}

/// Waits until a series has this value.
async fn becomes(delayd: &Program, series: &str, expected: f64) {
    let is_so = poll::until(async || value(delayd, series).await == Some(expected)).await;
    assert!(is_so, "{series} is {:?}, not {expected}", value(delayd, series).await);
}

fn overdue(culprit: &str) -> String {
    format!("delayd_store_overdue_tasks{{culprit=\"{culprit}\"}}")
}

async fn what_is_overdue_is_charged_to_its_cause(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let topic = json!({"topic": "paused"}).to_string();
    delayd.post("/delay/topic/set", json!({"topic": "paused", "shards": 1}).to_string()).await.ok();
    delayd.post("/delay/topic/pause", &*topic).await.ok();
    let task = |topic: &str, content| json!({"topic": topic, "delay": "0s", "content": content});
    delayd.add(task("paused", json!({"sn": "message.call", "url": "/"}))).await.ok();
    delayd.add(task("pulled", json!({"n": 1}))).await.ok();
    delayd.add(task("pulled", json!({"n": 2}))).await.ok();
    becomes(&delayd, &overdue("operator"), 1.0).await;
    becomes(&delayd, &overdue("consumer"), 2.0).await;
    becomes(&delayd, &overdue("receiver"), 0.0).await;
    becomes(&delayd, &overdue("delayd"), 0.0).await;
    becomes(&delayd, "delayd_store_tasks{state=\"scheduled\"}", 3.0).await;
    let waiting = "delayd_store_destination_waiting{service=\"message.call\"}";
    becomes(&delayd, waiting, 1.0).await;
    delayd.post("/delay/topic/resume", &*topic).await.ok();
    becomes(&delayd, &overdue("operator"), 0.0).await;
    becomes(&delayd, waiting, 0.0).await;
    assert!(value(&delayd, "delayd_sampler_timestamp_seconds").await.unwrap() > 1.7e9);
}

/// Without workers, no task is handed out, and only the sampler knows that they are late.
async fn what_nobody_delivers_is_late(kept: Kept) {
    let receiver = Receiver::start().await;
    let sets = [
        service("message.call", &receiver),
        "worker.enabled=false".to_owned(),
        "objective.lateness=\"10ms\"".to_owned(),
    ];
    let delayd = kept.start(&sets).await;
    let patient = json!({"topic": "patient", "lateness_objective": "2h"}).to_string();
    delayd.post("/delay/topic/set", patient).await.ok();
    let content = json!({"sn": "message.call", "url": "/"});
    let task = |topic: &str| json!({"topic": topic, "delay": "0s", "content": content});
    delayd.add_all(&[task("patient"), task("strict"), task("strict")]).await;
    becomes(&delayd, &overdue("delayd"), 3.0).await;
    becomes(&delayd, "delayd_store_late_tasks", 2.0).await;
    assert_eq!(value(&delayd, "delayd_objective_tasks_total{result=\"bad\"}").await, Some(0.0));
}

/// A proxy before Redis that counts round trips: bytes from the client after an answer, or after
/// none, begin one.
struct Counting {
    address: SocketAddr,
    trips: Arc<AtomicU64>,
}

impl Counting {
    async fn before(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let trips = Arc::new(AtomicU64::new(0));
        let counted = trips.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(carry(client, server, counted.clone()));
            }
        });
        Self { address, trips }
    }

    fn count(&self) -> u64 {
        self.trips.load(Ordering::Relaxed)
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, trips: Arc<AtomicU64>) {
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let mut is_asking = false;
    loop {
        tokio::select! {
            Ok(read @ 1..) = client.read(&mut asked) => {
                if !std::mem::replace(&mut is_asking, true) {
                    trips.fetch_add(1, Ordering::Relaxed);
                }
                if server.write_all(&asked[..read]).await.is_err() {
                    return;
                }
            }
            Ok(read @ 1..) = server.read(&mut answered) => {
                is_asking = false;
                if client.write_all(&answered[..read]).await.is_err() {
                    return;
                }
            }
            else => return,
        }
    }
}

/// The poll, the heartbeat and the sample, with the janitor and whatever else runs. The janitor's
/// search used to take a round trip for each topic, and a poll one for each 512 topics.
#[tokio::test(flavor = "multi_thread")]
async fn the_work_of_each_second_takes_few_round_trips() {
    const TOPICS: usize = 10_000;
    let server = Server::start();
    let prefix = "it";
    let store = connect(server.port(), prefix).await;
    let task = |n: usize| NewTask {
        topic: TopicEntry { topic: format!("t{n}").parse().unwrap(), shards: 1 },
        moment: Moment::After(Duration::from_secs(36_000)),
        ..new_task(n)
    };
    for added in store.add((0..TOPICS).map(task).collect()).await {
        added.unwrap();
    }
    let counting = Counting::before(server.port()).await;
    let delayd = Program::start(&StoreAt::Redis(counting.address.port(), prefix.into()), &[]).await;
    let now = async || value(&delayd, "delayd_sampler_timestamp_seconds").await.unwrap();
    assert!(poll::until(async || now().await > 0.0).await);
    // A link that is used for the first time connects, in the first seconds.
    let mut each_second = Vec::new();
    for _ in 0..3 {
        let (began, before) = (now().await, counting.count());
        assert!(poll::until(async || now().await >= began + 5.0).await);
        let (ended, after) = (now().await, counting.count());
        each_second.push((after - before) as f64 / (ended - began));
    }
    let few = each_second.iter().any(|count| *count <= 10.0);
    assert!(few, "{each_second:?} round trips a second");
    let sampled = value(&delayd, "delayd_store_tasks{state=\"scheduled\"}").await.unwrap();
    assert!(sampled >= 1_024.0, "few topics were sampled meanwhile: {sampled}");
}
