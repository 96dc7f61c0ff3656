//! What a lane does next: a pure state machine.
//!
//! ```text
//!               granted                  nothing left: ends
//! ┌─ Claiming ───────────▶ Waiting ─────────────────────────▶
//! │   ▲ ▲  │ ▲                │
//! │   │ │  │ └────────────────┘  due, nudged, idle, a permit is free
//! │   │ │  └ refused ─▶ Blocked ──┐  another instance claims
//! │   │ └─────────────────────────┘
//! │   └──────────────────────────┐
//! └── failed ─▶ BackingOff ──────┘   the store is in trouble
//! ```
//!
//! Every event answers one action, so that nothing here depends on time. Stopping ends every state.

use std::time::Duration;

/// The wait after the store failed, doubling up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// The wait while another instance claims.
const SHORTEST_REFUSAL: Duration = Duration::from_millis(1);
const LONGEST_REFUSAL: Duration = Duration::from_millis(100);

/// Where a lane stands. `backoff` is the wait after the next failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It asks the store for tasks.
    Claiming { backoff: Duration },
    /// It has nothing that it could call: nothing is due, or no permit is free for what is due.
    /// `keeps_lock`: the store may keep the lane's lock for it, so that no other instance can
    /// claim.
    Waiting { keeps_lock: bool },
    /// Another instance claims the lane just now.
    Blocked { backoff: Duration },
    /// The store failed.
    BackingOff { backoff: Duration },
}

/// What has come of the last action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The claim was answered, with tasks or without.
    Granted(Granted),
    /// Another instance has the lane's lock for so long at most.
    Refused { retry_in: Duration },
    /// The store did not answer the claim.
    Failed,
    /// There is a permit for something that is due.
    PermitFree,
    /// There is none; after the wait, time alone may have freed one.
    NoPermit { retry_in: Option<Duration> },
    /// The sleep has ended, and why.
    Woken(Wake),
    /// The rest is over.
    Rested,
    /// The instance stops, or the topic is paused.
    Stopped,
}

/// What an answered claim leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    /// There is more to see than one answer shows.
    ToBeContinued,
    /// Nothing is due or coming, and has not been for long enough.
    Idle,
    /// Something may come, or is due.
    Seen { keeps_lock: bool },
}

/// Why a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// Something is due, the supervisor knows of something earlier, or nothing has come for long.
    Claim,
    /// A permit may be free: it is the lane's turn in a wait queue, or time may have freed one.
    Permit,
}

/// What the lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Claim what is due and has permits.
    Claim,
    /// Let calls whose answers are there end first, so that the claim is larger. Then claim.
    YieldAndClaim,
    /// Ask the store without claiming anything, which gives the lane's lock back.
    GiveLockBack,
    /// Look whether there is a permit for something that is due; if not, wait for one.
    CheckPermits,
    /// Sleep until something is due, or a permit may be free; after so long one is.
    Sleep { retry_in: Option<Duration> },
    /// Do nothing for so long.
    Rest(Duration),
    /// Work the lane no longer.
    End,
}

impl State {
    /// Where a lane begins.
    pub(super) fn start() -> (Self, Action) {
        (Self::claiming(), Action::Claim)
    }

    fn claiming() -> Self {
        Self::Claiming { backoff: FIRST_BACKOFF }
    }

    /// What follows an event.
    pub(super) fn step(self, event: Event) -> (Self, Action) {
        match (self, event) {
            (_, Event::Stopped) => (self, Action::End),
            (Self::Claiming { .. }, Event::Granted(granted)) => match granted {
                Granted::ToBeContinued => (Self::claiming(), Action::Claim),
                Granted::Idle => (Self::claiming(), Action::End),
                Granted::Seen { keeps_lock } => {
                    (Self::Waiting { keeps_lock }, Action::CheckPermits)
                }
            },
            (Self::Claiming { backoff }, Event::Refused { retry_in }) => {
                // Its holder gives the lock back earlier than it must, unless it died.
                (
                    Self::Blocked { backoff },
                    Action::Rest(retry_in.clamp(SHORTEST_REFUSAL, LONGEST_REFUSAL)),
                )
            }
            (Self::Claiming { backoff }, Event::Failed) => (
                Self::BackingOff { backoff: (backoff * 2).min(LONGEST_BACKOFF) },
                Action::Rest(backoff),
            ),
            (Self::Blocked { backoff } | Self::BackingOff { backoff }, Event::Rested) => {
                (Self::Claiming { backoff }, Action::Claim)
            }
            (Self::Waiting { .. }, Event::PermitFree | Event::Woken(Wake::Claim)) => {
                (Self::claiming(), Action::YieldAndClaim)
            }
            // What is due is blocked here. Another instance may have permits for it.
            (Self::Waiting { keeps_lock: true }, Event::NoPermit { .. }) => {
                (Self::claiming(), Action::GiveLockBack)
            }
            (Self::Waiting { keeps_lock: false }, Event::NoPermit { retry_in }) => {
                (self, Action::Sleep { retry_in })
            }
            (Self::Waiting { .. }, Event::Woken(Wake::Permit)) => (self, Action::CheckPermits),
            (state, event) => unreachable!("{state:?} does nothing of which {event:?} could come"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn claiming(backoff: u32) -> State {
        State::Claiming { backoff: backoff * MS }
    }

    #[test]
    fn each_event_has_one_next_state_and_one_action() {
        let check = |state: State, event: Event, next: State, action: Action| {
            assert_eq!(state.step(event), (next, action), "{state:?} {event:?}");
        };
        let (open, locked) =
            (State::Waiting { keeps_lock: false }, State::Waiting { keeps_lock: true });
        let (free, none) = (Event::PermitFree, Event::NoPermit { retry_in: Some(7 * MS) });

        check(claiming(50), Event::Granted(Granted::ToBeContinued), claiming(50), Action::Claim);
        check(claiming(50), Event::Granted(Granted::Idle), claiming(50), Action::End);
        check(
            claiming(50),
            Event::Granted(Granted::Seen { keeps_lock: false }),
            open,
            Action::CheckPermits,
        );
        check(
            claiming(50),
            Event::Granted(Granted::Seen { keeps_lock: true }),
            locked,
            Action::CheckPermits,
        );

        check(open, free, claiming(50), Action::YieldAndClaim);
        check(open, none, open, Action::Sleep { retry_in: Some(7 * MS) });
        check(open, Event::NoPermit { retry_in: None }, open, Action::Sleep { retry_in: None });
        check(open, Event::Woken(Wake::Permit), open, Action::CheckPermits);
        check(open, Event::Woken(Wake::Claim), claiming(50), Action::YieldAndClaim);
        check(locked, free, claiming(50), Action::YieldAndClaim);
        check(locked, none, claiming(50), Action::GiveLockBack);

        let blocked = |backoff: u32| State::Blocked { backoff: backoff * MS };
        let refused = |ms: u32| Event::Refused { retry_in: ms * MS };
        check(claiming(50), refused(0), blocked(50), Action::Rest(MS));
        check(claiming(50), refused(30), blocked(50), Action::Rest(30 * MS));
        check(claiming(400), refused(2_000), blocked(400), Action::Rest(100 * MS));
        check(blocked(400), Event::Rested, claiming(400), Action::Claim);

        for state in [claiming(50), open, locked, blocked(50), State::BackingOff { backoff: MS }] {
            check(state, Event::Stopped, state, Action::End);
        }
    }

    #[test]
    fn the_backoff_doubles_until_a_claim_is_answered() {
        let mut state = claiming(50);
        for wait in [50, 100, 200, 400, 800, 1_000, 1_000] {
            let (failed, action) = state.step(Event::Failed);
            assert_eq!(action, Action::Rest(wait * MS));
            assert!(matches!(failed, State::BackingOff { .. }));
            let (blocked, _) = failed.step(Event::Rested).0.step(Event::Refused { retry_in: MS });
            state = blocked.step(Event::Rested).0;
        }
        let (state, _) = state.step(Event::Granted(Granted::ToBeContinued));
        assert_eq!(state.step(Event::Failed).1, Action::Rest(50 * MS));
    }
}
