//! What a task is: its names, its options, its states. Pure; every other module may use it.
//!
//! ```text
//! add ─▶ scheduled ─▶ leased ─▶ delivered │ dead │ cancelled │ expired
//!            ▲           │
//!            └── retry ──┘
//! ```
//!
//! The arrows are the verbs of [`crate::store::Store`]; `docs/LIFECYCLE.md` draws them all.

mod destination;
mod headers;
mod id;
mod lane;
mod options;
mod receipt;
mod store_id;
mod topic;

pub use delayd_wire::{
    MisfirePolicy, Mode, TaskState as State, TopicHistory, TopicPolicy, TopicRetry,
};
pub use destination::Destination;
pub use headers::{Headers, InvalidHeaders};
pub use id::TaskId;
pub use lane::Lane;
pub use options::{OnDead, Options};
pub use receipt::Receipt;
pub use store_id::StoreId;
pub use topic::Topic;

/// A name (topic, service, receipt) that breaks its rule; the text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub String);

/// Whether all of `text` is ASCII letters, digits or one of `others`, which are ASCII as well.
fn is_made_of(text: &str, others: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte))
}
