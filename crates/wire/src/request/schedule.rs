//! The requests about recurring schedules.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{Content, PageCursor};
use crate::value::object_if_given;
use crate::{
    Backoff, GivenHeaders, Mode, Number, OnDeadCall, ScheduleMisfire, ScheduleOverlap, Span, Topic,
};

#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulePreviewRequest {
    /// A cron expression with five fields (minute, hour, day of month, month, weekday), or with six
    /// (second first). Give this or `every`.
    #[schema(min_length = 1, max_length = 256)]
    pub cron: Option<String>,
    /// A fixed distance, counted from `start`: 1 s to 366 days.
    pub every: Option<Span>,
    /// The time zone in which `cron` and local times are meant (default `UTC`).
    pub zone: Option<String>,
    /// No moment lies before this time: RFC 3339, or a local time in `zone`. Without it, `every`
    /// counts from now.
    pub start: Option<String>,
    /// No moment lies after this time, written as `start`.
    pub end: Option<String>,
    /// Only moments after this time, written as `start` (default now).
    pub after: Option<String>,
    /// How many moments to show (default 5).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub count: Option<Number>,
}

/// Creates a recurring schedule, or changes it.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleSetRequest {
    /// The topic.
    pub topic: Topic,
    /// The name of the schedule, unique within its topic.
    pub schedule: String,
    /// A cron expression with five fields (minute, hour, day of month, month, weekday), or with six
    /// (second first). Give this or `every`.
    #[schema(min_length = 1, max_length = 256)]
    pub cron: Option<String>,
    /// A fixed distance, counted from `start` or from the moment of the set: 1 s to 366 days.
    pub every: Option<Span>,
    /// The time zone in which `cron` and local times are meant (default `UTC`).
    pub zone: Option<String>,
    /// No moment lies before this time: RFC 3339, or a local time in `zone`.
    pub start: Option<String>,
    /// No moment lies after this time, written as `start`.
    pub end: Option<String>,
    /// What becomes of moments that were missed (default `once`).
    pub misfire: Option<ScheduleMisfire>,
    /// What becomes of an occurrence that falls due while an earlier one runs (default `allow`).
    pub overlap: Option<ScheduleOverlap>,
    /// The content of each occurrence, as in an add.
    #[schema(value_type = Content)]
    pub content: Box<RawValue>,
    /// `push`, `pull`, or `auto`, which decides by the content.
    pub mode: Option<Mode>,
    /// The attempts before an occurrence is dead.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub max_attempts: Option<Number>,
    /// The timeout of one callback: 100 ms to 10 min.
    pub timeout: Option<Span>,
    /// The wait between attempts.
    pub backoff: Option<Backoff>,
    /// Additional headers of the callback.
    #[schema(value_type = Option<BTreeMap<String, Option<String>>>)]
    pub headers: Option<GivenHeaders>,
    /// An occurrence expires if it is not delivered within this time after it was due.
    pub expires_after: Option<Span>,
    /// A callback that is made once, if an occurrence becomes dead.
    #[serde(default, deserialize_with = "object_if_given")]
    pub on_dead: Option<OnDeadCall>,
}

/// Names a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRequest {
    /// The topic.
    pub topic: Topic,
    /// The schedule.
    pub schedule: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleListRequest {
    /// The topic.
    pub topic: Topic,
    /// Schedules per page (default 100).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}

/// Adds one occurrence now, beside the plan.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleRunRequest {
    /// The topic.
    pub topic: Topic,
    /// The schedule.
    pub schedule: String,
    /// Makes the call safe to repeat within the idempotency window: a run with the same key
    /// answers with the first task.
    #[schema(min_length = 1, max_length = 100)]
    pub idempotency_key: Option<String>,
}
