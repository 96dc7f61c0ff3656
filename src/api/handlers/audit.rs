//! `POST /delay/audit/list`: pages of the audit log, the newest entry first.

use std::sync::Arc;

pub(crate) use delayd_wire::AuditListRequest as ListRequest;
use delayd_wire::{AuditEntry, AuditPage};

use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields::cursor;
use crate::store::Audit;
use axum::extract::State;

/// The default and the maximum of entries per page.
const LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 1000;

/// `POST /delay/audit/list`
pub(crate) async fn list(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<ListRequest>,
) -> Result<Success<AuditPage>, Error> {
    let limit =
        request.limit.map_or(Ok(LIMIT), |limit| limit.whole("limit", 1..=MAX_LIMIT))? as usize;
    let before = cursor(request.cursor)?;
    let logged = api.store.audit(before, limit).await?;
    let cursor = logged.next.map(|next| next.to_string());
    let entries = logged.entries.into_iter().map(|entry| {
        let reason = entry.reason.and_then(|reason| caller.content(reason));
        AuditEntry { reason, ..entry }
    });
    Ok(Success::of(AuditPage { entries: entries.collect(), cursor }))
}
