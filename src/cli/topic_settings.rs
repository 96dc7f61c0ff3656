//! A topic's settings on their way to another service: a line of an export, and what `move` sets before it moves tasks.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::client::fields;
use super::patient::Patient;

/// A topic as it is set.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicSettings {
    pub(super) topic: String,
    pub(super) shards: u16,
    #[serde(default)]
    policy: Map<String, Value>,
    #[serde(default)]
    pub(super) paused: bool,
}

impl TopicSettings {
    /// What `/delay/topic/get` says.
    ///
    /// # Errors
    /// The answer is another one than delayd's.
    pub(super) fn of(answer: &Value) -> serde_json::Result<Self> {
        let field = |name: &str| answer[name].clone();
        serde_json::from_value(
            json!({"topic": field("topic"), "shards": field("shards"), "policy": field("policy"), "paused": field("paused")}),
        )
    }

    /// What `/delay/topic/set` takes: the policy is shown as it is set. A setting that is not known here goes along by its name: the
    /// service says whether it knows it.
    fn request(&self) -> Map<String, Value> {
        let mut request = self.policy.clone();
        request.extend(fields([
            ("topic", Some(json!(self.topic))),
            ("shards", Some(json!(self.shards))),
            ("paused", Some(json!(self.paused))),
        ]));
        request
    }

    /// Sets the topic so, unless it is there: what somebody set by hand stays. Answers how it is set there then.
    pub(super) async fn create_at(&self, to: &Patient) -> anyhow::Result<Self> {
        let body = fields([("topic", Some(json!(self.topic)))]);
        let there = match to.find("/delay/topic/get", &body).await? {
            Some(there) => there,
            None => to.call("/delay/topic/set", &self.request()).await?,
        };
        Ok(Self::of(&there)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_as_they_came() {
        let answer = json!({
            "topic": "t", "shards": 4, "paused": true, "counts": {},
            "policy": {"retry": {"max_attempts": 3}, "history": {"keep": "1h", "max": 7}, "rate": "5/s"},
        });
        let settings = TopicSettings::of(&answer).unwrap();
        assert_eq!(
            Value::Object(settings.request()),
            json!({
                "topic": "t", "shards": 4, "paused": true, "rate": "5/s", "history": {"keep": "1h", "max": 7},
                "retry": {"max_attempts": 3},
            })
        );
        let line = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<TopicSettings>(&line).unwrap(), settings);
    }
}
