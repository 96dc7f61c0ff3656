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
mod headers;
mod id;
mod lane;
mod occurrence;
mod options;
mod store_id;

pub use content_digest::ContentDigest;
pub use delayd_wire::{
    Destination, InvalidName, MisfirePolicy, Mode, Receipt, TaskState as State, Topic,
    TopicHistory, TopicPolicy, TopicRetry,
};
pub use headers::{Headers, InvalidHeaders, is_reserved_header, is_same_header};
pub(crate) use hex::read_hex;
pub use id::TaskId;
pub use lane::Lane;
pub use occurrence::{Occurrence, ScheduleName};
pub use options::{OnDead, Options};
pub use store_id::StoreId;

/// Whether `text` has only ASCII letters, digits and characters of `others`, which are ASCII.
fn is_made_of(text: &str, others: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.as_bytes().contains(&byte))
}
