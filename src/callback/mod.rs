//! ④ The callback: how a task leaves for the business service it was meant for.
//!
//! ```text
//! worker ─▶ target (sn, url) ─▶ services (endpoint) ─▶ client (POST) ─▶ classify ─▶ Answer
//! ```
//!
//! - [`target()`] reads from a task's content whom it wants called.
//! - [`Services`] knows where a service is to be found; [`Service`] picks an `endpoint`.
//! - [`Client`] makes the call and nothing else, as a [`Caller`]; `trouble` names what can go wrong
//!   under HTTP.
//! - `signature` signs a call; `unlisted` says which hosts and names may be called beside the
//!   services, `guard` what they may reach.
//! - `classify` turns what came back into an [`Answer`]. Pure.
//!
//! # Invariants
//!
//! - A failed call is a value, never an error: [`Caller::call`] always has an [`Answer`].
//! - An outcome text holds neither payload nor URL and at most 200 bytes.
//! - No call leaves the endpoint's host, whatever `url` holds; redirects are not followed.
//! - A host that comes from a caller is connected to at an address that was checked, or not at all.
//!
//! What is absent on purpose: the store (this module knows of no leases or schedules), and retry
//! policy ([`crate::outcome`] decides what an answer means for the task).

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
