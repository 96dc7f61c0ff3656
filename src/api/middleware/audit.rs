//! Records administrative calls in the audit log: who called, about what, with what result.
//!
//! The table of routes says which calls are recorded. A call is recorded when it is answered, and
//! also if its caller disconnects before, because it may have been carried out.

use std::sync::Arc;

use axum::response::Response;
use delayd_wire::{AuditEntry, AuditResult, AuditSource, ErrorCode};

use crate::api::auth::{Caller, Refused};
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::route::Route;
use crate::api::wire::request_id;
use crate::audit::AuditLog;

/// Records calls in the audit log.
#[derive(Debug)]
pub(crate) struct Auditor(pub(crate) Arc<AuditLog>);

/// A call that is recorded once it is answered, or dropped.
pub(crate) struct CallRecord<'a> {
    auditor: &'a Auditor,
    entry: Option<AuditEntry>,
    target: KnownTarget,
}

impl Auditor {
    /// Begins the record of an admitted call; `None` if the route records none.
    pub(crate) fn begin(&self, route: &Route, caller: &Caller) -> Option<Box<CallRecord<'_>>> {
        if !route.is_recorded() {
            return None;
        }
        let entry = self.entry(route, caller.name(), AuditResult::Unanswered);
        let target = KnownTarget::default();
        // Boxed, because it is part of the future of every request.
        Some(Box::new(CallRecord { auditor: self, entry: Some(entry), target }))
    }

    /// Records a call that was not admitted.
    pub(crate) fn refused(&self, route: &Route, refused: &Refused) {
        if !route.is_recorded() {
            return;
        }
        let token = refused.caller.as_ref().and_then(Caller::name);
        self.0.refused(token, || {
            let (error, entry) = (&refused.error, self.entry(route, token, AuditResult::Refused));
            entry.answered(error.status().as_u16(), Some(error.code()))
        });
    }

    fn entry(&self, route: &Route, token: Option<&str>, result: AuditResult) -> AuditEntry {
        AuditEntry {
            token: token.map(str::to_owned),
            request_id: request_id::current(),
            ..self.0.entry(AuditSource::Api, action(route.path), result)
        }
    }
}

/// The end of a call's path: its group and its verb.
fn action(path: &str) -> &str {
    path.strip_prefix("/delay/").unwrap_or(path)
}

impl CallRecord<'_> {
    pub(crate) fn target(&self) -> KnownTarget {
        self.target.clone()
    }

    /// Notes the answer.
    pub(crate) fn answered(mut self, response: &Response) {
        let code = response.extensions().get::<ErrorCode>().copied();
        self.entry =
            self.entry.take().map(|entry| entry.answered(response.status().as_u16(), code));
    }
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else { return };
        let entry = match std::thread::panicking() {
            // The caller gets 500.
            true => entry.answered(ErrorCode::Internal.status(), Some(ErrorCode::Internal)),
            false => entry,
        };
        self.auditor.0.record(self.target.get().of(entry));
    }
}
