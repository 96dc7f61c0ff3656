//! Requests and answers: JSON, fields, errors, envelopes. It calls no store.

pub(crate) mod batch;
pub(crate) mod cost;
pub(crate) mod envelope;
pub(crate) mod error;
pub(crate) mod fields;
pub(crate) mod idempotency;
pub(crate) mod json;
pub(crate) mod long_body;
pub(crate) mod request_id;
pub(crate) mod response;
pub(crate) mod schema;
pub(crate) mod shown;
