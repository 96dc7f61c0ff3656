//! ④ Callbacks: calls the destination of a task over HTTP.
//!
//! ```text
//! worker ─▶ target (sn, url) ─▶ services (endpoint) ─▶ client (POST) ─▶ classify ─▶ Answer
//! ```
//!
//! - [`target()`] reads from a task's content what to call.
//! - [`Services`] knows the services; [`Service`] picks an `endpoint`.
//! - [`Client`] makes the call, as a [`Caller`]. `trouble` names what can go wrong under HTTP.
//! - `signature` signs a call. `unlisted` lists the hosts and names that may be called beside the
//!   services, and `guard` the addresses that they may reach.
//! - `classify` turns the response into an [`Answer`]. It is pure.
//!
//! # Invariants
//!
//! - A failed call is a value, never an error: [`Caller::call`] always returns an [`Answer`].
//! - The text of an outcome has at most 200 bytes, and holds neither payload nor URL.
//! - No call leaves the endpoint's host, whatever `url` holds. Redirects are not followed.
//! - For a host that a caller names, connections go only to addresses that were checked.
//!
//! *Absent on purpose*: the store (this module knows no leases or schedules), and the retry policy
//! ([`crate::outcome`] decides what an answer means for the task).

mod classify;
mod client;
mod connector;
mod content;
mod endpoint;
mod excerpt;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod guard;
mod services;
mod signature;
mod target;
mod trouble;
mod unlisted;

pub use classify::{Answer, Fault, LONGEST_RETRY_AFTER, SuccessRule};
pub use client::{BuildError, Call, Caller, Client, Params};
pub use excerpt::Excerpt;
pub use services::{InvalidService, Service, ServiceParams, Services};
pub use signature::{InvalidSecret, Received, Secret, Unverified};
pub use target::{InvalidTarget, InvalidUrl, Target, check_url, target, target_of_object};
pub use unlisted::{Fallback, HostPattern, InvalidFallback, InvalidPattern, Unlisted};
