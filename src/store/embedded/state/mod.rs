//! The state of one task, and its transitions. Pure: the tables of docs/STORE.md as code.
//!
//! A method of the store loads a [`StoredState`], gets a [`Decision`] here, and stores the new
//! one. Lanes and destinations are numbers.

use std::time::Duration;

use crate::model::clock::UnixMillis;
use crate::model::task::{Options, Receipt, State};
use crate::store::embedded::receipts::Receipts;
use crate::store::{
    Cancelled, EXPIRED, FURTHEST_DEADLINE, LEASE_RAN_OUT, LeaseKind, MAX_EXPIRIES, MAX_LEASE,
    MISFIRED, Misfired, SKIPPED, Settled, UNREADABLE,
};

mod settle;

/// The state of a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StoredState {
    Pending(Pending),
    Ended(EndedTask),
}

/// A scheduled or leased task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub(super) lane: i64,
    pub(super) destination: i64,
    pub(super) leased: bool,
    /// The due moment, or the lease's deadline.
    pub(super) due: UnixMillis,
    pub(super) attempts: u32,
    /// Leases that expired in a row.
    pub(super) expiries: u32,
    /// Whether a cancel is pending: the task is cancelled when the lease ends, unless it succeeds.
    pub(super) cancelling: bool,
    pub(super) receipts: Receipts,
    pub(super) outcome: String,
    /// The kind of its lease, or of its last lease until that was swept.
    pub(super) lease: Option<LeaseKind>,
    /// The first moment at which the task is not worth delivering any more.
    pub(super) expires: Option<UnixMillis>,
}

/// A task that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EndedTask {
    pub(super) lane: i64,
    pub(super) state: State,
    pub(super) finished: UnixMillis,
    pub(super) attempts: u32,
    pub(super) receipts: Receipts,
    pub(super) outcome: String,
}

/// The answer of a call, and the new record.
#[derive(Debug, PartialEq)]
pub(super) struct Decision<A> {
    pub(super) answer: A,
    /// `None` if nothing changes.
    pub(super) becomes: Option<StoredState>,
}

impl<A> Decision<A> {
    fn unchanged(answer: A) -> Self {
        Self { answer, becomes: None }
    }

    fn becomes(answer: A, record: StoredState) -> Self {
        Self { answer, becomes: Some(record) }
    }
}

/// Whether a lease with this deadline has expired. A deadline further away than any lease shows
/// that the clock was set back, and counts as expired.
pub(super) fn ran_out(deadline: UnixMillis, now: UnixMillis) -> bool {
    deadline <= now || deadline > now + FURTHEST_DEADLINE
}

/// When a task whose lease expired is due again.
pub(super) fn due_after_lease(deadline: UnixMillis, now: UnixMillis) -> UnixMillis {
    if deadline > now + FURTHEST_DEADLINE { now } else { deadline }
}

/// The deadline of a lease that begins now, at most [`MAX_LEASE`] away.
pub(super) fn deadline(lease: Duration, now: UnixMillis) -> UnixMillis {
    now + lease.min(MAX_LEASE)
}

/// The first moment at which a task with this due moment is not worth delivering any more.
pub(super) fn expiry(due: UnixMillis, options: &Options) -> Option<UnixMillis> {
    options.expires_after.map(|after| due + after.0 + Duration::from_millis(1))
}

impl StoredState {
    pub(super) fn lane(&self) -> i64 {
        match self {
            Self::Pending(pending) => pending.lane,
            Self::Ended(ended) => ended.lane,
        }
    }

    /// The state that callers see.
    pub(super) fn state(&self, now: UnixMillis) -> State {
        match self {
            Self::Pending(pending) => pending.state(now),
            Self::Ended(ended) => ended.state,
        }
    }

    pub(super) fn extend(
        &self,
        by: &Receipt,
        lease: Duration,
        now: UnixMillis,
    ) -> Decision<Settled> {
        match self {
            Self::Pending(pending) if pending.receipts.is_current(by) => Decision::becomes(
                Settled::Done,
                Self::Pending(Pending {
                    leased: true,
                    due: deadline(lease, now),
                    ..pending.clone()
                }),
            ),
            _ => Decision::unchanged(Settled::Stale { state: self.state(now) }),
        }
    }

    /// The cancelled record, if a cancel was pending and the lease has expired: a call of an
    /// operator finds it so.
    pub(super) fn fulfilled(&self, now: UnixMillis) -> Option<Self> {
        match self {
            Self::Pending(pending)
                if pending.cancelling && pending.leased && ran_out(pending.due, now) =>
            {
                Some(pending.swept(due_after_lease(pending.due, now), now))
            }
            _ => None,
        }
    }

    pub(super) fn cancel(&self, now: UnixMillis) -> Decision<Cancelled> {
        if let Some(cancelled) = self.fulfilled(now) {
            return Decision::becomes(Cancelled::Done, cancelled);
        }
        match self {
            Self::Pending(pending) if pending.state(now) == State::Leased => Decision::becomes(
                Cancelled::Pending,
                Self::Pending(Pending { cancelling: true, ..pending.clone() }),
            ),
            Self::Pending(pending) => {
                let ended = pending.end(
                    State::Cancelled,
                    Receipts::default(),
                    pending.outcome.clone(),
                    now,
                );
                Decision::becomes(Cancelled::Done, ended)
            }
            Self::Ended(ended) => match ended.state {
                State::Cancelled => Decision::unchanged(Cancelled::Done),
                State::Dead => Decision::becomes(
                    Cancelled::Done,
                    Self::Ended(EndedTask {
                        state: State::Cancelled,
                        finished: now,
                        receipts: Receipts::default(),
                        ..ended.clone()
                    }),
                ),
                state => Decision::unchanged(Cancelled::Refused { state }),
            },
        }
    }
}

impl Pending {
    /// A task at the start of a revision.
    pub(super) fn fresh(lane: i64, destination: i64, due: UnixMillis) -> Self {
        Self {
            lane,
            destination,
            leased: false,
            due,
            attempts: 0,
            expiries: 0,
            cancelling: false,
            receipts: Receipts::default(),
            outcome: String::new(),
            lease: None,
            expires: None,
        }
    }

    pub(super) fn state(&self, now: UnixMillis) -> State {
        if self.leased && !ran_out(self.due, now) { State::Leased } else { State::Scheduled }
    }

    /// Leased by a claim until `deadline`.
    pub(super) fn leased_by(
        &self,
        receipt: &Receipt,
        lease: LeaseKind,
        deadline: UnixMillis,
    ) -> Self {
        Self {
            leased: true,
            due: deadline,
            attempts: self.attempts.saturating_add(1),
            receipts: self.receipts.claimed(receipt),
            lease: Some(lease),
            ..self.clone()
        }
    }

    /// After its lease expired (or was voided): it waits again, due at `due`, unless that ends it.
    pub(super) fn swept(&self, due: UnixMillis, now: UnixMillis) -> StoredState {
        if let Some(back) = self.given_back() {
            return StoredState::Pending(back);
        }
        let expiries = self.expiries.saturating_add(1);
        let outcome = LEASE_RAN_OUT.to_owned();
        if self.cancelling {
            return self.end(State::Cancelled, self.receipts.kept(), outcome, now);
        }
        if expiries >= MAX_EXPIRIES {
            return self.end(State::Dead, self.receipts.clone(), outcome, now);
        }
        StoredState::Pending(Self { leased: false, due, expiries, outcome, ..self.clone() })
    }

    /// After a claim found that it cannot be read.
    pub(super) fn unreadable(&self, now: UnixMillis) -> StoredState {
        self.end(State::Dead, self.receipts.clone(), UNREADABLE.to_owned(), now)
    }

    /// After it was not worth delivering any more.
    pub(super) fn expired(&self, now: UnixMillis) -> StoredState {
        self.end(State::Expired, Receipts::default(), EXPIRED.to_owned(), now)
    }

    /// After it fell due while the occurrence before it had not ended.
    pub(super) fn skipped(&self, now: UnixMillis) -> StoredState {
        self.end(State::Expired, Receipts::default(), SKIPPED.to_owned(), now)
    }

    /// After it fell due in a pause.
    pub(super) fn misfired(&self, becomes: Misfired, now: UnixMillis) -> StoredState {
        let (state, receipts) = match becomes {
            Misfired::Expired => (State::Expired, Receipts::default()),
            Misfired::Dead => (State::Dead, self.receipts.clone()),
        };
        self.end(state, receipts, MISFIRED.to_owned(), now)
    }

    pub(super) fn end(
        &self,
        state: State,
        receipts: Receipts,
        outcome: String,
        now: UnixMillis,
    ) -> StoredState {
        StoredState::Ended(EndedTask {
            lane: self.lane,
            state,
            finished: now,
            attempts: self.attempts,
            receipts,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::testing::START;

    #[test]
    fn a_crash_loop_ends_at_the_last_expiry() {
        let check = |expiries: u32, state: State| {
            let record = Pending { leased: true, expiries, ..Pending::fresh(1, 1, START) }
                .swept(START, START);
            assert_eq!(record.state(START), state, "{expiries} before");
        };
        check(MAX_EXPIRIES - 2, State::Scheduled);
        check(MAX_EXPIRIES - 1, State::Dead);
    }

    #[test]
    fn a_deadline_far_beyond_any_lease_has_run_out() {
        let check = |ms: i64, expected: bool, due: i64| {
            let deadline = UnixMillis(START.0 + ms);
            assert_eq!(ran_out(deadline, START), expected, "{ms}");
            assert_eq!(due_after_lease(deadline, START).0 - START.0, due, "{ms}");
        };
        let longest = i64::try_from(FURTHEST_DEADLINE.as_millis()).unwrap();
        check(-1, true, -1);
        check(0, true, 0);
        check(1, false, 1);
        check(longest, false, longest);
        check(longest + 1, true, 0);
    }
}
