//! Steady adders. They repeat an add only after a 503 or 429, which say that it is not confirmed.
//! An add whose answer was lost stays unconfirmed.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::account::Account;
use crate::fleet::Endpoints;

/// What is added, and how fast.
#[derive(Clone, Debug)]
pub struct Plan {
    pub adders: usize,
    /// The average pause of each adder between two adds. The actual pauses are random, so that
    /// adders do not act together.
    pub pause: Duration,
    pub delay_ms: Range<u64>,
    pub topics: Vec<String>,
    pub service: String,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            adders: 8,
            pause: Duration::from_millis(40),
            delay_ms: 0..1_500,
            topics: (0..4).map(|n| format!("drill.{n}")).collect(),
            service: crate::SERVICE.to_owned(),
        }
    }
}

/// Running adders.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    adders: JoinSet<()>,
}

/// The answer to one add, as the adder needs it.
enum Reply {
    Stored {
        id: u64,
        due_ms: i64,
        by: SocketAddr,
    },
    NotConfirmed(String),
    /// The service was not reached.
    NotSent,
    /// It may have been stored.
    Lost,
}

impl Load {
    pub fn start(account: &Arc<Account>, endpoints: &Endpoints, plan: Plan) -> Self {
        let stop = watch::Sender::new(false);
        let mut adders = JoinSet::new();
        for _ in 0..plan.adders {
            let adder = Adder {
                account: account.clone(),
                endpoints: endpoints.clone(),
                plan: plan.clone(),
                client: client(),
                stop: stop.subscribe(),
            };
            adders.spawn(adder.run());
        }
        Self { stop, adders }
    }

    /// Returns when every adder has ended its last add.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.adders.join_next().await {
            ended.unwrap();
        }
    }
}

/// A client that gives up on a hanging request long before a drill does.
pub fn client() -> reqwest::Client {
    delayd::install_crypto();
    reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap()
}

struct Adder {
    account: Arc<Account>,
    endpoints: Endpoints,
    plan: Plan,
    client: reqwest::Client,
    stop: watch::Receiver<bool>,
}

impl Adder {
    async fn run(mut self) {
        while !*self.stop.borrow() {
            self.add(self.account.number()).await;
            self.rest(self.plan.pause.mul_f64(rand::random_range(0.5..1.5))).await;
        }
    }

    /// One task, sent until it is stored, its answer is lost, or the load ends.
    async fn add(&mut self, n: u64) {
        let topic = self.plan.topics[n as usize % self.plan.topics.len()].clone();
        let delay = rand::random_range(self.plan.delay_ms.clone());
        let task = json!({
            "topic": topic, "delay": format!("{delay}ms"),
            "content": {"sn": self.plan.service, "url": "/", "n": n},
        });
        loop {
            self.account.trying(n, &topic);
            match self.send(n, &task).await {
                Reply::Stored { id, due_ms, by } => {
                    return self.account.confirmed(n, id, due_ms, by);
                }
                Reply::Lost => return self.account.unanswered(),
                Reply::NotSent => self.account.not_sent(n),
                Reply::NotConfirmed(why) => self.account.refused(&why),
            }
            if *self.stop.borrow() {
                return;
            }
            self.rest(Duration::from_millis(50)).await;
        }
    }

    async fn send(&self, n: u64, task: &Value) -> Reply {
        let Some(endpoint) = self.endpoints.pick(n + rand::random::<u8>() as u64) else {
            return Reply::NotSent;
        };
        let asked = Instant::now();
        let sent = self
            .client
            .post(format!("http://{endpoint}/delay/task/add"))
            .body(task.to_string())
            .send()
            .await;
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return Reply::NotSent,
            Err(_) => {
                self.account.answered(asked.elapsed());
                return Reply::Lost;
            }
        };
        let status = answer.status();
        let text = answer.text().await;
        self.account.answered(asked.elapsed());
        let body: Value =
            text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        match (status, body["task_id"].as_u64(), body["due_ms"].as_i64()) {
            (StatusCode::OK, Some(id), Some(due_ms)) => Reply::Stored { id, due_ms, by: endpoint },
            (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS, ..) => {
                Reply::NotConfirmed(body["error_msg"].as_str().unwrap_or_default().to_owned())
            }
            // The head of an answer came, and its end did not.
            (StatusCode::OK, ..) => Reply::Lost,
            _ => panic!("an add was answered {status}: {body}"),
        }
    }

    async fn rest(&mut self, pause: Duration) {
        let _ = tokio::time::timeout(pause, self.stop.wait_for(|stop| *stop)).await;
    }
}
