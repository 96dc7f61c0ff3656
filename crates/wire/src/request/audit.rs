//! The request that lists the audit log.

use serde::{Deserialize, Serialize};

requests! {

pub struct AuditListRequest<Number, Cursor> {
    /// Entries per page.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    pub limit: Option<Number>,
    /// The answer's `cursor`, for the page after it.
    #[schema(value_type = Option<String>)]
    pub cursor: Option<Cursor>,
}

}
