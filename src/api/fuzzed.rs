//! The bodies of two fuzz targets. `request`: any bytes are read, or refused with a short sentence.
//! `bounds`: reading them processes a bounded number of bytes and allocates little more memory than
//! their length.

use std::time::Duration;

use serde::Deserialize;

use crate::api::handlers::migration::adopt;
use crate::api::handlers::task::new_task::{self, CheckedTask, TaskRules};
use crate::api::handlers::task::{add, find, get, list, manage, many, pull, search, settle};
use crate::api::handlers::topic::{list as topics_list, manage as topic, policy};
use crate::api::handlers::{dead, destination, forecast, schedule};
use crate::api::wire::{cost, json};
use crate::callback::{ServiceParams, Services, SuccessRule, Unlisted};
use crate::model::clock::UnixMillis;
use crate::model::task::Options;

/// The longest content that the rules allow here.
const CONTENT: usize = 4096;
/// The longest error message.
const SENTENCE: usize = 1000;

/// Reads the bytes as every kind of request.
pub fn request(bytes: &[u8]) {
    task(bytes);
    reads::<add::BatchRequest>(bytes);
    reads::<pull::Request>(bytes);
    reads::<settle::AckRequest>(bytes);
    reads::<settle::NackRequest>(bytes);
    reads::<manage::UpdateRequest>(bytes);
    reads::<get::Request>(bytes);
    reads::<find::Request>(bytes);
    reads::<list::Request>(bytes);
    reads::<search::Request>(bytes);
    reads::<many::CancelRequest>(bytes);
    reads::<many::UpdateRequest>(bytes);
    reads::<dead::ReplayRequest>(bytes);
    reads::<dead::causes::Request>(bytes);
    reads::<topics_list::Request>(bytes);
    reads::<topic::ForecastRequest>(bytes);
    reads::<forecast::Request>(bytes);
    reads::<schedule::preview::PreviewRequest>(bytes);
    reads::<schedule::set::Request>(bytes);
    reads::<schedule::transfer::RecordsRequest>(bytes);
    reads::<schedule::transfer::MovedRequest>(bytes);
    reads::<schedule::adopt::Request>(bytes);
    reads::<schedule::manage::ListRequest>(bytes);
    reads::<policy::Request>(bytes);
    reads::<destination::HoldRequest>(bytes);
}

/// How often a reader may process each byte of a request.
const TIMES: usize = 12;
/// How many times its length a request may allocate. A task with many options takes more than its
/// text. (For a long request, the number of its tasks bounds the sum.)
const MULTIPLE: usize = 32;
/// The bytes that even a short request may process and allocate.
const FREE: usize = 256 << 10;

/// Reads the bytes as the requests with the most kinds of values, and measures the cost. `peak_of`
/// returns the peak of allocated bytes while it runs a function.
pub fn bounds(bytes: &[u8], peak_of: impl Fn(&mut dyn FnMut()) -> u64) {
    let services = services();
    let rules = rules(&services, usize::MAX);
    let readers: [(&str, &dyn Fn()); 5] = [
        ("add", &|| drop(new_task::read(bytes, &rules))),
        ("add_batch", &|| {
            if let Ok(request) = json::read::<add::BatchRequest>(bytes) {
                drop(
                    request
                        .tasks
                        .0
                        .iter()
                        .map(|task| new_task::read(task.get().as_bytes(), &rules))
                        .collect::<Vec<_>>(),
                );
            }
        }),
        ("adopt", &|| {
            drop(
                json::read::<adopt::Record>(bytes)
                    .map(|record| adopt::check_parts(record, &services)),
            )
        }),
        ("replay", &|| drop(json::read::<dead::ReplayRequest>(bytes))),
        ("set", &|| {
            drop(json::read::<policy::Request>(bytes).map(|request| policy::check(&request)))
        }),
    ];
    for (call, read) in readers {
        let mut spent = 0;
        let taken = peak_of(&mut || (spent, ()) = cost::of(read));
        assert!(spent <= TIMES * bytes.len() + FREE, "{call} looked at {spent} bytes");
        assert!(taken <= (MULTIPLE * bytes.len() + FREE) as u64, "{call} took {taken} bytes");
    }
}

fn reads<'a, T: Deserialize<'a>>(bytes: &'a [u8]) {
    if let Err(refused) = json::read::<T>(bytes) {
        says_why(&refused.message());
    }
}

fn says_why(sentence: &str) {
    assert!(!sentence.is_empty() && sentence.len() <= SENTENCE, "{sentence:?}");
}

/// An accepted task can be stored, and reads back the same.
fn task(bytes: &[u8]) {
    let services = services();
    let rules = rules(&services, CONTENT);
    match new_task::read(bytes, &rules) {
        Err(refused) => says_why(&refused.message()),
        Ok(checked) => {
            let CheckedTask { options, content, destination, .. } = &checked;
            assert!(content.len() <= CONTENT);
            assert!(
                destination.is_pull() || services.get(destination.as_str()).is_some(),
                "{destination}"
            );
            let stored = serde_json::to_string(options).expect("options are plain data");
            let read: Options = serde_json::from_str(&stored).expect("what is stored can be read");
            assert_eq!(
                serde_json::to_string(&read.headers).ok(),
                serde_json::to_string(&options.headers).ok()
            );
            assert_eq!(new_task::read(bytes, &rules).ok(), Some(checked));
        }
    }
}

fn rules(services: &Services, content_limit: usize) -> TaskRules<'_> {
    TaskRules {
        now: UnixMillis(1_795_234_567_000),
        max_delay: Duration::from_secs(3650 * 86_400),
        content_limit,
        services,
        idempotency_window: Duration::from_secs(86_400),
        mode_of: &|_| None,
        header_key: None,
    }
}

/// One configured service, and any host.
fn services() -> Services {
    let listed = ServiceParams {
        name: "message.call".into(),
        endpoints: vec!["http://127.0.0.1:9000".into()],
        allowance: Default::default(),
        success: SuccessRule::default(),
        secrets: Vec::new(),
        credentials: Default::default(),
    };
    let services = Services::new(vec![listed]).expect("the service is valid");
    services
        .allow(Unlisted { hosts: vec!["*".parse().expect("a pattern")], ..Unlisted::default() });
    services
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_bytes_are_read_or_refused_in_a_sentence() {
        crate::testing::seeds::run("request", super::request);
    }

    #[test]
    fn reading_any_bytes_stays_within_its_bounds() {
        crate::testing::seeds::run("bounds", |bytes| {
            super::bounds(bytes, |does| allocation_counter::measure(does).bytes_max)
        });
    }
}
