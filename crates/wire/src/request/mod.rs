//! Requests.
//!
//! The service reads them, and clients write them. The types of the values refuse what cannot be
//! meant; the service decides which of the other values a call accepts. `null` is absent, unless
//! the field is required.
//!
//! Fields that several requests have are repeated. `serde(flatten)` copies every field before it
//! reads one, loses the path of an error, and cannot read a `RawValue`.

mod audit;
mod content;
mod many;
mod migration;
mod schedule;
mod task;
mod topic;

pub use audit::AuditListRequest;
pub use content::{AddRequest, BatchRequest, GivenHeaders, OnDeadCall, UpdateRequest};
pub use many::{CancelManyRequest, UpdateManyRequest};
pub use migration::{
    AdoptRequest, AdoptedNote, AdoptedOnDead, AdoptedOptions, AdoptedRecord, AdoptedSchedule,
    MovedRequest, MovedSchedule, RecordsRequest, ScheduleAdoptRequest, ScheduleMovedRequest,
    ScheduleRecordsRequest,
};
pub use schedule::{
    ScheduleListRequest, SchedulePreviewRequest, ScheduleRequest, ScheduleRunRequest,
    ScheduleSetRequest,
};
pub use task::{
    AckRequest, CancelRequest, CausesRequest, DeadPurgeRequest, DeadReplayRequest, ExtendRequest,
    FindRequest, GetRequest, ListRequest, NackRequest, PullRequest, SearchRequest,
};
pub use topic::{
    DestinationListRequest, ForecastRequest, HoldRequest, ResumeRequest, TopicListRequest,
    TopicPurgeRequest, TopicRequest,
};
