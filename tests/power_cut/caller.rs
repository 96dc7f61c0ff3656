//! A caller that notes the position of the record before each request and after each answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use crate::history::History;
use crate::record::Recorder;

/// Cheap to clone; clones share the history.
#[derive(Clone, Debug)]
pub struct Caller {
    pub recorder: Recorder,
    pub history: Arc<Mutex<History>>,
    client: reqwest::Client,
    /// Where the program listens. `None` while it does not run.
    address: watch::Receiver<Option<SocketAddr>>,
    is_over: watch::Receiver<bool>,
}

impl Caller {
    pub fn new(
        recorder: Recorder,
        address: watch::Receiver<Option<SocketAddr>>,
        is_over: watch::Receiver<bool>,
    ) -> Self {
        delayd::install_crypto();
        // The service answers within a second. A program that was killed does not answer.
        let client = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().unwrap();
        Self { recorder, history: Arc::default(), client, address, is_over }
    }

    pub fn position(&self) -> u64 {
        self.recorder.position()
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }

    pub fn is_over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// The answer to a call, and the position at which it had arrived. `None` if the call was not
    /// confirmed: it may be carried out or not.
    pub async fn call(&self, path: &str, body: &Value) -> Option<(Value, u64)> {
        let mut address = self.address.clone();
        let address = address.wait_for(Option::is_some).await.ok()?.expect("it was waited for");
        let request = self.client.post(format!("http://{address}{path}")).body(body.to_string());
        let Ok(response) = request.send().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            return None;
        };
        let status = response.status().as_u16();
        let answer = response.bytes().await.ok()?;
        let position = self.position();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        match status {
            200 => Some((answer, position)),
            503 | 429 => None,
            // After a crash a task is called again, and acknowledged under two receipts.
            409 if path.ends_with("/ack") && body["topic"] == "pushed" => None,
            _ => panic!("{path} {body}: {answer}"),
        }
    }

    /// Calls twice, the second time a little later, as a caller does whose answer does not come.
    /// Returns the earlier answer: it promises everything, whichever call it belongs to.
    pub async fn call_twice(&self, path: &str, body: &Value) -> Option<(Value, u64)> {
        let later = async {
            tokio::time::sleep(Duration::from_millis(rand::random_range(0..40))).await;
            self.call(path, body).await
        };
        let (first, second) = tokio::join!(self.call(path, body), later);
        if let (Some((one, _)), Some((other, _))) = (&first, &second) {
            assert_eq!(one["task_id"], other["task_id"], "{path} {body} made two tasks");
        }
        [first, second].into_iter().flatten().min_by_key(|(_, position)| *position)
    }

    /// Once or twice.
    pub async fn insist(&self, path: &str, body: &Value) -> Option<(Value, u64)> {
        if rand::random_bool(0.5) {
            self.call_twice(path, body).await
        } else {
            self.call(path, body).await
        }
    }
}

/// The id in an answer.
pub fn id(answer: &Value) -> u64 {
    answer["task_id"].as_u64().unwrap_or_else(|| panic!("no task_id in {answer}"))
}
