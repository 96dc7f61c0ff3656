//! The failure of a call about several items.

use axum::response::Response;
use delayd_wire::{BatchItem, Failure};

use crate::api::wire::error::Error;

/// The failure of a batch of which every item failed: it has the highest code among them. `None` if
/// an item succeeded. A caller that looks only at `dm_error` would otherwise believe that the items
/// were stored. `field` is the list of the items in the request.
pub(crate) fn failure_of_all<T>(field: &str, results: &[Result<T, Error>]) -> Option<Response> {
    let errors: Option<Vec<&Error>> = results.iter().map(|result| result.as_ref().err()).collect();
    let errors = errors?;
    let gravest = errors.iter().max_by_key(|error| error.code())?;
    let item =
        |error: &&Error| BatchItem::Failed { dm_error: error.code(), error_msg: error.message() };
    let count = errors.len();
    let error_msg =
        format!("{field}: none of the {count} was stored; one of them says: {}", gravest.message());
    Some(gravest.with_body(Failure {
        error_msg,
        failed: Some(count),
        results: Some(errors.iter().map(item).collect()),
        ..gravest.body()
    }))
}
