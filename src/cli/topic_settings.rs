//! The settings of a topic that go to another service: a line of an export, and what `move` sets
//! before it moves tasks.

use delayd_wire::{Topic, TopicRequest, TopicShown};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::fields;
use super::retry_client::RetryClient;

/// The settings of a topic.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicSettings {
    pub(super) topic: Topic,
    pub(super) shards: u16,
    #[serde(default)]
    policy: Map<String, Value>,
    #[serde(default)]
    pub(super) paused: bool,
}

/// The answer of `/delay/topic/get`.
impl From<TopicShown> for TopicSettings {
    fn from(shown: TopicShown) -> Self {
        let TopicShown { topic, shards, policy, paused, .. } = shown;
        Self { topic, shards, policy, paused }
    }
}

impl TopicSettings {
    /// The body for `/delay/topic/set`. Settings that are unknown here are passed on by name; the
    /// service decides whether it knows them.
    fn request(&self) -> Map<String, Value> {
        let mut request = self.policy.clone();
        request.extend(fields([
            ("topic", Some(json!(self.topic))),
            ("shards", Some(json!(self.shards))),
            ("paused", Some(json!(self.paused))),
        ]));
        request
    }

    /// Creates the topic with these settings. An existing topic is not changed. Returns its
    /// settings.
    pub(super) async fn create_at(&self, to: &RetryClient) -> anyhow::Result<Self> {
        let body = TopicRequest { topic: self.topic.clone() };
        let there: TopicShown = match to.find("/delay/topic/get", &body).await? {
            Some(there) => there,
            None => to.call("/delay/topic/set", &self.request()).await?,
        };
        Ok(there.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_as_they_came() {
        let answer = json!({
            "topic": "t", "shards": 4, "paused": true,
            "counts": {"scheduled": 0, "leased": 0, "delivered": 0,
                "dead": 0, "cancelled": 0, "expired": 0},
            "policy": {"retry": {"max_attempts": 3},
                "history": {"keep": "1h", "max": 7}, "rate": "5/s"},
        });
        let shown: TopicShown = serde_json::from_value(answer).unwrap();
        let settings = TopicSettings::from(shown);
        assert_eq!(
            Value::Object(settings.request()),
            json!({
                "topic": "t", "shards": 4, "paused": true, "rate": "5/s",
                "history": {"keep": "1h", "max": 7},
                "retry": {"max_attempts": 3},
            })
        );
        let line = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<TopicSettings>(&line).unwrap(), settings);
    }
}
