//! The request that lists the audit log.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::Number;

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditListRequest {
    /// Entries per page.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// The answer's `cursor`, for the page after it.
    pub cursor: Option<String>,
}
