//! Callers that add without end, and the fate of each task: for tests that disturb the store
//! meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinHandle;

use crate::poll;
use crate::program::Program;
use crate::receiver::Receiver;

/// The answer to one add.
#[derive(Clone, Debug)]
pub struct Answered {
    pub status: u16,
    pub id: Option<u64>,
    pub at: Instant,
    pub took: Duration,
}

/// Callers that add to one topic, one task after the other.
pub struct Load {
    topic: String,
    answers: Arc<Mutex<Vec<Answered>>>,
    stop: Arc<AtomicBool>,
    callers: Vec<JoinHandle<()>>,
}

impl Load {
    /// Adds tasks to `topic` that fall due after `delay`.
    pub fn start(delayd: &Arc<Program>, topic: &str, delay: &str, callers: usize) -> Self {
        let answers: Arc<Mutex<Vec<Answered>>> = Arc::default();
        let stop: Arc<AtomicBool> = Arc::default();
        let task =
            json!({"topic": topic, "delay": delay, "content": {"sn": "message.call", "url": "/"}})
                .to_string();
        let callers = (0..callers).map(|_| {
            let (delayd, answers, stop, task) =
                (delayd.clone(), answers.clone(), stop.clone(), task.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let asked = Instant::now();
                    let answer = delayd.post("/delay/task/add", task.clone()).await;
                    let id = answer.body["task_id"].as_u64().filter(|_| answer.status == 200);
                    let answered = Answered {
                        status: answer.status,
                        id,
                        at: Instant::now(),
                        took: asked.elapsed(),
                    };
                    answers.lock().unwrap().push(answered);
                    // Enough load for an add to be running at any moment, and no more.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        });
        Self { topic: topic.into(), callers: callers.collect(), answers, stop }
    }

    pub fn answers(&self) -> Vec<Answered> {
        self.answers.lock().unwrap().clone()
    }

    /// Waits until `count` adds were accepted after `moment`. Returns when the first of them was.
    /// Panics after a minute.
    pub async fn accepted_after(&self, moment: Instant, count: usize) -> Instant {
        let first = async || {
            let answers = self.answers();
            let mut accepted =
                answers.iter().filter(|a| a.id.is_some() && a.at > moment).map(|a| a.at);
            let first = accepted.next()?;
            (1 + accepted.count() >= count).then_some(first)
        };
        let last = || self.answers().into_iter().rev().take(5).collect::<Vec<_>>();
        poll::answer(first)
            .await
            .unwrap_or_else(|| panic!("adds were not accepted again: {:?}", last()))
    }

    /// Waits until an add was refused; panics after a minute. Ids that were drawn before an outage
    /// may serve adds for a while.
    pub async fn refused(&self) {
        let is_refused = async || self.answers().iter().any(|answered| answered.status == 503);
        assert!(poll::until(is_refused).await, "no add was refused");
    }

    /// Stops the adds. Returns the topic and all answers.
    pub async fn stop(self) -> (String, Vec<Answered>) {
        self.stop.store(true, Ordering::SeqCst);
        for caller in self.callers {
            caller.await.unwrap();
        }
        let answers = self.answers.lock().unwrap().clone();
        (self.topic, answers)
    }
}

/// Waits until each accepted task was delivered or no longer exists. Returns those that no longer
/// exist. Panics if a task is neither after a minute.
pub async fn lost(
    delayd: &Program,
    receiver: &Receiver,
    topic: &str,
    answers: &[Answered],
) -> Vec<Answered> {
    let accepted: Vec<&Answered> =
        answers.iter().filter(|answered| answered.id.is_some()).collect();
    let distinct: HashSet<u64> = accepted.iter().filter_map(|answered| answered.id).collect();
    assert_eq!(distinct.len(), accepted.len(), "an id was given to two tasks");
    let mut open = Vec::new();
    let all_known = async || {
        let seen: HashSet<u64> = receiver.seen().iter().map(|call| call.id).collect();
        open = accepted
            .iter()
            .filter(|answered| !seen.contains(&answered.id.unwrap()))
            .copied()
            .collect::<Vec<_>>();
        let mut gone = true;
        for answered in &open {
            let get = json!({"topic": topic, "task_id": answered.id}).to_string();
            gone &= delayd.post("/delay/task/get", get).await.status == 404;
        }
        gone
    };
    if poll::until(all_known).await {
        return open.into_iter().cloned().collect();
    }
    panic!(
        "{} accepted tasks are neither delivered nor gone, such as {:?}\n{}",
        open.len(),
        open[0],
        delayd.log()
    );
}

/// How many times each task was called.
pub fn times_seen(receiver: &Receiver) -> HashMap<u64, usize> {
    let mut times = HashMap::new();
    for call in receiver.seen() {
        *times.entry(call.id).or_default() += 1;
    }
    times
}
