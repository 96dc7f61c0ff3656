//! Callbacks: calls the destination of a task over HTTP.
//!
//! ```text
//! worker ─▶ target (sn, url) ─▶ services (endpoint) ─▶ client (POST) ─▶ classify ─▶ Answer
//! ```
//!
//! - [`target()`] reads from a task's content what to call.
//! - [`Services`] knows the services; [`Service`] picks an `endpoint`.
//! - [`Client`] makes the call, as a [`CallClient`]. `trouble` names what can go wrong under HTTP.
//! - `signature` signs a call. `unlisted` lists the hosts and names that may be called beside the
//!   services, and `guard` the addresses that they may reach.
//! - `service_headers` are those that the operator adds to each call of a service.
//! - `own_tls` has the connections of a service with TLS of its own, and `oauth` the tokens of a
//!   service.
//! - `encoding` decodes a response that was compressed although the call asked for a plain one.
//! - `classify` turns the response into an [`Answer`], by the [`SuccessRule`] of the service. It is
//!   pure.
//!
//! # Invariants
//!
//! - A failed call is a value, never an error: [`CallClient::call`] always returns an [`Answer`].
//! - The text of an outcome has at most 200 bytes, and holds neither payload nor URL.
//! - No call leaves the endpoint's host, whatever `url` holds. Redirects are not followed.
//! - No secret that a call brings is in an answer or an outcome (`known_secrets`).
//! - For a host that a caller names, connections go only to addresses that were checked.
//!
//! *Absent on purpose*: the store (this module knows no leases or schedules), and the retry policy
//! ([`crate::outcome`] decides what an answer means for the task).

mod classify;
mod client;
mod connector;
mod content;
mod credentials;
mod encoding;
mod endpoint;
mod excerpt;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod guard;
mod known_secrets;
mod oauth;
mod own_tls;
mod pair;
mod secret_text;
mod service_headers;
mod services;
mod shallow;
mod signature;
mod success;
mod target;
mod trouble;
mod unlisted;

pub use classify::{Answer, Fault, LONGEST_RETRY_AFTER};
pub use client::{BuildError, Call, CallClient, Client, Params};
pub use credentials::Credentials;
pub use excerpt::Excerpt;
pub use known_secrets::KnownSecrets;
pub use oauth::{Changes, OAuth, OAuthParams, keep};
pub use own_tls::ServiceTls;
pub use secret_text::{SecretText, Unexpected, line_of_file};
pub use service_headers::{ServiceHeader, check_header_name};
pub use services::{InvalidService, Service, ServiceParams, Services};
pub use shallow::Pointer;
pub use signature::{InvalidSecret, Received, Secret, Unverified};
pub use success::{AnswerRule, Expected, SuccessRule, ValueRule};
pub use target::{
    InvalidTarget, InvalidUrl, Target, check_segments, check_url, new_target, target,
};
pub use unlisted::{Fallback, HostPattern, InvalidFallback, InvalidPattern, Unlisted};
