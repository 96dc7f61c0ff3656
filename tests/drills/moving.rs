//! Two deployments with one receiver, and a move of one into the other during adds, heartbeats and
//! late acks.
//!
//! The receiver drops calls with a `webhook-id` that it has seen, as docs/RECEIVERS.md tells
//! receivers to. So two tasks with the same `webhook-id` lose one of them, and a task that gets a
//! second one is done twice. Both stores draw ids by the clock, so the two deployments share many
//! task ids.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::program::{Program, command, folder, run};
use crate::receiver::{Receiver, Seen};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{is_long, quiet, service, wait_until};

/// A device that is silent for this long raises an alarm.
const ALARM: Duration = Duration::from_secs(6);
const DEVICES: usize = 30;
/// The backoff of a task that its consumer has given back. The consumer acknowledges it meanwhile.
const BACKOFF: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_deployment_moves_into_redis() {
    let (folder, server) = (folder(), Server::start());
    moves("embedded into Redis", fleet::embedded(folder.path()), fleet::redis(&server)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_on_redis_moves_into_an_embedded_store() {
    let (folder, server) = (folder(), Server::start());
    moves("Redis into embedded", fleet::redis(&server), fleet::embedded(folder.path())).await;
}

async fn moves(on: &str, from: crate::program::StoreAt, into: crate::program::StoreAt) {
    let phase = Duration::from_secs(if is_long() { 8 } else { 2 });
    let mut row = Row::new(format!("two deployments, one receiver, and a move, {on}"));
    let (receiver, alarms) = (Receiver::start().await, Receiver::start().await);
    let sets = || {
        vec![
            service(crate::SERVICE, &receiver.endpoint()),
            service("alarm", &alarms.endpoint()),
            "callback.timeout=\"20s\"".into(),
            quiet(),
        ]
    };
    let (old, new) = (Fleet::start(from, sets(), 1).await, Fleet::start(into, sets(), 1).await);
    old.member(0)
        .post("/delay/topic/set", json!({"topic": "alive", "shards": 4}).to_string())
        .await
        .ok();
    let account = Account::open();
    let plan = Plan { adders: 4, delay_ms: 0..8_000, ..Plan::default() };
    let (at_old, at_new) = (
        Load::start(&account, &old.endpoints(), plan.clone()),
        Load::start(&account, &new.endpoints(), plan),
    );
    let pulled = Arc::new(Pulled::default());
    let consumers = pulled.consume([old.member(0), new.member(0)]);
    let beats = Beats::start(old.member(0).url(""), new.member(0).url(""));

    tokio::time::sleep(phase).await;
    let mut mover = command(&[]);
    mover.arg("move").args([
        "--server",
        &old.member(0).url(""),
        "--to",
        &new.member(0).url(""),
        "--json",
    ]);
    // Callers take longer than that to change to the new service, but are never silent for that
    // long.
    mover.args(["--margin", "500ms", "--linger", &format!("{}ms", phase.as_millis() / 2)]);
    let moving = tokio::spawn(run(mover));
    tokio::time::sleep(phase).await;
    beats.at(At::Both);
    tokio::time::sleep(phase).await;
    // The callers use the new service now.
    beats.at(At::New);
    at_old.stop().await;
    pulled.add_at(1);
    let (code, output, error) = moving.await.unwrap();
    // A task whose id both stores have drawn stays at the old one, and is called from there.
    let summary: Value = serde_json::from_str(&output).unwrap_or_default();
    let has_moved = matches!(code, 0 | 1) && summary["moved"].as_u64() > Some(0);
    row.promise(has_moved, format!("the mover ended with {code}: {output}{error}"));
    row.note(format!(
        "{} tasks moved, {} left, whose ids the other store had drawn, too",
        summary["moved"], summary["left"]
    ));
    tokio::time::sleep(ALARM).await;
    row.promise(alarms.seen().is_empty(), "an alarm fired although heartbeats came");
    at_new.stop().await;
    beats.stop().await;
    pulled.stop_adding();

    let confirmed: HashSet<u64> = account
        .adds()
        .iter()
        .filter(|(_, added)| added.confirmed.is_some())
        .map(|(n, _)| *n)
        .collect();
    let all_came = wait_until(|| {
        let came: HashSet<u64> =
            receiver.seen().iter().filter_map(|call| number(&call.body)).collect();
        confirmed.is_subset(&came)
    });
    row.promise(all_came.await, "some tasks never came");
    row.promise(
        wait_until(|| alarms.seen().len() >= DEVICES).await,
        "a device that fell silent raised no alarm",
    );
    row.promise(
        wait_until(|| pulled.is_done()).await,
        format!("tasks were never acknowledged: {:?}", pulled.open()),
    );
    consumers.stop().await;

    let done = processed(&receiver.seen(), |call| number(&call.body).map(|n| n.to_string()));
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times > 1).collect();
    row.promise(
        twice.is_empty(),
        format!("{} tasks were done twice, such as {:?}", twice.len(), twice.first()),
    );
    let never = confirmed.iter().filter(|n| !done.contains_key(&n.to_string())).count();
    row.promise(never == 0, format!("{never} tasks were dropped as duplicates of others"));
    let raised = processed(&alarms.seen(), |call| Some(call.body.clone()));
    row.promise(
        raised.len() == DEVICES && raised.values().all(|times| *times == 1),
        format!("wrong number of alarms by device: {raised:?}"),
    );
    let again = pulled.handed_out_again();
    row.promise(again.is_empty(), format!("handed out after an ack that was confirmed: {again:?}"));
    row.note(format!("{} pulled tasks acknowledged late", pulled.acknowledged()));
    row.settle(Verdict::by_calls_alone(&account, || receiver.seen()).await);
    row.promise(row.duplicates() == 0, "a task came twice although nothing failed");
    row.finish();
}

fn number(body: &str) -> Option<u64> {
    serde_json::from_str::<Value>(body).ok()?["n"].as_u64()
}

/// How often each task was done by a receiver that drops calls with a known `webhook-id`.
fn processed(seen: &[Seen], name: impl Fn(&Seen) -> Option<String>) -> BTreeMap<String, usize> {
    let mut known = HashSet::new();
    let mut done = BTreeMap::new();
    for call in seen.iter().filter(|call| known.insert(call.headers["webhook-id"].clone())) {
        *done.entry(name(call).expect("the body is one of this drill")).or_default() += 1;
    }
    done
}

/// Where callers send their heartbeats.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Old,
    Both,
    New,
    Nowhere,
}

/// A caller that sends the heartbeats of all devices, several times a second.
struct Beats {
    at: watch::Sender<At>,
    caller: JoinSet<()>,
}

impl Beats {
    fn start(old: String, new: String) -> Self {
        let (at, mut told) = watch::channel(At::Old);
        let mut caller = JoinSet::new();
        caller.spawn(async move {
            let client = crate::load::client();
            for n in 0_usize.. {
                let at = *told.borrow_and_update();
                let server = match at {
                    At::Old => &old,
                    At::New => &new,
                    At::Both => [&old, &new][n % 2],
                    At::Nowhere => return,
                };
                let tasks: Vec<Value> = (0..DEVICES).map(beat).collect();
                let url = format!("{server}/delay/task/add_batch");
                let (answer, _) = post(&client, &url, &json!({"tasks": tasks})).await;
                assert_eq!(answer["failed"], 0, "{answer}");
                let _ = tokio::time::timeout(Duration::from_millis(200), told.changed()).await;
            }
        });
        Self { at, caller }
    }

    fn at(&self, at: At) {
        self.at.send_replace(at);
    }

    async fn stop(mut self) {
        self.at(At::Nowhere);
        while let Some(ended) = self.caller.join_next().await {
            ended.unwrap();
        }
    }
}

/// Posts until the store confirms it: a stalled disk lets adds fail for a moment. Returns whether
/// it was repeated, too.
async fn post(client: &reqwest::Client, url: &str, body: &Value) -> (Value, bool) {
    for n in 0_usize.. {
        let answer = client.post(url).body(body.to_string()).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        if !says_unavailable(&answer) {
            return (answer, n > 0);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!("it is repeated without an end")
}

/// Whether the answer to a call, or to one of the tasks of a batch, says that it is not confirmed.
fn says_unavailable(answer: &Value) -> bool {
    let results = answer["results"].as_array();
    results.into_iter().flatten().chain([answer]).any(|answer| answer["dm_error"] == 2003)
}

fn beat(device: usize) -> Value {
    json!({
        "topic": "alive", "key": format!("device-{device}"),
        "delay": format!("{}s", ALARM.as_secs()),
        "content": {"sn": "alarm", "url": "/", "device": device},
    })
}

/// What consumers know of the tasks that they pull.
#[derive(Debug, Default)]
struct Pulled {
    /// By number: whether an ack was confirmed.
    tasks: Mutex<HashMap<u64, bool>>,
    again: Mutex<Vec<u64>>,
    /// Where tasks are added: 0 or 1, and 2 for nowhere.
    adds_at: std::sync::atomic::AtomicUsize,
}

struct Consumers {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Consumers {
    async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.running.join_next().await {
            ended.unwrap();
        }
    }
}

impl Pulled {
    fn consume(self: &Arc<Self>, services: [&Program; 2]) -> Consumers {
        let urls = services.map(|service| service.url(""));
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for url in urls.clone() {
            for _ in 0..16 {
                running.spawn(self.clone().pull(url.clone(), stopped.clone()));
            }
        }
        running.spawn(self.clone().add(urls, stopped));
        Consumers { stop, running }
    }

    async fn add(self: Arc<Self>, urls: [String; 2], mut stopped: watch::Receiver<bool>) {
        let client = crate::load::client();
        for n in 0_u64.. {
            let Some(url) = urls.get(self.adds_at.load(std::sync::atomic::Ordering::Relaxed))
            else {
                return;
            };
            let backoff = json!({"kind": "fixed", "every": format!("{}s", BACKOFF.as_secs())});
            let content = json!({"n": n}).to_string();
            let task = json!({
                "topic": "pulled", "delay": 0, "mode": "pull", "backoff": backoff,
                "content": content, "idempotency_key": n.to_string(),
            });
            self.tasks.lock().unwrap().insert(n, false);
            let (answer, _) = post(&client, &format!("{url}/delay/task/add"), &task).await;
            assert_eq!(answer["dm_error"], 0, "{answer}");
            let _ = tokio::time::timeout(Duration::from_millis(60), stopped.wait_for(|stop| *stop))
                .await;
        }
    }

    /// Pulls a task, gives it back, and acknowledges it while it waits for its next attempt, at
    /// whichever service.
    async fn pull(self: Arc<Self>, url: String, mut stopped: watch::Receiver<bool>) {
        let client = crate::load::client();
        let call = async |path: &str, body| {
            post(&client, &format!("{url}/delay/task/{path}"), &body).await
        };
        while !*stopped.borrow() {
            let pull = json!({"topic": "pulled", "lease": "30s", "wait": "500ms"});
            let (task, _) = call("pull", pull).await;
            let Some(id) = task["task_id"].as_u64() else { continue };
            let n = number(task["content"].as_str().unwrap()).unwrap();
            if self.tasks.lock().unwrap()[&n] {
                self.again.lock().unwrap().push(n);
            }
            let held = json!({"topic": "pulled", "task_id": id, "receipt": task["receipt"]});
            let (given_back, repeated) = call("nack", held.clone()).await;
            // The first nack of several may have been stored.
            assert!(repeated || given_back["dm_error"] == 0, "{given_back}");
            let late = Duration::from_millis(rand::random_range(1..BACKOFF.as_millis() as u64 / 2));
            let _ = tokio::time::timeout(late, stopped.wait_for(|stop| *stop)).await;
            // Refused if the task has moved to the new service. It is pulled there.
            if call("ack", held).await.0["dm_error"] == 0 {
                self.tasks.lock().unwrap().insert(n, true);
            }
        }
    }

    fn add_at(&self, service: usize) {
        self.adds_at.store(service, std::sync::atomic::Ordering::Relaxed);
    }

    fn stop_adding(&self) {
        self.add_at(2);
    }

    fn open(&self) -> Vec<u64> {
        self.tasks
            .lock()
            .unwrap()
            .iter()
            .filter(|(_, acknowledged)| !**acknowledged)
            .map(|(n, _)| *n)
            .collect()
    }

    fn is_done(&self) -> bool {
        self.open().is_empty()
    }

    fn acknowledged(&self) -> usize {
        self.tasks.lock().unwrap().values().filter(|acknowledged| **acknowledged).count()
    }

    fn handed_out_again(&self) -> Vec<u64> {
        self.again.lock().unwrap().clone()
    }
}
