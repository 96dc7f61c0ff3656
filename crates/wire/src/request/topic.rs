//! The requests about topics and destinations.

use serde::{Deserialize, Serialize};

use crate::TopicSort;
#[cfg(feature = "schema")]
use crate::schema::{PageCursor, SpanText, TopicMatch};
#[cfg(feature = "schema")]
use crate::{MisfirePolicy, ServiceName, TopicName};

/// Without any field, the answer has the names of all topics.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicListRequest<Match, Sort, Number, Cursor> {
    /// Only topics whose name contains this text, or begins with it if it ends with `*`. Upper and
    /// lower case are the same.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TopicMatch>))]
    pub matches: Option<Match>,
    /// The order (default `name`).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<TopicSort>))]
    pub sort: Option<Sort>,
    /// Topics per page (default 100). A page has fewer if its topics have many lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub limit: Option<Number>,
    /// The cursor of the previous page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<PageCursor>))]
    pub cursor: Option<Cursor>,
}

impl<Match, Sort, Number, Cursor> TopicListRequest<Match, Sort, Number, Cursor> {
    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.matches.is_none()
            && self.sort.is_none()
            && self.limit.is_none()
            && self.cursor.is_none()
    }
}

impl TopicListRequest<String, TopicSort, u32, String> {
    /// The request for the names of all topics.
    pub const ALL: Self = Self { matches: None, sort: None, limit: None, cursor: None };
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicRequest<Topic> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct TopicPurgeRequest<Topic> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The topic's name, repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = String, required = true))]
    pub confirm: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest<Topic, Misfire> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// What happens to tasks that were due during the pause, instead of the topic's own setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<MisfirePolicy>))]
    pub misfire: Option<Misfire>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct ForecastRequest<Topic, Span, Number> {
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = TopicName, required = true))]
    pub topic: Option<Topic>,
    /// The length of one step: 1 s to 366 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = SpanText, required = true))]
    pub step: Option<Span>,
    /// The number of steps (default 24).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    pub steps: Option<Number>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct DestinationListRequest {}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(bound = ""))]
#[serde(deny_unknown_fields)]
pub struct HoldRequest<Service> {
    /// The service.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = ServiceName, required = true))]
    pub sn: Option<Service>,
}
