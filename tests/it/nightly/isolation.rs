//! Viewers beside a healthy service: what they read delays neither its calls nor adds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::program::{Program, client, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores, poll};

on_both_stores!(lists_of_a_wide_topic_delay_neither_calls_nor_adds);

const LANES: usize = 256;
const TASKS: usize = 100_000;
const VIEWERS: usize = 8;
/// How long each measurement takes.
const SPAN: Duration = Duration::from_secs(8);
/// What timers and a busy processor add to a figure.
const FLOOR_MS: u128 = 20;

fn token(name: &str, scopes: &str) -> String {
    let hash = delayd::model::token::TokenHash::of(name).to_hex();
    format!("{{name='{name}', token_sha256='{hash}', scopes=[{scopes}], topics=['*']}}")
}

/// The status of a call with this token, and its answer.
async fn call(
    http: &Client,
    delayd: &Program,
    token: &str,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let post = http.post(delayd.url(path)).bearer_auth(token);
    let answer = post.body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Eight lists at a time of 100,000 tasks in 256 lanes once made Redis refuse all adds.
async fn lists_of_a_wide_topic_delay_neither_calls_nor_adds(kept: Kept) {
    let receiver = Receiver::start().await;
    let tokens = [token("view", "'view'"), token("all", "'admin', 'produce'")].join(", ");
    let sets = [format!("http.auth.tokens=[{tokens}]"), service("healthy", &receiver)];
    let delayd = Arc::new(kept.start_as_shipped(&sets).await);
    let http = client();
    let wide = json!({"topic": "wide", "shards": LANES});
    assert_eq!(call(&http, &delayd, "all", "/delay/topic/set", &wide).await.0, 200);
    let task = |n| json!({"topic": "wide", "delay": format!("{}s", 86_400 + n), "content": {}});
    for first in (0..TASKS).step_by(1_000) {
        let tasks: Vec<Value> = (first..first + 1_000).map(task).collect();
        let batch = json!({"tasks": tasks});
        let is_stored = async || {
            let (status, answer) =
                call(&http, &delayd, "all", "/delay/task/add_batch", &batch).await;
            status == 200 && answer["failed"] == 0
        };
        assert!(poll::until(is_stored).await, "{}", delayd.log());
    }
    let alone = Figures::measure(&delayd, &receiver).await;
    let (stop, viewers) = view(&delayd);
    let beside = Figures::measure(&delayd, &receiver).await;
    stop.send_replace(true);
    let mut lists = 0;
    for viewer in viewers {
        lists += viewer.await.unwrap();
    }
    eprintln!("alone {alone:?}, beside {lists} lists {beside:?}");
    assert!(lists > 0, "no list was answered:\n{}", delayd.log());
    alone.assert_near(&beside);
}

/// Viewers that list without a pause, until the signal. Each returns how many lists were answered.
fn view(delayd: &Arc<Program>) -> (watch::Sender<bool>, Vec<JoinHandle<usize>>) {
    let stop = watch::Sender::new(false);
    let viewers = (0..VIEWERS).map(|_| {
        let (delayd, stop) = (delayd.clone(), stop.subscribe());
        tokio::spawn(async move {
            let list = json!({"topic": "wide", "state": "scheduled"});
            let (http, mut answered) = (client(), 0);
            while !*stop.borrow() {
                // The answer is not parsed: that would take most of the processor.
                let post = http.post(delayd.url("/delay/task/list")).bearer_auth("view");
                let answer = post.body(list.to_string()).send().await.unwrap();
                match (answer.status().as_u16(), answer.bytes().await.unwrap()) {
                    (200, page) => {
                        assert!(page.len() > 10_000);
                        answered += 1;
                    }
                    (503, _) => {}
                    other => panic!("{other:?}"),
                }
            }
            answered
        })
    });
    let viewers = viewers.collect();
    (stop, viewers)
}

/// What callers and receivers notice, at the 99th percentile.
#[derive(Debug)]
pub(super) struct Figures {
    add_ms: u128,
    late_ms: u128,
}

impl Figures {
    /// Adds tasks that fall due soon, and waits for their calls. No add fails.
    pub(super) async fn measure(delayd: &Program, receiver: &Receiver) -> Self {
        let http = client();
        let task = json!({"topic": "healthy", "delay": "200ms",
            "content": {"sn": "healthy", "url": "/"}});
        let (began, mut ids, mut took) = (Instant::now(), HashSet::new(), Vec::new());
        while began.elapsed() < SPAN {
            let asked = Instant::now();
            let (status, answer) = call(&http, delayd, "all", "/delay/task/add", &task).await;
            took.push(asked.elapsed().as_millis());
            assert_eq!(status, 200, "{answer}\n{}", delayd.log());
            ids.insert(answer["task_id"].as_u64().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let seen = || receiver.seen().into_iter().filter(|seen| ids.contains(&seen.id));
        assert!(poll::until(async || seen().count() >= ids.len()).await, "{}", delayd.log());
        let late = seen().map(|seen| seen.lateness_ms().max(0).unsigned_abs().into()).collect();
        Self { add_ms: p99(took), late_ms: p99(late) }
    }

    /// Fails unless what was measured beside others is near.
    pub(super) fn assert_near(&self, beside: &Self) {
        assert!(beside.add_ms <= 2 * self.add_ms + FLOOR_MS, "adds: {self:?} {beside:?}");
        assert!(beside.late_ms <= 2 * self.late_ms + FLOOR_MS, "calls: {self:?} {beside:?}");
    }
}

fn p99(mut values: Vec<u128>) -> u128 {
    values.sort_unstable();
    values[values.len() * 99 / 100]
}
