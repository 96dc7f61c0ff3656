//! A token that covers only some topics reaches nothing that is about others.

use crate::api::middleware::route::Routed;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::{LONG, reading};

/// Refuses a call about a topic that its caller may not use, before its handler sees it.
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
