//! Requests: which fields there are.
//!
//! Each side has its own types for their values, which are parameters here. The service's readers
//! say in a sentence what is wrong with a value; clients give values that are right. Every field is
//! optional, because the service has `null` for absent, and says itself what is missing.

mod content;
mod migration;
mod task;
mod topic;

pub use content::{AddRequest, BatchRequest, OnDeadCall, UpdateRequest};
pub use migration::{
    AdoptRequest, AdoptedNote, AdoptedOnDead, AdoptedOptions, AdoptedRecord, MovedRequest,
    RecordsRequest,
};
pub use task::{
    AckRequest, CancelRequest, CausesRequest, DeadPurgeRequest, DeadReplayRequest, ExtendRequest,
    GetRequest, ListRequest, NackRequest, PullRequest,
};
pub use topic::{
    DestinationListRequest, ForecastRequest, HoldRequest, ResumeRequest, TopicListRequest,
    TopicPurgeRequest, TopicRequest,
};
