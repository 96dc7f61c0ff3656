//! The calls about instances and their figures.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::schema::SpanText;
use crate::{Span, UnixMillis};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct InstanceListRequest {}

/// The instances that are alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Instances {
    pub instances: Vec<InstanceShown>,
}

/// One instance, as its last heartbeat describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct InstanceShown {
    /// Drawn at its start.
    pub id: String,
    /// The name of its host.
    pub name: String,
    pub version: String,
    pub started_ms: UnixMillis,
    /// Where it listens.
    pub address: String,
    /// Processor time per time: 1 is a whole core.
    pub cpu: f64,
    pub memory_bytes: u64,
    /// Callbacks in flight.
    pub in_flight: u64,
    /// Whether it makes callbacks.
    pub workers: bool,
    /// When the store heard of it last.
    pub seen_ms: UnixMillis,
    /// Whether it is the instance that answers.
    pub answers: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct SeriesRequest<S = Span> {
    /// How far back, up to 24 h (default 5m). Steps of 1 s reach back 5 min, of 10 s an hour, of a
    /// minute 24 h.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<SpanText>))]
    pub span: Option<S>,
}

/// The figures of the instance that answers, step by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Series {
    /// The length of a step.
    pub step_ms: u64,
    /// The names of the figures.
    pub figures: Vec<String>,
    /// The steps, the oldest first: the end of each in Unix ms, then the figures by their names.
    pub points: Vec<Vec<u64>>,
}
