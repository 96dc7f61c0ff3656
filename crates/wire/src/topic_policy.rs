//! The settings of a topic, and the request that sets them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::string;
use crate::value::object_if_given;
use crate::{AtMost, Backoff, MisfirePolicy, Mode, Number, Rate, Span, Topic};

// The registry stores the settings as JSON of this shape, and answers show it. A setting that a
// newer version added is ignored.
/// A topic's settings. A setting that is absent follows the configuration. A task's own options
/// override them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopicPolicy {
    /// How failed tasks are retried.
    #[serde(skip_serializing_if = "TopicRetry::is_unset")]
    #[schema(value_type = Option<TopicRetry>)]
    pub retry: TopicRetry,
    /// The timeout of one callback.
    pub timeout: Option<Span>,
    /// What the mode `auto` means in this topic.
    pub mode: Option<Mode>,
    /// The limit of calls per unit of time, per instance.
    pub rate: Option<Rate>,
    /// The limit of concurrent calls, per instance.
    pub concurrency: Option<usize>,
    /// The limit of waiting and leased tasks.
    pub quota: Option<u64>,
    /// How long, and how many, ended tasks are kept readable.
    #[serde(skip_serializing_if = "TopicHistory::is_unset")]
    #[schema(value_type = Option<TopicHistory>)]
    pub history: TopicHistory,
    /// What happens to tasks that were due during a pause.
    pub misfire: Option<MisfirePolicy>,
    /// How late a task may be because of delayd or of the store.
    pub lateness_objective: Option<Span>,
}

/// How a topic's failed tasks are retried.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopicRetry {
    /// The attempts before a task is dead.
    pub max_attempts: Option<u32>,
    /// The wait between attempts.
    pub backoff: Option<Backoff>,
    /// HTTP statuses that make a task dead without a retry.
    pub final_statuses: Option<Vec<u16>>,
}

/// How long, and how many, ended tasks of a topic are kept readable.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct TopicHistory {
    /// The age at which an ended task may be purged.
    pub keep: Option<Span>,
    /// The number of ended tasks.
    pub max: Option<u64>,
}

// The request that sets them.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicSetRequest {
    /// The topic.
    pub topic: Topic,
    /// The number of lanes; only when the topic is created.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 256)]
    pub shards: Option<Number>,
    /// How failed tasks are retried.
    #[serde(default, deserialize_with = "object_if_given")]
    pub retry: Option<TopicRetryGiven>,
    /// The timeout of one callback: 100 ms to 10 min.
    pub timeout: Option<Span>,
    /// What the mode `auto` means in this topic.
    pub mode: Option<Mode>,
    /// The limit of calls per unit of time, per instance.
    pub rate: Option<Rate>,
    /// The limit of concurrent calls, per instance.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub concurrency: Option<Number>,
    /// The limit of waiting and leased tasks.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)]
    pub quota: Option<Number>,
    /// How long, and how many, ended tasks are kept readable.
    #[serde(default, deserialize_with = "object_if_given")]
    pub history: Option<TopicHistoryGiven>,
    /// What happens to tasks that were due during a pause.
    pub misfire: Option<MisfirePolicy>,
    /// How late a task may be because of delayd or of the store: 1 ms to 2 h.
    pub lateness_objective: Option<Span>,
    /// Pauses or resumes the topic.
    pub paused: Option<bool>,
    /// Settings that follow the configuration again.
    #[schema(value_type = Option<Vec<TopicSetting>>)]
    pub reset: Option<AtMost<TopicSetting, 16>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Retry)]
#[serde(deny_unknown_fields)]
pub struct TopicRetryGiven {
    /// The attempts before a task is dead.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub max_attempts: Option<Number>,
    /// The wait between attempts.
    pub backoff: Option<Backoff>,
    /// HTTP statuses, from 300 to 599, that make a task dead without a retry.
    #[schema(value_type = Option<Vec<u32>>)]
    pub final_statuses: Option<AtMost<Number, 300>>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = History)]
#[serde(deny_unknown_fields)]
pub struct TopicHistoryGiven {
    /// The age at which an ended task may be purged: 1 minute to 3650 days.
    pub keep: Option<Span>,
    /// The number of ended tasks.
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)]
    pub max: Option<Number>,
}

impl TopicRetryGiven {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        self.max_attempts.is_none() && self.backoff.is_none() && self.final_statuses.is_none()
    }
}

impl TopicHistoryGiven {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.max.is_none()
    }
}

/// The name of a setting: one of [`TopicPolicy::SETTINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TopicSetting(pub &'static str);

impl TopicSetting {
    /// The setting of this name.
    pub fn of(name: &str) -> Option<Self> {
        TopicPolicy::SETTINGS.into_iter().find(|known| *known == name).map(Self)
    }
}

impl<'de> Deserialize<'de> for TopicSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::of(&name).ok_or_else(|| D::Error::unknown_variant(&name, &TopicPolicy::SETTINGS))
    }
}

crate::schemas! {
    TopicSetting, "Setting" => string("The name of a setting.")
        .enum_values(Some(TopicPolicy::SETTINGS));
}

impl TopicRetry {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl TopicHistory {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

impl TopicPolicy {
    /// One lane's share of the quota, rounded up.
    pub fn quota_of_lane(&self, shards: u16) -> Option<u64> {
        self.quota.map(|quota| quota.div_ceil(u64::from(shards.max(1))))
    }

    /// The names of the settings.
    pub const SETTINGS: [&str; 9] = [
        "retry",
        "timeout",
        "mode",
        "rate",
        "concurrency",
        "quota",
        "history",
        "misfire",
        "lateness_objective",
    ];

    /// These settings without those named in `reset`, and with those that are `given`. In a setting
    /// that has parts, such as `retry`, only the given parts are replaced.
    #[must_use]
    pub fn changed<'a>(&self, reset: impl IntoIterator<Item = &'a str>, given: &Self) -> Self {
        let mut settings = object(self);
        for name in reset {
            settings.remove(name);
        }
        merge(&mut settings, object(given));
        serde_json::from_value(Value::Object(settings)).expect("both were settings")
    }
}

/// A struct of plain data as a JSON object.
pub fn object(data: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(data) {
        Ok(Value::Object(fields)) => fields,
        other => unreachable!("a struct is an object: {other:?}"),
    }
}

fn merge(settings: &mut Map<String, Value>, given: Map<String, Value>) {
    for (name, value) in given {
        match (settings.get_mut(&name), value) {
            // A backoff is replaced as a whole: its fields depend on its kind.
            (Some(Value::Object(parts)), Value::Object(given)) if name != "backoff" => {
                merge(parts, given)
            }
            (_, value) => drop(settings.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use utoipa::PartialSchema;
    use utoipa::openapi::{RefOr, Schema};

    use super::*;

    fn fields(schema: RefOr<Schema>) -> BTreeSet<String> {
        let RefOr::T(Schema::Object(object)) = schema else { panic!("a struct is an object") };
        object.properties.into_keys().collect()
    }

    #[test]
    fn each_setting_has_its_name_and_can_be_set() {
        let mut settings = fields(TopicPolicy::schema());
        assert_eq!(settings, TopicPolicy::SETTINGS.map(str::to_owned).into());
        settings.extend(["topic", "shards", "paused", "reset"].map(str::to_owned));
        assert_eq!(settings, fields(TopicSetRequest::schema()));
        assert_eq!(fields(TopicRetry::schema()), fields(TopicRetryGiven::schema()));
        assert_eq!(fields(TopicHistory::schema()), fields(TopicHistoryGiven::schema()));
    }

    #[test]
    fn each_part_that_is_given_replaces_its_own() {
        let policy = |text: &str| serde_json::from_str::<TopicPolicy>(text).unwrap();
        let check = |before: &str, reset: &[&str], given: &str, after: &str| {
            let changed = policy(before).changed(reset.iter().copied(), &policy(given));
            assert_eq!(changed, policy(after), "{before} {given}");
        };
        check("{}", &["quota"], "{}", "{}");
        check(r#"{"quota":7}"#, &[], r#"{"rate":"5/s"}"#, r#"{"quota":7,"rate":"5/s"}"#);
        check(
            r#"{"retry":{"max_attempts":2,"backoff":{"kind":"fixed","every":"1s"}}}"#,
            &[],
            r#"{"retry":{"backoff":{"kind":"list","steps":["1s","2s"]}}}"#,
            r#"{"retry":{"max_attempts":2,"backoff":{"kind":"list","steps":["1s","2s"]}}}"#,
        );
        check(
            r#"{"retry":{"max_attempts":2},"quota":7}"#,
            &["retry", "quota"],
            r#"{"quota":9}"#,
            r#"{"quota":9}"#,
        );
    }
}
