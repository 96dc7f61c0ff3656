//! The requests about recurring schedules.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::{ContentText, PageCursor, SpanText};
#[cfg(feature = "schema")]
use crate::{Backoff, Mode, ScheduleMisfire, ScheduleOverlap, TopicName};

requests! {

#[derive(Default)]
pub struct SchedulePreviewRequest<Span, Number> {
    ..moments(
        "A fixed distance, counted from `start`: 1 s to 366 days.",
        "No moment lies before this time: RFC 3339, or a local time in `zone`. Without it, \
         `every`\ncounts from now."
    ),
    /// Only moments after this time, written as `start` (default now).
    pub after: Option<String>,
    /// How many moments to show (default 5).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub count: Option<Number>,
}

/// Creates a recurring schedule, or changes it.
pub struct ScheduleSetRequest<
    Topic,
    Name,
    Number,
    Span,
    Content,
    ModeWord,
    Wait,
    Headers,
    OnDead,
    Misfire,
    Overlap,
> {
    ..topic,
    /// The name of the schedule, unique within its topic.
    #[schema(value_type = String, required = true)]
    pub schedule: Option<Name>,
    ..moments(
        "A fixed distance, counted from `start` or from the moment of the set: 1 s to 366 days.",
        "No moment lies before this time: RFC 3339, or a local time in `zone`."
    ),
    /// Each occurrence is due up to this much after its moment, always the same for one moment: at
    /// most a day, and less than the shortest distance of two moments.
    #[schema(value_type = Option<SpanText>)]
    pub jitter: Option<Span>,
    /// What becomes of moments that were missed (default `once`).
    #[schema(value_type = Option<ScheduleMisfire>)]
    pub misfire: Option<Misfire>,
    /// What becomes of an occurrence that falls due while an earlier one runs (default `allow`).
    #[schema(value_type = Option<ScheduleOverlap>)]
    pub overlap: Option<Overlap>,
    /// The content of each occurrence, as in an add.
    #[schema(value_type = ContentText, required = true)]
    pub content: Option<Content>,
    ..options(
        "The attempts before an occurrence is dead.",
        "An occurrence expires if it is not delivered within this time after it was due.",
        "A callback that is made once, if an occurrence becomes dead."
    ),
}

/// Names a schedule.
pub struct ScheduleRequest<Topic, Name> {
    ..schedule,
}

pub struct ScheduleListRequest<Topic, Number, Cursor> {
    ..topic,
    /// Schedules per page (default 100).
    ..page,
}

/// Adds one occurrence now, beside the plan.
pub struct ScheduleRunRequest<Topic, Name> {
    ..schedule,
    /// Makes the call safe to repeat within the idempotency window: a run with the same key
    /// answers with the first task.
    #[schema(min_length = 1, max_length = 100)]
    pub idempotency_key: Option<String>,
}

/// Adds the occurrences of past moments.
pub struct ScheduleBackfillRequest<Topic, Name> {
    ..schedule,
    /// The first moment: RFC 3339, or a local time in the zone of the schedule.
    #[schema(value_type = String, required = true)]
    pub from: Option<String>,
    /// The last moment, written as `from`; not after now.
    #[schema(value_type = String, required = true)]
    pub to: Option<String>,
}

}

/// The derive takes no generic arguments in a `value_type`.
#[cfg(feature = "schema")]
type AnyOnDead = crate::OnDeadCall<()>;
