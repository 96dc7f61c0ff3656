//! Records administrative calls in the audit log: who called, about what, with what result.
//!
//! The table of routes says which calls are recorded. A call is recorded when it is answered, and
//! also if its caller disconnects before, because it may have been carried out.

use axum::response::Response;
use delayd_wire::{AuditEntry, AuditResult, AuditSource, ErrorCode};

use crate::api::auth::{Caller, RefusedCall};
use crate::api::middleware::audit_target::KnownTarget;
use crate::api::middleware::route::Route;
use crate::api::wire::request_id;
use crate::audit::AuditLog;

/// A call that is recorded once it is answered, or dropped.
pub(crate) struct CallRecord<'a> {
    log: &'a AuditLog,
    entry: Option<AuditEntry>,
    target: KnownTarget,
}

fn entry(log: &AuditLog, route: &Route, token: Option<&str>, result: AuditResult) -> AuditEntry {
    AuditEntry {
        token: token.map(str::to_owned),
        request_id: request_id::current(),
        ..log.entry(AuditSource::Api, action(route.path), result)
    }
}

/// The end of a call's path: its group and its verb.
fn action(path: &str) -> &str {
    path.strip_prefix("/delay/").unwrap_or(path)
}

impl<'a> CallRecord<'a> {
    /// Begins the record of an admitted call; `None` if the route records none.
    pub(crate) fn begin(log: &'a AuditLog, route: &Route, caller: &Caller) -> Option<Box<Self>> {
        if !route.is_recorded() {
            return None;
        }
        let entry = Some(entry(log, route, caller.name(), AuditResult::Unanswered));
        // Boxed, because it is part of the future of every request.
        Some(Box::new(Self { log, entry, target: KnownTarget::of_a_record() }))
    }

    /// Records a call that was not admitted.
    pub(crate) fn refused(log: &AuditLog, route: &Route, refused: &RefusedCall) {
        if !route.is_recorded() {
            return;
        }
        let token = refused.caller.as_ref().and_then(Caller::name);
        log.refused(token, || {
            let (error, entry) = (&refused.error, entry(log, route, token, AuditResult::Refused));
            entry.answered(error.status().as_u16(), Some(error.code()))
        });
    }

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
        self.log.record(self.target.get().of(entry));
    }
}
