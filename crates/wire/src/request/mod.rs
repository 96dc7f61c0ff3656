//! Requests: the names of their fields.
//!
//! The types of the values are parameters, because each side has its own. The service uses types
//! whose errors name the field and the expected value; clients use plain values. Every field is
//! optional: the service treats `null` as absent, and reports a missing field itself.

#[macro_use]
mod declare;

mod audit;
mod content;
mod many;
mod migration;
mod schedule;
mod task;
mod topic;

pub use audit::AuditListRequest;
pub use content::{AddRequest, BatchRequest, OnDeadCall, UpdateRequest};
pub use many::{CancelManyRequest, UpdateManyRequest};
pub use migration::{
    AdoptRequest, AdoptedNote, AdoptedOnDead, AdoptedOptions, AdoptedRecord, AdoptedSchedule,
    MovedRequest, MovedSchedule, RecordsRequest, ScheduleAdoptRequest, ScheduleMovedRequest,
    ScheduleRecordsRequest,
};
pub use schedule::{
    ScheduleBackfillRequest, ScheduleListRequest, SchedulePreviewRequest, ScheduleRequest,
    ScheduleRunRequest, ScheduleSetRequest,
};
pub use task::{
    AckRequest, CancelRequest, CausesRequest, DeadPurgeRequest, DeadReplayRequest, ExtendRequest,
    FindRequest, GetRequest, ListRequest, NackRequest, PullRequest, SearchRequest,
};
pub use topic::{
    DestinationListRequest, ForecastRequest, HoldRequest, ResumeRequest, TopicListRequest,
    TopicPurgeRequest, TopicRequest,
};
