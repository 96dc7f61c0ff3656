//! The names, options and states of a task.
//!
//! ```text
//! add ─▶ scheduled ─▶ leased ─▶ delivered │ dead │ cancelled │ expired
//!            ▲           │
//!            └── retry ──┘
//! ```
//!
//! The arrows are methods of [`crate::store::Store`]; `docs/LIFECYCLE.md` shows all of them.

#[macro_use]
mod hex;

mod content_digest;
mod destination;
mod headers;
mod id;
mod lane;
mod occurrence;
mod options;
mod receipt;
mod store_id;
mod topic;

pub use content_digest::ContentDigest;
pub use delayd_wire::{
    MisfirePolicy, Mode, TaskState as State, TopicHistory, TopicPolicy, TopicRetry,
};
pub use destination::Destination;
pub use headers::{Headers, InvalidHeaders, is_reserved_header, is_same_header};
pub(crate) use hex::read_hex;
pub use id::TaskId;
pub use lane::Lane;
pub use occurrence::{Occurrence, ScheduleName};
pub use options::{OnDead, Options};
pub use receipt::Receipt;
pub use store_id::StoreId;
pub use topic::Topic;

/// The error for an invalid name (topic, service, receipt). Its text states the rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub String);

/// Whether `text` has only ASCII letters, digits and characters of `others`, which are ASCII.
fn is_made_of(text: &str, others: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte))
}
