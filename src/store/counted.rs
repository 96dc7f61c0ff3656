//! Counts the calls of a store, their errors, and what claims end.

use delayd_wire::Way;
use tokio::time::Instant;

use super::{Claimed, Error, Looked, Result, Swept};
use crate::metrics::{ErrorKind, Op, StoreMetrics, TaskEnd};

/// An answer of a store, which may hold several errors.
pub(super) trait CountedAnswer {
    fn each_error(&self, count: impl FnMut(&Error));
}

impl<T> CountedAnswer for Result<T> {
    fn each_error(&self, count: impl FnMut(&Error)) {
        self.as_ref().err().into_iter().for_each(count);
    }
}

impl<T> CountedAnswer for Vec<Result<T>> {
    fn each_error(&self, mut count: impl FnMut(&Error)) {
        self.iter().for_each(|part| part.each_error(&mut count));
    }
}

impl CountedAnswer for Looked {
    fn each_error(&self, mut count: impl FnMut(&Error)) {
        self.registry.each_error(&mut count);
        self.holds.each_error(&mut count);
        self.next.each_error(&mut count);
        self.pulls.each_error(&mut count);
        self.plans.each_error(&mut count);
        self.instances.each_error(&mut count);
    }
}

fn kind_of(error: &Error) -> ErrorKind {
    match error {
        Error::Unavailable(_) => ErrorKind::Unavailable,
        Error::Moving(_) => ErrorKind::Moving,
        Error::Full(_) => ErrorKind::Full,
        Error::OverQuota | Error::CreatorLimit => ErrorKind::OverQuota,
        Error::StaleEntry => ErrorKind::StaleEntry,
        Error::KeyReused => ErrorKind::KeyReused,
        Error::Misconfigured(_) => ErrorKind::Misconfigured,
        Error::Corrupt(_) => ErrorKind::Corrupt,
    }
}

/// Counts a call: its duration since `began`, and the errors of its answer.
pub(super) fn count(metrics: &StoreMetrics, op: Op, began: Instant, answer: &impl CountedAnswer) {
    metrics.took(op, began.elapsed());
    answer.each_error(|error| metrics.failed(op, kind_of(error)));
}

/// Counts what a claim ended, or that it was denied.
pub(super) fn count_claim(metrics: &StoreMetrics, claimed: &Claimed) {
    let swept = match claimed {
        Claimed::Refused { .. } => return metrics.claim_denied(),
        Claimed::Granted(grant) if grant.swept == Swept::default() => return,
        Claimed::Granted(grant) => grant.swept,
    };
    let tasks = &metrics.tasks;
    tasks.leases_expired(Way::Push, swept.push_leases.into());
    tasks.leases_expired(Way::Pull, swept.pull_leases.into());
    for (end, count) in [
        (TaskEnd::PendingCancel, swept.cancelled),
        (TaskEnd::LeasesRanOut, swept.leases_ran_out),
        (TaskEnd::Unreadable, swept.unreadable),
        (TaskEnd::ExpiresAfter, swept.expired),
        (TaskEnd::MisfiredExpired, swept.misfired_expired),
        (TaskEnd::MisfiredDead, swept.misfired_dead),
        (TaskEnd::Skipped, swept.skipped),
    ] {
        tasks.ended_many(end, count.into());
    }
}
