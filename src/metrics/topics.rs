//! The text of `GET /metrics/topics`. `GET /metrics` has no figures by topic, because there may be
//! many topics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::sampled::{Real, STATES, seconds, whole};

/// The sampled figures of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicSample {
    /// Its name.
    pub topic: String,
    /// Tasks that are scheduled, leased, delivered, dead, cancelled and expired.
    pub tasks: [u64; STATES.len()],
    /// Waiting tasks whose due time has passed.
    pub overdue: u64,
    /// When the oldest of them fell due, in Unix milliseconds; 0 if there is none.
    pub oldest_overdue_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabels {
    topic: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    topic: String,
    state: &'static str,
}

/// The OpenMetrics text. `left_out` topics are not among `topics`.
pub fn topics_text(topics: Vec<TopicSample>, left_out: usize) -> String {
    let mut all = Registry::with_prefix("delayd_store");
    let (tasks, overdue) =
        (Family::<StateLabels, Gauge>::default(), Family::<TopicLabels, Gauge>::default());
    let (oldest, missing) = (Family::<TopicLabels, Real>::default(), Gauge::<i64>::default());
    all.register("topic_tasks", "Tasks of the topic, by state", tasks.clone());
    all.register(
        "topic_overdue_tasks",
        "Waiting tasks of the topic whose due time has passed",
        overdue.clone(),
    );
    all.register_with_unit(
        "topic_oldest_overdue_timestamp",
        "Unix time at which the oldest overdue task of the topic fell due; 0 if there is none",
        Unit::Seconds,
        oldest.clone(),
    );
    all.register("topics_left_out", "Topics beyond the first 1,000 by name", missing.clone());
    missing.set(whole(left_out as u64));
    for sample in topics {
        for (state, count) in STATES.into_iter().zip(sample.tasks) {
            let label = StateLabels { topic: sample.topic.clone(), state };
            tasks.get_or_create(&label).set(whole(count));
        }
        let label = TopicLabels { topic: sample.topic };
        overdue.get_or_create(&label).set(whole(sample.overdue));
        oldest.get_or_create(&label).set(seconds(sample.oldest_overdue_ms));
    }
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &all);
    text
}
