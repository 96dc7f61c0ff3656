//! The settings of a topic, and the request that sets them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "schema")]
use crate::TopicName;
#[cfg(feature = "schema")]
use crate::schema::{RateText, SpanText, string};
use crate::{Backoff, MisfirePolicy, Mode, Rate, Span};

// The registry stores the settings as JSON of this shape, and answers show it. A setting that a
// newer version added is ignored.
/// A topic's settings. A setting that is absent follows the configuration. A task's own options
/// override them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TopicPolicy {
    /// How failed tasks are retried.
    #[serde(skip_serializing_if = "TopicRetry::is_unset")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TopicRetry>))]
    pub retry: TopicRetry,
    /// The timeout of one callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// What the mode `auto` means in this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The limit of calls per unit of time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The limit of concurrent calls, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// The limit of waiting and leased tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<u64>,
    /// How long, and how many, ended tasks are kept readable.
    #[serde(skip_serializing_if = "TopicHistory::is_unset")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TopicHistory>))]
    pub history: TopicHistory,
    /// What happens to tasks that were due during a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfire: Option<MisfirePolicy>,
    /// How late a task may be because of delayd or of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lateness_objective: Option<Span>,
}

/// How a topic's failed tasks are retried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TopicRetry {
    /// The attempts before a task is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
    /// HTTP statuses that make a task dead without a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_statuses: Option<Vec<u16>>,
}

/// How long, and how many, ended tasks of a topic are kept readable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct TopicHistory {
    /// The age at which an ended task may be purged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Span>,
    /// The number of ended tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
}

// The request that sets them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicSetRequest<Topic, Number, Time, Frequency, ModeWord, Misfire, Retry, History, Reset>
{
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The number of lanes; only when the topic is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 256))]
    pub shards: Option<Number>,
    /// How failed tasks are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<AnyRetry>))]
    pub retry: Option<Retry>,
    /// The timeout of one callback: 100 ms to 10 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub timeout: Option<Time>,
    /// What the mode `auto` means in this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Mode>))]
    pub mode: Option<ModeWord>,
    /// The limit of calls per unit of time, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<RateText>))]
    pub rate: Option<Frequency>,
    /// The limit of concurrent calls, per instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)
    )]
    pub concurrency: Option<Number>,
    /// The limit of waiting and leased tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)
    )]
    pub quota: Option<Number>,
    /// How long, and how many, ended tasks are kept readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<AnyHistory>))]
    pub history: Option<History>,
    /// What happens to tasks that were due during a pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<MisfirePolicy>))]
    pub misfire: Option<Misfire>,
    /// How late a task may be because of delayd or of the store: 1 ms to 2 h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub lateness_objective: Option<Time>,
    /// Pauses or resumes the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Settings that follow the configuration again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<TopicSetting>>))]
    pub reset: Option<Reset>,
}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyRetry = TopicRetryGiven<(), (), ()>;
#[cfg(feature = "schema")]
type AnyHistory = TopicHistoryGiven<(), ()>;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = Retry, bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicRetryGiven<Number, Wait, Statuses> {
    /// The attempts before a task is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub max_attempts: Option<Number>,
    /// The wait between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Backoff>))]
    pub backoff: Option<Wait>,
    /// HTTP statuses, from 300 to 599, that make a task dead without a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<u32>>))]
    pub final_statuses: Option<Statuses>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = History, bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicHistoryGiven<Time, Number> {
    /// The age at which an ended task may be purged: 1 minute to 3650 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub keep: Option<Time>,
    /// The number of ended tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schema(value_type = Option<u64>, minimum = 1, maximum = 4_000_000_000.0)
    )]
    pub max: Option<Number>,
}

impl<Number, Wait, Statuses> TopicRetryGiven<Number, Wait, Statuses> {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        self.max_attempts.is_none() && self.backoff.is_none() && self.final_statuses.is_none()
    }
}

impl<Time, Number> TopicHistoryGiven<Time, Number> {
    /// Whether no field is given.
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.max.is_none()
    }
}

/// The name of a setting: one of [`TopicPolicy::SETTINGS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TopicSetting(pub &'static str);

impl<'de> Deserialize<'de> for TopicSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let known = TopicPolicy::SETTINGS.iter().find(|known| **known == name);
        known
            .map(|known| Self(known))
            .ok_or_else(|| D::Error::unknown_variant(&name, &TopicPolicy::SETTINGS))
    }
}

#[cfg(feature = "schema")]
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

fn object(policy: &TopicPolicy) -> Map<String, Value> {
    match serde_json::to_value(policy) {
        Ok(Value::Object(settings)) => settings,
        other => unreachable!("settings are plain data: {other:?}"),
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

    type AnySet = TopicSetRequest<(), (), (), (), (), (), (), (), ()>;

    fn fields(schema: RefOr<Schema>) -> BTreeSet<String> {
        let RefOr::T(Schema::Object(object)) = schema else { panic!("a struct is an object") };
        object.properties.into_keys().collect()
    }

    #[test]
    fn each_setting_has_its_name_and_can_be_set() {
        let mut settings = fields(TopicPolicy::schema());
        assert_eq!(settings, TopicPolicy::SETTINGS.map(str::to_owned).into());
        settings.extend(["topic", "shards", "paused", "reset"].map(str::to_owned));
        assert_eq!(settings, fields(AnySet::schema()));
        assert_eq!(fields(TopicRetry::schema()), fields(AnyRetry::schema()));
        assert_eq!(fields(TopicHistory::schema()), fields(AnyHistory::schema()));
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
