//! `delayd move` while callers change tasks that are being moved: they push a task back by its key,
//! cancel it, or acknowledge it late.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::Kept;
use crate::moving::{Running, counts, move_all, mover_from};
use crate::program::{Program, run};
use crate::receiver::now_ms;

/// A proxy before a service. It holds each `adopt` and `moved` until the test lets the call
/// continue.
struct Gate {
    address: SocketAddr,
    stops: mpsc::Receiver<Stop>,
}

/// A call that has not reached the service yet. If it is dropped, it never does.
struct Stop {
    path: String,
    go_on: oneshot::Sender<()>,
}

struct Carrier {
    service: String,
    client: reqwest::Client,
    stops: mpsc::Sender<Stop>,
}

impl Gate {
    async fn before(service: &Program) -> Self {
        let (sender, stops) = mpsc::channel(1);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let carrier = Arc::new(Carrier { service: service.url(""), client, stops: sender });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(carry).with_state(carrier);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, stops }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn carry(State(carrier): State<Arc<Carrier>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    if matches!(&*path, "/delay/task/adopt" | "/delay/task/moved") {
        let (go_on, goes_on) = oneshot::channel();
        // Without a test that receives the stops, all calls continue.
        if carrier.stops.send(Stop { path: path.clone(), go_on }).await.is_ok()
            && goes_on.await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }
    let answer =
        carrier.client.post(format!("{}{path}", carrier.service)).body(body).send().await.unwrap();
    let status = answer.status();
    Response::builder().status(status).body(Body::from(answer.bytes().await.unwrap())).unwrap()
}

/// A mover with a gate before each service.
struct Watched {
    old: Gate,
    new: Gate,
    running: Running,
}

impl Watched {
    async fn start(old: &Program, new: &Program, topic: &str) -> Self {
        let (old, new) = (Gate::before(old).await, Gate::before(new).await);
        let running = Running::start(mover_from(&old.url(), &new.url(), &["--topic", topic]));
        Self { old, new, running }
    }

    async fn next(&mut self) -> Stop {
        tokio::select! {
            stop = self.old.stops.recv() => stop.unwrap(),
            stop = self.new.stops.recv() => stop.unwrap(),
        }
    }

    /// Lets all calls continue until the mover has ended successfully.
    async fn end(self) {
        let Self { old, new, running } = self;
        for mut gate in [old, new] {
            tokio::spawn(async move {
                while let Some(stop) = gate.stops.recv().await {
                    // The mover may have ended. Then nothing waits for this.
                    let _ = stop.go_on.send(());
                }
            });
        }
        running.ended().await;
    }
}

/// Tasks that are being moved.
struct Moving<'a> {
    topic: &'a str,
    cancelled: u64,
    acknowledged: (u64, Value),
}

async fn beat(service: &Program, topic: &str, key: &str) -> Value {
    let task =
        json!({"topic": topic, "key": key, "delay": "1h", "mode": "pull", "content": "beat"});
    service.add(task).await.ok().body
}

/// Makes the new service draw ids of a later hour. Otherwise both services draw the same ids in the
/// same second. A task whose id the new service has drawn stays at the old one.
async fn keep_ids_apart(new: &Program) {
    let (now, ahead) = (now_ms(), 2 * 3_600);
    let record = json!({
        "topic": "apart", "task_id": (now / 1_000 + ahead) * 1_000_000, "mode": "pull",
        "content": "x",
        "state": "delivered", "created_ms": now, "due_ms": now, "finished_ms": now,
    });
    let answer =
        new.post("/delay/task/adopt", json!({"records": [record]}).to_string()).await.ok().body;
    assert_eq!(answer["failed"], 0, "{answer}");
}

const KEYS: [&str; 4] = ["old", "new then old", "old then new", "silent"];

impl<'a> Moving<'a> {
    async fn add(old: &Program, topic: &'a str) -> Self {
        old.post("/delay/topic/set", json!({"topic": topic, "shards": 4}).to_string()).await.ok();
        for key in KEYS {
            beat(old, topic, key).await;
        }
        let plain = json!({"topic": topic, "delay": "1h", "mode": "pull", "content": "plain"});
        let cancelled = old.add(plain).await.id();
        // Its consumer gives it back, and acknowledges it late all the same.
        let backoff = json!({"kind": "fixed", "every": "1h"});
        let late = json!({
            "topic": topic, "delay": 0, "mode": "pull", "backoff": backoff, "content": "late",
        });
        let id = old.add(late).await.id();
        let pulled = old
            .post("/delay/task/pull", json!({"topic": topic, "lease": "30s"}).to_string())
            .await
            .ok()
            .body;
        assert_eq!(pulled["task_id"], id);
        let named = json!({"topic": topic, "task_id": id, "receipt": pulled["receipt"]});
        old.post("/delay/task/nack", named.to_string()).await.ok();
        Self { topic, cancelled, acknowledged: (id, named) }
    }

    /// What callers do while the mover has leased the tasks.
    async fn change(&self, old: &Program, new: &Program, acknowledges: bool) {
        let topic = self.topic;
        assert_eq!(
            beat(old, topic, "old").await["replaced"],
            Value::Null,
            "the mover has leased the task of this key"
        );
        beat(new, topic, "new then old").await;
        beat(old, topic, "new then old").await;
        beat(old, topic, "old then new").await;
        beat(new, topic, "old then new").await;
        let cancel = json!({"topic": topic, "task_id": self.cancelled}).to_string();
        assert_eq!(old.post("/delay/task/cancel", cancel).await.body["dm_error"], 1009, "pending");
        if acknowledges {
            old.post("/delay/task/ack", self.acknowledged.1.to_string()).await.ok();
        }
    }

    /// Asserts that one task of each key waits, at the new service, and that the tasks that callers
    /// ended have ended.
    async fn check(&self, old: &Program, new: &Program, was_acknowledged: bool) {
        let topic = self.topic;
        let left = counts(old, topic).await;
        assert_eq!((&left["scheduled"], &left["leased"]), (&json!(0), &json!(0)), "{topic}");
        let list = json!({"topic": topic, "state": "scheduled"}).to_string();
        let listed = new.post("/delay/task/list", list).await.ok().body;
        let mut waiting: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for task in listed["tasks"].as_array().unwrap() {
            *waiting.entry(task["key"].as_str()).or_default() += 1;
        }
        let mut expected: BTreeMap<Option<&str>, usize> =
            KEYS.into_iter().map(|key| (Some(key), 1)).collect();
        if !was_acknowledged {
            expected.insert(None, 1);
        }
        assert_eq!(waiting, expected, "{topic}: {listed}");
        assert_eq!(old.task(topic, self.cancelled).await["state"], "cancelled", "{topic}");
        assert_eq!(new.task(topic, self.cancelled).await["state"], "cancelled", "{topic}");
        let end = if was_acknowledged { "delivered" } else { "scheduled" };
        assert_eq!(new.task(topic, self.acknowledged.0).await["state"], end, "{topic}");
    }
}

/// A heartbeat used to make a second task while the first was being moved, and both waited: the
/// alarm fired although heartbeats came. A task that was acknowledged late fired again.
async fn tasks_changed_during_the_move_end_up_at_the_new_service(from: Kept, into: Kept) {
    let (old, new) = (from.start(&[]).await, into.start(&[]).await);
    keep_ids_apart(&new).await;
    // Once before the new service stores the task, and once before the old one ends it.
    for (topic, before) in [("adopt", "/delay/task/adopt"), ("moved", "/delay/task/moved")] {
        let moving = Moving::add(&old, topic).await;
        let mut watched = Watched::start(&old, &new, topic).await;
        let stop = loop {
            let stop = watched.next().await;
            if stop.path == before {
                break stop;
            }
            stop.go_on.send(()).unwrap();
        };
        moving.change(&old, &new, true).await;
        stop.go_on.send(()).unwrap();
        watched.end().await;
        moving.check(&old, &new, true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_changed_during_the_move_end_up_at_the_new_service_into_redis() {
    tasks_changed_during_the_move_end_up_at_the_new_service(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_changed_during_the_move_end_up_at_the_new_service_into_embedded() {
    tasks_changed_during_the_move_end_up_at_the_new_service(Kept::redis(), Kept::embedded()).await;
}

/// The mover is killed before each of its steps, and the tasks are changed before each step up to
/// that one. A late acknowledgement while no mover runs is not among the changes, since the next
/// mover cannot see it.
async fn a_mover_killed_between_its_steps_is_resumed(from: Kept, into: Kept) {
    let (old, new) = (from.start(&[]).await, into.start(&[]).await);
    keep_ids_apart(&new).await;
    // The steps are adopt, moved, adopt (an end), moved (back). After the first moved come those of
    // superseded tasks: moved and moved (back).
    for (changed_before, steps) in [(1, 6), (2, 4)] {
        for killed_before in changed_before..=steps {
            let topic = format!("changed-{changed_before}-killed-{killed_before}");
            let moving = Moving::add(&old, &topic).await;
            let mut watched = Watched::start(&old, &new, &topic).await;
            for step in 1..=killed_before {
                let stop = watched.next().await;
                if step == changed_before {
                    moving.change(&old, &new, false).await;
                }
                if step < killed_before {
                    stop.go_on.send(()).unwrap();
                } else {
                    watched.running.kill();
                }
            }
            let summary = move_all(&old, &new, &["--topic", &topic]).await;
            assert_eq!(summary["left"], 0, "{topic}: {summary}");
            moving.check(&old, &new, false).await;
            let again = move_all(&old, &new, &["--topic", &topic]).await;
            assert_eq!((&again["moved"], &again["left"]), (&json!(0), &json!(0)), "{topic}");
            moving.check(&old, &new, false).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_killed_between_its_steps_is_resumed_into_redis() {
    a_mover_killed_between_its_steps_is_resumed(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mover_killed_between_its_steps_is_resumed_into_embedded() {
    a_mover_killed_between_its_steps_is_resumed(Kept::redis(), Kept::embedded()).await;
}

/// Another task of the new service has the id of a task with a key, so that task stays at the old
/// service. The mover goes on as long as its caller pushes it back there. Once the caller uses the
/// new service, the mover ends the task at the old service.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_task_that_is_pushed_back_keeps_the_mover_going() {
    let (from, into) = (Kept::embedded(), Kept::embedded());
    let (old, new) = (from.start(&[]).await, into.start(&[]).await);
    let id = beat(&old, "alive", "device").await["task_id"].clone();
    let now = now_ms();
    let record = json!({
        "topic": "others", "task_id": id, "mode": "pull", "content": "x", "state": "delivered",
        "created_ms": now, "due_ms": now, "finished_ms": now,
    });
    let answer =
        new.post("/delay/task/adopt", json!({"records": [record]}).to_string()).await.ok().body;
    assert_eq!(answer["failed"], 0, "{answer}");
    let words = ["--topic", "alive", "--linger", "1s"];
    let moving = tokio::spawn(run(mover_from(&old.url(""), &new.url(""), &words)));
    for _ in 0..15 {
        assert!(!moving.is_finished(), "the mover has ended");
        beat(&old, "alive", "device").await;
        old.lives_for(Duration::from_millis(200)).await;
    }
    beat(&new, "alive", "device").await;
    let (code, output, error) = moving.await.unwrap();
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &summary["left"]), (0, &json!(0)), "{output}{error}");
    assert_eq!(counts(&old, "alive").await["scheduled"], 0);
    assert_eq!(counts(&new, "alive").await["scheduled"], 1);
}

/// The alarm that has moved is older than the one that stays. It would fire although the device is
/// alive.
async fn a_task_that_stays_ends_the_older_one_of_its_key(from: Kept, into: Kept) {
    let (old, new) = (from.start(&[]).await, into.start(&[]).await);
    beat(&old, "alive", "device").await;
    let (code, output, error) =
        run(mover_from(&old.url(""), &new.url(""), &["--topic", "alive"])).await;
    assert_eq!(
        (code, &counts(&new, "alive").await["scheduled"]),
        (0, &json!(1)),
        "{output}{error}"
    );
    let id = beat(&old, "alive", "device").await["task_id"].clone();
    let now = now_ms();
    let record = json!({
        "topic": "others", "task_id": id, "mode": "pull", "content": "x", "state": "delivered",
        "created_ms": now, "due_ms": now, "finished_ms": now,
    });
    let answer =
        new.post("/delay/task/adopt", json!({"records": [record]}).to_string()).await.ok().body;
    assert_eq!(answer["failed"], 0, "{answer}");
    let (code, output, error) =
        run(mover_from(&old.url(""), &new.url(""), &["--topic", "alive"])).await;
    let summary: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &summary["left"]), (1, &json!(1)), "{output}{error}");
    assert_eq!(counts(&old, "alive").await["scheduled"], 1);
    let counts = counts(&new, "alive").await;
    assert_eq!((&counts["scheduled"], &counts["cancelled"]), (&json!(0), &json!(1)), "{counts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_stays_ends_the_older_one_of_its_key_in_redis() {
    a_task_that_stays_ends_the_older_one_of_its_key(Kept::embedded(), Kept::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_stays_ends_the_older_one_of_its_key_in_embedded() {
    a_task_that_stays_ends_the_older_one_of_its_key(Kept::redis(), Kept::embedded()).await;
}
