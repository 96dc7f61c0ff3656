//! What each settle makes of a task.

use super::{Decision, EndedTask, Pending, StoredState, deadline};
use crate::model::clock::UnixMillis;
use crate::model::task::{Receipt, State};
use crate::store::embedded::receipts::Receipts;
use crate::store::{MOVED, Settled, Transition, kept_outcome};

impl StoredState {
    pub(crate) fn settle(
        &self,
        by: &Receipt,
        to: &Transition,
        now: UnixMillis,
    ) -> Decision<Settled> {
        match self {
            Self::Pending(pending) => pending.settle(by, to, now),
            Self::Ended(ended) => ended.settle(by, to, now),
        }
    }
}

impl Pending {
    fn settle(&self, by: &Receipt, to: &Transition, now: UnixMillis) -> Decision<Settled> {
        let holds = self.receipts.is_current(by);
        let record = match to {
            Transition::Delivered { outcome } if self.receipts.knows(by) => {
                self.end(State::Delivered, Receipts::only(by), kept_outcome(outcome).into(), now)
            }
            Transition::Moved if self.receipts.knows(by) && !self.cancelling => {
                self.end(State::Delivered, Receipts::only(by), MOVED.to_owned(), now)
            }
            Transition::Retry { due, outcome } if holds => self.failed(
                by,
                due.due(now),
                self.attempts,
                self.receipts.retried(),
                kept_outcome(outcome).into(),
                now,
            ),
            Transition::Release if holds && let Some(back) = self.given_back() => {
                StoredState::Pending(Self { expiries: 0, ..back })
            }
            Transition::Release if holds => {
                let unspent = self.attempts.saturating_sub(1);
                self.failed(by, now, unspent, self.receipts.released(), self.outcome.clone(), now)
            }
            Transition::Keep { lease } if holds => {
                StoredState::Pending(self.kept(deadline(*lease, now)))
            }
            Transition::Dead { outcome } if holds && self.cancelling => {
                self.end(State::Cancelled, Receipts::only(by), kept_outcome(outcome).into(), now)
            }
            Transition::Dead { outcome } if holds => {
                self.end(State::Dead, self.receipts.clone(), kept_outcome(outcome).into(), now)
            }
            Transition::Retry { .. } if self.receipts.retried_last(by) => {
                return Decision::unchanged(Settled::Done);
            }
            _ => return Decision::unchanged(Settled::Stale { state: self.state(now) }),
        };
        let answer = match &record {
            StoredState::Ended(ended) if ended.state == State::Cancelled => Settled::Cancelled,
            _ => Settled::Done,
        };
        Decision::becomes(answer, record)
    }

    /// The lease of `by` ended without success: the task waits again, unless a cancel is pending.
    fn failed(
        &self,
        by: &Receipt,
        due: UnixMillis,
        attempts: u32,
        receipts: Receipts,
        outcome: String,
        now: UnixMillis,
    ) -> StoredState {
        if self.cancelling {
            return self.end(State::Cancelled, Receipts::only(by), outcome, now);
        }
        StoredState::Pending(Self {
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
}

impl EndedTask {
    fn settle(&self, by: &Receipt, to: &Transition, now: UnixMillis) -> Decision<Settled> {
        let is_final_receipt = self.receipts.is_current(by);
        let moved = Transition::Delivered { outcome: MOVED.to_owned() };
        let to = if *to == Transition::Moved { &moved } else { to };
        let is_repeat = match (self.state, to) {
            (State::Dead, Transition::Delivered { outcome }) if self.receipts.knows(by) => {
                let delivered = Self {
                    state: State::Delivered,
                    finished: now,
                    receipts: Receipts::only(by),
                    outcome: kept_outcome(outcome).into(),
                    ..*self
                };
                return Decision::becomes(Settled::Done, StoredState::Ended(delivered));
            }
            (State::Dead, Transition::Dead { .. })
            | (State::Delivered, Transition::Delivered { .. }) => is_final_receipt,
            (State::Cancelled | State::Expired, to) => {
                is_final_receipt
                    && !matches!(to, Transition::Delivered { .. } | Transition::Keep { .. })
            }
            _ => false,
        };
        Decision::unchanged(if is_repeat {
            Settled::Done
        } else {
            Settled::Stale { state: self.state }
        })
    }
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

    fn ended(state: State) -> StoredState {
        leased().end(state, leased().receipts, String::new(), START)
    }

    const DONE: Settled = Settled::Done;

    fn stale(state: State) -> Settled {
        Settled::Stale { state }
    }

    /// Settles `before` by `by`. Checks the answer and the new state (`None`: unchanged).
    fn check(
        before: impl Into<StoredState>,
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

    impl From<Pending> for StoredState {
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
            check(cancelling(), "b", &to, Settled::Cancelled, Some(State::Cancelled));
        }
        assert_eq!(cancelling().swept(START, START).state(START), State::Cancelled);
    }

    #[test]
    fn a_settle_ends_the_row_of_expiries_and_a_release_takes_its_attempt_back() {
        let becomes = |to: Transition| match StoredState::from(leased())
            .settle(&receipt("b"), &to, START)
            .becomes
        {
            Some(StoredState::Pending(pending)) => {
                (pending.due.since(START).as_millis(), pending.attempts, pending.expiries)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(becomes(retry(5)), (5, 2, 0));
        assert_eq!(becomes(Transition::Release), (0, 1, 0));
    }
}
