//! The requests that carry a task's content.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{Content, TaskIdGiven};
use crate::value::object_if_given;
use crate::{AtMost, Backoff, Destination, Mode, Number, Span, TaskId, Topic};

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRequest {
    /// The topic.
    pub topic: Topic,
    /// The due time, in Unix seconds; give this, `delay` or `at`. A time in the past means
    /// now. Milliseconds are refused.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from the store's current time; give this, `timing_moment` or
    /// `at`.
    pub delay: Option<Span>,
    /// The due time as text, instead of `timing_moment` or `delay`: RFC 3339, RFC 9557, or a local
    /// time whose zone is in `zone`.
    #[schema(max_length = 128, example = "2026-11-23T20:00:00+08:00")]
    pub at: Option<String>,
    /// The time zone of `at`: a name such as `Asia/Shanghai`, or an offset such as `+08:00`.
    #[schema(max_length = 64, example = "Asia/Shanghai")]
    pub zone: Option<String>,
    /// The body of the callback, or the content that the consumer gets. In it `sn` names the
    /// service to call, and `url` the path on it.
    #[schema(value_type = Content)]
    pub content: Box<RawValue>,
    /// `push`, `pull`, or `auto`, which decides by the content.
    pub mode: Option<Mode>,
    /// The attempts before the task is dead.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub max_attempts: Option<Number>,
    /// The timeout of one callback: 100 ms to 10 min.
    pub timeout: Option<Span>,
    /// The wait between attempts.
    pub backoff: Option<Backoff>,
    /// Additional headers of the callback.
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    pub headers: Option<GivenHeaders>,
    /// The task expires if it is not delivered within this time after it was due.
    pub expires_after: Option<Span>,
    /// A callback that is made once, if the task becomes dead.
    #[serde(default, deserialize_with = "object_if_given")]
    pub on_dead: Option<OnDeadCall>,
    /// Makes the add safe to repeat: an add with the same key answers with the first task.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// At most one task per topic and key is pending: another add reschedules it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchRequest {
    // Each task is parsed on its own, so that an invalid one does not affect the others.
    /// Each task as in a single add. An invalid task does not affect the others.
    #[schema(value_type = Vec<AddRequest>, min_items = 1)]
    pub tasks: AtMost<Box<RawValue>, 10_000>,
}

/// The callback for a dead task.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OnDead)]
pub struct OnDeadCall {
    /// The service.
    pub sn: Destination,
    /// The path on it.
    pub url: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    /// The topic.
    pub topic: Topic,
    /// The task's id; give this, `key` or `idempotency_key`.
    #[schema(value_type = Option<TaskIdGiven>)]
    #[serde(default, deserialize_with = "TaskId::if_given")]
    pub task_id: Option<TaskId>,
    /// The task's key: changes the newest task that was added with it.
    #[schema(min_length = 1, max_length = 256)]
    pub key: Option<String>,
    /// The task's idempotency key, until its window ends; with `key`, if the task has one.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// The new due time, in Unix seconds; give this, `delay` or `at`.
    #[schema(value_type = Option<f64>)]
    pub timing_moment: Option<Number>,
    /// The time until the task is due, from now; give this, `timing_moment` or `at`.
    pub delay: Option<Span>,
    /// The new due time as text, instead of `timing_moment` or `delay`: RFC 3339, RFC 9557, or a
    /// local time whose zone is in `zone`.
    #[schema(max_length = 128, example = "2026-11-23T20:00:00+08:00")]
    pub at: Option<String>,
    /// The time zone of `at`: a name such as `Asia/Shanghai`, or an offset such as `+08:00`.
    #[schema(max_length = 64, example = "Asia/Shanghai")]
    pub zone: Option<String>,
    /// The new content.
    #[schema(value_type = Option<Content>)]
    pub content: Option<Box<RawValue>>,
}

/// The headers that a request gives to a callback: in order and with duplicates, because a map
/// would keep only the last of them. `null` is absent.
#[derive(Clone, Debug, Default)]
pub struct GivenHeaders(pub Vec<(String, String)>);

impl GivenHeaders {
    /// The most headers that are read. No task may have so many.
    const MOST: usize = 64;
}

impl Serialize for GivenHeaders {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for GivenHeaders {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = GivenHeaders;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GivenHeaders, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Option<String>>()? {
                    pairs.extend(value.map(|value| (name, value)));
                    pairs.truncate(GivenHeaders::MOST);
                }
                Ok(GivenHeaders(pairs))
            }
        }

        from.deserialize_map(Reader)
    }
}
