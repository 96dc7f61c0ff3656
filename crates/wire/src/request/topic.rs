//! The requests about topics and destinations.

use serde::{Deserialize, Serialize};

use crate::TopicSort;
#[cfg(feature = "schema")]
use crate::schema::{PageCursor, SpanText, TopicMatch};
#[cfg(feature = "schema")]
use crate::{MisfirePolicy, ServiceName, TopicName};

requests! {

/// Without any field, the answer has the names of all topics.
pub struct TopicListRequest<Match, Sort, Number, Cursor> {
    /// Only topics whose name contains this text, or begins with it if it ends with `*`. Upper and
    /// lower case are the same.
    #[schema(value_type = Option<TopicMatch>)]
    #[serde(rename = "match")]
    pub matches: Option<Match>,
    /// The order (default `name`).
    #[schema(value_type = Option<TopicSort>)]
    pub sort: Option<Sort>,
    /// Topics per page (default 100). A page has fewer if its topics have many lanes.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// Adds the counts of the last half hour.
    pub trend: Option<bool>,
    /// The cursor of the previous page.
    #[schema(value_type = Option<PageCursor>)]
    pub cursor: Option<Cursor>,
}

pub struct TopicRequest<Topic> {
    ..topic,
}

pub struct TopicPurgeRequest<Topic> {
    ..topic,
    /// The topic's name, repeated.
    #[schema(value_type = String, required = true)]
    pub confirm: Option<String>,
}

pub struct ResumeRequest<Topic, Misfire> {
    ..topic,
    /// What happens to tasks that were due during the pause, instead of the topic's own setting.
    #[schema(value_type = Option<MisfirePolicy>)]
    pub misfire: Option<Misfire>,
}

pub struct ForecastRequest<Topic, Span, Number> {
    ..topic,
    /// The length of one step: 1 s to 366 days.
    #[schema(value_type = SpanText, required = true)]
    pub step: Option<Span>,
    /// The number of steps (default 24).
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub steps: Option<Number>,
}

pub struct DestinationListRequest {
    /// Answers with the last counts of the instance, and does not read the store.
    pub sampled: Option<bool>,
}

pub struct HoldRequest<Service> {
    /// The service.
    #[schema(value_type = ServiceName, required = true)]
    pub sn: Option<Service>,
}

}

impl<Match, Sort, Number, Cursor> TopicListRequest<Match, Sort, Number, Cursor> {
    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.matches.is_none()
            && self.sort.is_none()
            && self.limit.is_none()
            && self.trend.is_none()
            && self.cursor.is_none()
    }
}

impl TopicListRequest<String, TopicSort, u32, String> {
    /// The request for the names of all topics.
    pub const ALL: Self =
        Self { matches: None, sort: None, limit: None, trend: None, cursor: None };
}
