//! The types of delayd's HTTP interface. The service, the command line and the benchmark share
//! them.
//!
//! The crate holds types and how they are read and written. The service decides which values a call
//! accepts. The OpenAPI document derives from the types: their doc comments are its descriptions.

#![allow(
    missing_docs,
    reason = "doc comments become OpenAPI descriptions, and many names need none"
)]

#[macro_use]
mod answer;
#[macro_use]
mod word;
mod audit;
mod backoff;
mod code;
mod dead;
mod destination;
mod failure;
mod forecast;
mod instance;
mod name;
mod overview;
mod rate;
mod record;
mod request;
mod schedule;
mod schedule_record;
pub mod schema;
pub mod span;
mod task;
mod topic;
mod topic_policy;
mod value;

pub use answer::{Nothing, SuccessAnswer};
pub use audit::{AuditEntry, AuditPage, AuditResult, AuditSource};
pub use backoff::{Backoff, InvalidBackoff};
pub use code::ErrorCode;
pub use dead::{Cause, CauseTopic, Causes, Done};
pub use destination::{
    BreakerChange, DestinationDetail, DestinationOnInstance, DestinationShown, Destinations, Held,
    Probed, RecentCalls, Unharmed,
};
pub use failure::{Failure, WasStored};
pub use forecast::{
    ForecastFigures, ForecastSpan, ServiceForecast, ServiceForecasts, ServiceForecastsRequest,
};
pub use instance::{
    ConfigReloads, DiskSpace, InstanceDetail, InstanceGetRequest, InstanceListRequest,
    InstanceShown, Instances, LogLine, LogLines, Series, SeriesRequest, StoreErrors,
    StoreOperation, StoreServer,
};
pub use name::{Destination, InvalidName, Receipt, TaskId, Topic};
pub use overview::{
    DestinationFigures, InstanceHealth, LiveRequest, Objective, OverdueShown, Overview,
    OverviewRequest, TaskCounts, WhoAmI, WhoAmIRequest,
};
pub use rate::{InvalidRate, Rate};
pub use record::{
    AdoptAnswer, AdoptItem, AdoptedTask, AdoptionBecame, Ended, Record, Records, StaleTask,
};
pub use request::*;
pub use schedule::{
    ScheduleChange, ScheduleMisfire, ScheduleMoment, ScheduleOccurrence, ScheduleOverlap,
    SchedulePreview, ScheduleRan, ScheduleShown, Schedules, TaskSchedule,
};
pub use schedule_record::{
    ScheduleAdoptAnswer, ScheduleAdoptItem, ScheduleKept, ScheduleRecord, ScheduleRecords,
    SchedulesEnded,
};
pub use span::{InvalidSpan, Lease, Span, UpTo};
pub use task::{
    Attempt, Batch, BatchItem, Changed, Entry, Found, FoundTask, FoundTasks, Gone, Moved, Note,
    Page, Pulled, PulledMany, Returned, Stored, Task,
};
pub use topic::{Count, Forecast, Paused, Purged, Step, TopicListed, TopicShown, Topics};
pub use topic_policy::{
    TopicHistory, TopicHistoryGiven, TopicPolicy, TopicRetry, TopicRetryGiven, TopicSetRequest,
    TopicSetting, object,
};
pub use value::{AtMost, Number, OutOfRange, Rfc3339, UnixMillis};
pub use word::{
    BreakerState, Durability, Holder, ListOrder, MisfirePolicy, Mode, TaskState, TopicSort, Way,
};
