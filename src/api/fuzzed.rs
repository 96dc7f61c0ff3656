//! The body of the fuzz target `request`: whatever bytes a request brings, it is read or refused in a short sentence.

use std::time::Duration;

use serde::Deserialize;

use super::new_task::{self, Checked, Rules};
use super::{add, dead, destination, get, json, list, manage, pull, settle, topic, topic_policy};
use crate::callback::{ServiceParams, Services, SuccessRule, Unlisted};
use crate::clock::UnixMillis;
use crate::task::Options;

/// The longest content that the rules allow here.
const CONTENT: usize = 4096;
/// No refusal is longer, whatever it repeats.
const SENTENCE: usize = 1000;

/// Reads the bytes as every kind of request.
pub fn request(bytes: &[u8]) {
    task(bytes);
    reads::<add::BatchRequest<'_>>(bytes);
    reads::<pull::Request>(bytes);
    reads::<settle::AckRequest>(bytes);
    reads::<settle::NackRequest>(bytes);
    reads::<manage::UpdateRequest<'_>>(bytes);
    reads::<get::Request>(bytes);
    reads::<list::Request>(bytes);
    reads::<dead::ReplayRequest>(bytes);
    reads::<topic::ForecastRequest>(bytes);
    reads::<topic_policy::Request<'_>>(bytes);
    reads::<destination::HoldRequest>(bytes);
}

fn reads<'a, T: Deserialize<'a>>(bytes: &'a [u8]) {
    if let Err(refused) = json::read::<T>(bytes) {
        says_why(&refused.message());
    }
}

fn says_why(sentence: &str) {
    assert!(!sentence.is_empty() && sentence.len() <= SENTENCE, "{sentence:?}");
}

/// What is taken for a task can be stored as it is read, and reads the same again.
fn task(bytes: &[u8]) {
    let services = services();
    let rules = Rules {
        now: UnixMillis(1_795_234_567_000),
        max_delay: Duration::from_secs(3650 * 86_400),
        content_limit: CONTENT,
        services: &services,
        idempotency_window: Duration::from_secs(86_400),
        mode_of: &|_| None,
        header_key: None,
    };
    match new_task::read(bytes, &rules) {
        Err(refused) => says_why(&refused.message()),
        Ok(checked) => {
            let Checked { options, content, destination, .. } = &checked;
            assert!(content.len() <= CONTENT);
            assert!(destination.is_pull() || services.get(destination.as_str()).is_some(), "{destination}");
            let stored = serde_json::to_string(options).expect("options are plain data");
            let read: Options = serde_json::from_str(&stored).expect("what is stored can be read");
            assert_eq!(serde_json::to_string(&read.headers).ok(), serde_json::to_string(&options.headers).ok());
            assert_eq!(new_task::read(bytes, &rules).ok(), Some(checked));
        }
    }
}

/// One that is listed, and any host.
fn services() -> Services {
    let listed = ServiceParams {
        name: "message.call".into(),
        endpoints: vec!["http://127.0.0.1:9000".into()],
        allowance: Default::default(),
        success: SuccessRule::default(),
        secrets: Vec::new(),
    };
    let services = Services::new(vec![listed]).expect("a service that is right");
    services.allow(Unlisted { hosts: vec!["*".parse().expect("a pattern")], ..Unlisted::default() });
    services
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_bytes_are_read_or_refused_in_a_sentence() {
        crate::seeds::run("request", super::request);
    }
}
