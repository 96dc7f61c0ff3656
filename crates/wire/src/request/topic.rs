//! The requests about topics and destinations.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::schema::{PageCursor, TopicMatch};
use crate::{Destination, MisfirePolicy, Number, Span, Topic, TopicSort};

/// Without any field, the answer has the names of all topics.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicListRequest {
    /// Only topics whose name contains this text, or begins with it if it ends with `*`. Upper and
    /// lower case are the same.
    #[schema(value_type = Option<TopicMatch>)]
    #[serde(rename = "match")]
    pub matches: Option<String>,
    /// The order (default `name`).
    pub sort: Option<TopicSort>,
    /// Topics per page (default 100). A page has fewer if its topics have many lanes.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// Adds the counts of the last half hour.
    pub trend: Option<bool>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicRequest {
    /// The topic.
    pub topic: Topic,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopicPurgeRequest {
    /// The topic.
    pub topic: Topic,
    /// The topic's name, repeated.
    pub confirm: String,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest {
    /// The topic.
    pub topic: Topic,
    /// What happens to tasks that were due during the pause, instead of the topic's own setting.
    pub misfire: Option<MisfirePolicy>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForecastRequest {
    /// The topic.
    pub topic: Topic,
    /// The length of one step: 1 s to 366 days.
    pub step: Span,
    /// The number of steps (default 24).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub steps: Option<Number>,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DestinationListRequest {
    /// Answers with the last counts of the instance, and does not read the store.
    pub sampled: Option<bool>,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// The service.
    pub sn: Destination,
}

impl TopicListRequest {
    /// The request for the names of all topics.
    pub const ALL: Self =
        Self { matches: None, sort: None, limit: None, trend: None, cursor: None };
}
