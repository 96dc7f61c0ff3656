//! For the micro-benchmarks in `benches/`: reads requests as the handlers do.

use std::time::Duration;

use crate::api::handlers::task::add;
use crate::api::handlers::task::new_task::{self, TaskRules};
use crate::api::wire::json;
use crate::callback::{ServiceParams, Services, SuccessRule};
use crate::model::clock::UnixMillis;

/// A reader that knows the service `message.call`.
#[derive(Debug)]
pub struct Requests(Services);

impl Requests {
    /// Builds the reader.
    #[allow(clippy::new_without_default, reason = "a default has no meaning here")]
    pub fn new() -> Self {
        let listed = ServiceParams {
            name: "message.call".into(),
            endpoints: vec!["http://127.0.0.1:9000".into()],
            allowance: Default::default(),
            success: SuccessRule::default(),
            secrets: Vec::new(),
            credentials: Default::default(),
        };
        Self(Services::new(vec![listed]).expect("the service is valid"))
    }

    /// Reads an add; returns the length of its content.
    pub fn add(&self, body: &[u8]) -> usize {
        let rules = TaskRules {
            now: UnixMillis(1_795_234_567_000),
            max_delay: Duration::from_secs(3650 * 86_400),
            content_limit: 256 << 10,
            services: &self.0,
            idempotency_window: Duration::from_secs(86_400),
            mode_of: &|_| None,
            header_key: None,
        };
        new_task::read(body, &rules).expect("the request is valid").content.len()
    }

    /// Reads an add_batch; returns the length of all contents.
    pub fn add_batch(&self, body: &[u8]) -> usize {
        let request: add::BatchRequest = json::read(body).expect("the request is valid");
        request.tasks.0.iter().map(|task| self.add(task.get().as_bytes())).sum()
    }
}
