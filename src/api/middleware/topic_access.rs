//! Checks that a token covers the topic of a call.

use crate::api::middleware::route::Routed;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::{LONG, reading};

/// Refuses a call whose topic the caller may not use, before the handler runs.
pub(crate) async fn check_topic(routed: &Routed) -> Result<(), Error> {
    let (body, access) = (routed.request.body(), routed.route.access);
    match body.len() {
        ..=LONG => routed.caller.check_topic(access, body),
        _ => {
            let caller = routed.caller.clone();
            reading(body.clone(), move |body| caller.check_topic(access, body)).await
        }
    }
}
