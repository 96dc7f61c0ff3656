//! One task's place on the road, and what each verb makes of it. Pure: the tables of
//! [`crate::store`] as code.
//!
//! A verb loads a [`Record`], asks it here for a [`Verdict`], and writes down what it becomes.
//! Lanes and destinations are meant by their numbers.

use std::time::Duration;

use super::receipts::Receipts;
use crate::model::clock::UnixMillis;
use crate::model::task::{Options, Receipt, State};
use crate::store::{
    Cancelled, EXPIRED, FURTHEST_DEADLINE, LEASE_RAN_OUT, LeaseKind, MAX_EXPIRIES, MAX_LEASE,
    MAX_OUTCOME, MISFIRED, MOVED, Misfired, Settled, Transition, UNREADABLE,
};

/// Where a task stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Record {
    Pending(Pending),
    Ended(Ended),
}

/// A task on its way: scheduled or leased.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pending {
    pub(super) lane: i64,
    pub(super) destination: i64,
    pub(super) leased: bool,
    /// The due moment, or the lease's deadline.
    pub(super) due: UnixMillis,
    pub(super) attempts: u32,
    /// Leases that ran out in a row.
    pub(super) expiries: u32,
    /// Cancelled as soon as the lease ends, unless it succeeds.
    pub(super) cancelling: bool,
    pub(super) receipts: Receipts,
    pub(super) outcome: String,
    /// Who holds it, or held it until its lease was swept.
    pub(super) lease: Option<LeaseKind>,
    /// The first moment at which it is not worth delivering any more.
    pub(super) expires: Option<UnixMillis>,
}

/// A task whose road has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) lane: i64,
    pub(super) state: State,
    pub(super) finished: UnixMillis,
    pub(super) attempts: u32,
    pub(super) receipts: Receipts,
    pub(super) outcome: String,
}

/// What a verb answers, and what it makes of the record.
#[derive(Debug, PartialEq)]
pub(super) struct Verdict<A> {
    pub(super) answer: A,
    /// `None`: nothing changes.
    pub(super) becomes: Option<Record>,
}

impl<A> Verdict<A> {
    fn unchanged(answer: A) -> Self {
        Self { answer, becomes: None }
    }

    fn becomes(answer: A, record: Record) -> Self {
        Self { answer, becomes: Some(record) }
    }
}

/// Whether a lease with this deadline has run out. A deadline further away than any lease shows
/// that the clock was set back, and nobody could wait for it.
pub(super) fn ran_out(deadline: UnixMillis, now: UnixMillis) -> bool {
    deadline <= now || deadline > now + FURTHEST_DEADLINE
}

/// When a task whose lease ran out is due again.
pub(super) fn due_after_lease(deadline: UnixMillis, now: UnixMillis) -> UnixMillis {
    if deadline > now + FURTHEST_DEADLINE { now } else { deadline }
}

/// A deadline so far away; never further than [`MAX_LEASE`].
pub(super) fn deadline(lease: Duration, now: UnixMillis) -> UnixMillis {
    now + lease.min(MAX_LEASE)
}

/// The first moment at which a task of this due moment is not worth delivering any more.
pub(super) fn expiry(due: UnixMillis, options: &Options) -> Option<UnixMillis> {
    options.expires_after.map(|after| due + after.0 + Duration::from_millis(1))
}

impl Record {
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

    pub(super) fn settle(
        &self,
        by: &Receipt,
        to: &Transition,
        now: UnixMillis,
    ) -> Verdict<Settled> {
        match self {
            Self::Pending(pending) => pending.settle(by, to, now),
            Self::Ended(ended) => ended.settle(by, to, now),
        }
    }

    pub(super) fn extend(
        &self,
        by: &Receipt,
        lease: Duration,
        now: UnixMillis,
    ) -> Verdict<Settled> {
        match self {
            Self::Pending(pending) if pending.receipts.is_current(by) => Verdict::becomes(
                Settled::Done,
                Self::Pending(Pending {
                    leased: true,
                    due: deadline(lease, now),
                    ..pending.clone()
                }),
            ),
            _ => Verdict::unchanged(Settled::Stale { state: self.state(now) }),
        }
    }

    /// The cancelled record, if a pending cancel waited for a lease that has run out: a verb by
    /// hand finds it so.
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

    pub(super) fn cancel(&self, now: UnixMillis) -> Verdict<Cancelled> {
        if let Some(cancelled) = self.fulfilled(now) {
            return Verdict::becomes(Cancelled::Done, cancelled);
        }
        match self {
            Self::Pending(pending) if pending.state(now) == State::Leased => Verdict::becomes(
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
                Verdict::becomes(Cancelled::Done, ended)
            }
            Self::Ended(ended) => match ended.state {
                State::Cancelled => Verdict::unchanged(Cancelled::Done),
                State::Dead => Verdict::becomes(
                    Cancelled::Done,
                    Self::Ended(Ended {
                        state: State::Cancelled,
                        finished: now,
                        receipts: Receipts::default(),
                        ..ended.clone()
                    }),
                ),
                state => Verdict::unchanged(Cancelled::Refused { state }),
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

    /// Handed to a claimer until `deadline`.
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

    /// Its lease ran out (or was voided): waits again, due at `due`, unless that ends it.
    pub(super) fn swept(&self, due: UnixMillis, now: UnixMillis) -> Record {
        if let Some(back) = self.given_back() {
            return Record::Pending(back);
        }
        let expiries = self.expiries.saturating_add(1);
        let outcome = LEASE_RAN_OUT.to_owned();
        if self.cancelling {
            return self.end(State::Cancelled, self.receipts.kept(), outcome, now);
        }
        if expiries >= MAX_EXPIRIES {
            return self.end(State::Dead, self.receipts.clone(), outcome, now);
        }
        Record::Pending(Self { leased: false, due, expiries, outcome, ..self.clone() })
    }

    /// It is due, and there is nothing to hand out.
    pub(super) fn unreadable(&self, now: UnixMillis) -> Record {
        self.end(State::Dead, self.receipts.clone(), UNREADABLE.to_owned(), now)
    }

    /// It is not worth delivering any more.
    pub(super) fn expired(&self, now: UnixMillis) -> Record {
        self.end(State::Expired, Receipts::default(), EXPIRED.to_owned(), now)
    }

    /// It fell due in a pause.
    pub(super) fn misfired(&self, becomes: Misfired, now: UnixMillis) -> Record {
        let (state, receipts) = match becomes {
            Misfired::Expired => (State::Expired, Receipts::default()),
            Misfired::Dead => (State::Dead, self.receipts.clone()),
        };
        self.end(state, receipts, MISFIRED.to_owned(), now)
    }

    fn settle(&self, by: &Receipt, to: &Transition, now: UnixMillis) -> Verdict<Settled> {
        let holds = self.receipts.is_current(by);
        let record = match to {
            Transition::Delivered { outcome } if self.receipts.knows(by) => {
                self.end(State::Delivered, Receipts::only(by), cut(outcome), now)
            }
            Transition::Moved if self.receipts.knows(by) && !self.cancelling => {
                self.end(State::Delivered, Receipts::only(by), MOVED.to_owned(), now)
            }
            Transition::Retry { after, outcome } if holds => self.failed(
                by,
                now + *after,
                self.attempts,
                self.receipts.retried(),
                cut(outcome),
                now,
            ),
            Transition::Release if holds && let Some(back) = self.given_back() => {
                Record::Pending(Self { expiries: 0, ..back })
            }
            Transition::Release if holds => {
                let unspent = self.attempts.saturating_sub(1);
                self.failed(by, now, unspent, self.receipts.released(), self.outcome.clone(), now)
            }
            Transition::Keep { lease } if holds => {
                Record::Pending(self.kept(deadline(*lease, now)))
            }
            Transition::Dead { outcome } if holds && self.cancelling => {
                self.end(State::Cancelled, Receipts::only(by), cut(outcome), now)
            }
            Transition::Dead { outcome } if holds => {
                self.end(State::Dead, self.receipts.clone(), cut(outcome), now)
            }
            Transition::Retry { .. } if self.receipts.retried_last(by) => {
                return Verdict::unchanged(Settled::Done);
            }
            _ => return Verdict::unchanged(Settled::Stale { state: self.state(now) }),
        };
        Verdict::becomes(Settled::Done, record)
    }

    /// The lease of `by` ended without success: waits again, unless a cancel is pending.
    fn failed(
        &self,
        by: &Receipt,
        due: UnixMillis,
        attempts: u32,
        receipts: Receipts,
        outcome: String,
        now: UnixMillis,
    ) -> Record {
        if self.cancelling {
            return self.end(State::Cancelled, Receipts::only(by), outcome, now);
        }
        Record::Pending(Self {
            leased: false,
            due,
            attempts,
            expiries: 0,
            receipts,
            outcome,
            lease: None,
            ..*self
        })
    }

    pub(super) fn end(
        &self,
        state: State,
        receipts: Receipts,
        outcome: String,
        now: UnixMillis,
    ) -> Record {
        Record::Ended(Ended {
            lane: self.lane,
            state,
            finished: now,
            attempts: self.attempts,
            receipts,
            outcome,
        })
    }
}

impl Ended {
    fn settle(&self, by: &Receipt, to: &Transition, now: UnixMillis) -> Verdict<Settled> {
        let is_final_receipt = self.receipts.is_current(by);
        let moved = Transition::Delivered { outcome: MOVED.to_owned() };
        let to = if *to == Transition::Moved { &moved } else { to };
        let is_repeat = match (self.state, to) {
            (State::Dead, Transition::Delivered { outcome }) if self.receipts.knows(by) => {
                let delivered = Self {
                    state: State::Delivered,
                    finished: now,
                    receipts: Receipts::only(by),
                    outcome: cut(outcome),
                    ..*self
                };
                return Verdict::becomes(Settled::Done, Record::Ended(delivered));
            }
            (State::Dead, Transition::Dead { .. })
            | (State::Delivered, Transition::Delivered { .. }) => is_final_receipt,
            (State::Cancelled | State::Expired, to) => {
                is_final_receipt
                    && !matches!(to, Transition::Delivered { .. } | Transition::Keep { .. })
            }
            _ => false,
        };
        Verdict::unchanged(if is_repeat {
            Settled::Done
        } else {
            Settled::Stale { state: self.state }
        })
    }
}

/// The part of an outcome text that is kept.
fn cut(outcome: &str) -> String {
    beginning(outcome, MAX_OUTCOME).to_owned()
}

/// As many whole characters as there are in so many bytes.
pub(super) fn beginning(text: &str, bytes: usize) -> &str {
    let longest = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..longest.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::embedded::testing::{START, dead, delivered, retry};

    const SOON: UnixMillis = UnixMillis(START.0 + 30_000);

    fn receipt(name: &str) -> Receipt {
        name.parse().unwrap()
    }

    /// The second attempt: `b` holds it, `a` did before.
    fn leased() -> Pending {
        Pending {
            leased: true,
            due: SOON,
            attempts: 2,
            expiries: 1,
            receipts: Receipts { current: Some(receipt("b")), past: vec![receipt("a")] },
            ..Pending::fresh(1, 1, START)
        }
    }

    fn swept() -> Pending {
        Pending { leased: false, due: START, ..leased() }
    }

    /// `b` asked for a retry.
    fn waiting() -> Pending {
        Pending { leased: false, receipts: leased().receipts.retried(), ..leased() }
    }

    fn ended(state: State) -> Record {
        leased().end(state, leased().receipts, String::new(), START)
    }

    const DONE: Settled = Settled::Done;

    fn stale(state: State) -> Settled {
        Settled::Stale { state }
    }

    /// Settles `before` by `by`; checks the answer, and the state it becomes (`None`: unchanged).
    fn check(
        before: impl Into<Record>,
        by: &str,
        to: &Transition,
        answer: Settled,
        becomes: Option<State>,
    ) {
        let before = before.into();
        let verdict = before.settle(&receipt(by), to, START);
        let state = verdict.becomes.as_ref().map(|record| record.state(START));
        assert_eq!((verdict.answer, state), (answer, becomes), "{to:?} by {by} on {before:?}");
    }

    impl From<Pending> for Record {
        fn from(pending: Pending) -> Self {
            Self::Pending(pending)
        }
    }

    #[test]
    fn a_success_of_this_revision_counts_while_the_task_is_not_cancelled() {
        for by in ["a", "b"] {
            check(leased(), by, &delivered(), DONE, Some(State::Delivered));
            check(
                Pending { due: START, ..leased() },
                by,
                &delivered(),
                DONE,
                Some(State::Delivered),
            );
            check(
                Pending { cancelling: true, ..leased() },
                by,
                &delivered(),
                DONE,
                Some(State::Delivered),
            );
            check(swept(), by, &delivered(), DONE, Some(State::Delivered));
            check(waiting(), by, &delivered(), DONE, Some(State::Delivered));
            check(ended(State::Dead), by, &delivered(), DONE, Some(State::Delivered));
            check(ended(State::Cancelled), by, &delivered(), stale(State::Cancelled), None);
            check(ended(State::Expired), by, &delivered(), stale(State::Expired), None);
        }
        check(ended(State::Delivered), "b", &delivered(), DONE, None);
        check(ended(State::Delivered), "a", &delivered(), stale(State::Delivered), None);
    }

    #[test]
    fn a_retry_is_the_holders_and_may_be_repeated_until_the_next_claim() {
        check(leased(), "b", &retry(5), DONE, Some(State::Scheduled));
        check(swept(), "b", &retry(5), DONE, Some(State::Scheduled));
        check(leased(), "a", &retry(5), stale(State::Leased), None);
        check(swept(), "a", &retry(5), stale(State::Scheduled), None);
        check(waiting(), "b", &retry(5), DONE, None);
        check(waiting(), "a", &retry(5), stale(State::Scheduled), None);
        check(ended(State::Dead), "b", &retry(5), stale(State::Dead), None);
        check(ended(State::Delivered), "b", &retry(5), stale(State::Delivered), None);
        check(ended(State::Cancelled), "b", &retry(5), DONE, None);
        check(ended(State::Cancelled), "a", &retry(5), stale(State::Cancelled), None);
    }

    #[test]
    fn a_death_is_the_holders_and_may_be_repeated() {
        check(leased(), "b", &dead(), DONE, Some(State::Dead));
        check(swept(), "b", &dead(), DONE, Some(State::Dead));
        check(leased(), "a", &dead(), stale(State::Leased), None);
        check(waiting(), "b", &dead(), stale(State::Scheduled), None);
        check(ended(State::Dead), "b", &dead(), DONE, None);
        check(ended(State::Dead), "a", &dead(), stale(State::Dead), None);
        check(ended(State::Delivered), "b", &dead(), stale(State::Delivered), None);
        check(ended(State::Expired), "b", &dead(), DONE, None);
    }

    #[test]
    fn a_release_is_the_holders() {
        check(leased(), "b", &Transition::Release, DONE, Some(State::Scheduled));
        check(leased(), "a", &Transition::Release, stale(State::Leased), None);
        check(waiting(), "b", &Transition::Release, stale(State::Scheduled), None);
        check(ended(State::Dead), "b", &Transition::Release, stale(State::Dead), None);
        check(ended(State::Delivered), "b", &Transition::Release, stale(State::Delivered), None);
        check(ended(State::Cancelled), "b", &Transition::Release, DONE, None);
    }

    #[test]
    fn a_stranger_moves_nothing() {
        for to in [delivered(), retry(5), dead(), Transition::Release] {
            check(leased(), "x", &to, stale(State::Leased), None);
            check(Pending { due: START, ..leased() }, "x", &to, stale(State::Scheduled), None);
            check(waiting(), "x", &to, stale(State::Scheduled), None);
            for state in [State::Delivered, State::Dead, State::Cancelled, State::Expired] {
                check(ended(state), "x", &to, stale(state), None);
            }
        }
    }

    #[test]
    fn any_end_but_success_fulfils_a_pending_cancel() {
        let cancelling = || Pending { cancelling: true, ..leased() };
        for to in [retry(5), dead(), Transition::Release] {
            check(cancelling(), "b", &to, DONE, Some(State::Cancelled));
        }
        assert_eq!(cancelling().swept(START, START).state(START), State::Cancelled);
    }

    #[test]
    fn a_settle_ends_the_row_of_expiries_and_a_release_takes_its_attempt_back() {
        let becomes =
            |to: Transition| match Record::from(leased()).settle(&receipt("b"), &to, START).becomes
            {
                Some(Record::Pending(pending)) => {
                    (pending.due.since(START).as_millis(), pending.attempts, pending.expiries)
                }
                other => panic!("{other:?}"),
            };
        assert_eq!(becomes(retry(5)), (5, 2, 0));
        assert_eq!(becomes(Transition::Release), (0, 1, 0));
    }

    #[test]
    fn a_crash_loop_ends_at_the_last_expiry() {
        let check = |expiries: u32, state: State| {
            let record = Pending { expiries, ..leased() }.swept(START, START);
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

    #[test]
    fn a_long_outcome_is_cut_between_characters() {
        assert_eq!(cut("200 OK"), "200 OK");
        assert_eq!(cut(&"x".repeat(MAX_OUTCOME + 1)).len(), MAX_OUTCOME);
        assert_eq!(cut(&"单".repeat(MAX_OUTCOME)).len(), MAX_OUTCOME / 3 * 3);
    }
}
