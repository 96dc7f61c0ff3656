//! What a lane does next: a pure state machine.
//!
//! ```text
//!            granted             nothing is left
//! Claiming ─────────▶ Waiting ─────────────────▶ the lane's task ends
//!  ▲    ▲                │
//!  │    └────────────────┘  due, nudged, idle, a permit is free
//!  │
//!  ├─▶ Blocked        another instance has the lane's lock
//!  ├─▶ ServerAway     the lane's server does not answer settles
//!  └─▶ BackingOff     the claim failed
//! ```
//!
//! Each event leads to one state and one action, so nothing here depends on time. `Stopped` ends
//! every state.

use std::time::Duration;

/// The wait after a failed claim, doubling up to the longest.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);
/// The wait while another instance claims.
const SHORTEST_REFUSAL: Duration = Duration::from_millis(1);
const LONGEST_REFUSAL: Duration = Duration::from_millis(100);

/// The state of a lane. `backoff` is the wait after the next failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneState {
    /// It asks the store for tasks.
    Claiming { backoff: Duration },
    /// Nothing is due, or there are no permits for what is due.
    Waiting {
        /// Whether the store may keep the lane's lock for this instance, so that no other can
        /// claim.
        keeps_lock: bool,
    },
    /// Another instance claims the lane's tasks.
    Blocked { backoff: Duration },
    /// Settles wait until the lane's server answers them.
    ServerAway { backoff: Duration },
    /// The last claim failed.
    BackingOff { backoff: Duration },
}

/// What came of the last action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The store has answered the claim, with tasks or without.
    Granted(Granted),
    /// Another instance has the lane's lock. `retry_in` is the rest of it.
    Refused { retry_in: Duration },
    /// Nothing was claimed, because this server does not answer settles.
    ServerAway { server: u64 },
    /// The claim failed.
    Failed,
    /// There is a permit for something that is due.
    PermitFree,
    /// There is none. After `retry_in`, time alone may have freed one.
    NoPermit { retry_in: Option<Duration> },
    /// The sleep has ended, and why.
    Woken(WokenBy),
    /// The lane is not open for this instance, and nothing is due that it can call.
    LeftToOthers,
    /// The rest, or the wait for the server, is over.
    Rested,
    /// The instance stops, or the topic is paused.
    Stopped,
}

/// What the store's answer to a claim showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Granted {
    /// The list of due destinations has another page.
    ToBeContinued,
    /// Nothing is due, and the lane is not open for this instance; or nothing is coming soon, and
    /// there was no work for `worker.idle_stop`.
    Idle,
    /// Something is due, or may come.
    Seen { keeps_lock: bool },
}

/// Why a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WokenBy {
    /// Something is due, the supervisor knows of earlier work, or the lane is idle.
    Claim,
    /// A permit may be free: it is the lane's turn in a wait queue, or time may have freed one.
    Permit,
}

/// What the lane does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Claim what is due and has permits.
    Claim,
    /// Let calls whose responses have arrived end first, so that the claim is larger. Then claim.
    YieldAndClaim,
    /// Ask the store without claiming anything, which gives the lane's lock back.
    GiveLockBack,
    /// Check whether there is a permit for something that is due. If not, queue for one.
    CheckPermits,
    /// Sleep until something is due, or a permit may be free; at most for `retry_in`.
    Sleep { retry_in: Option<Duration> },
    /// Do nothing for this time.
    Rest(Duration),
    /// Wait until the server answers settles again.
    AwaitServer(u64),
    /// End the lane's task.
    End,
}

impl LaneState {
    /// The first state and action of a lane.
    pub(super) fn start() -> (Self, Action) {
        (Self::claiming(), Action::Claim)
    }

    fn claiming() -> Self {
        Self::Claiming { backoff: FIRST_BACKOFF }
    }

    /// The next state and action after an event.
    pub(super) fn step(self, event: Event) -> (Self, Action) {
        match (self, event) {
            (_, Event::Stopped) => (self, Action::End),
            (Self::Waiting { keeps_lock: false }, Event::LeftToOthers) => (self, Action::End),
            (Self::Claiming { .. }, Event::Granted(granted)) => match granted {
                Granted::ToBeContinued => (Self::claiming(), Action::Claim),
                Granted::Idle => (Self::claiming(), Action::End),
                Granted::Seen { keeps_lock } => {
                    (Self::Waiting { keeps_lock }, Action::CheckPermits)
                }
            },
            (Self::Claiming { backoff }, Event::Refused { retry_in }) => {
                // The other instance gives the lock back before it expires, unless it died.
                (
                    Self::Blocked { backoff },
                    Action::Rest(retry_in.clamp(SHORTEST_REFUSAL, LONGEST_REFUSAL)),
                )
            }
            (Self::Claiming { backoff }, Event::ServerAway { server }) => {
                (Self::ServerAway { backoff }, Action::AwaitServer(server))
            }
            (Self::Claiming { backoff }, Event::Failed) => (
                Self::BackingOff { backoff: (backoff * 2).min(LONGEST_BACKOFF) },
                Action::Rest(backoff),
            ),
            (
                Self::Blocked { backoff }
                | Self::ServerAway { backoff }
                | Self::BackingOff { backoff },
                Event::Rested,
            ) => (Self::Claiming { backoff }, Action::Claim),
            (Self::Waiting { .. }, Event::PermitFree | Event::Woken(WokenBy::Claim)) => {
                (Self::claiming(), Action::YieldAndClaim)
            }
            // Another instance may have permits for what is due.
            (Self::Waiting { keeps_lock: true }, Event::NoPermit { .. }) => {
                (Self::claiming(), Action::GiveLockBack)
            }
            (Self::Waiting { keeps_lock: false }, Event::NoPermit { retry_in }) => {
                (self, Action::Sleep { retry_in })
            }
            (Self::Waiting { .. }, Event::Woken(WokenBy::Permit)) => (self, Action::CheckPermits),
            (state, event) => unreachable!("no action of {state:?} leads to {event:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn claiming(backoff: u32) -> LaneState {
        LaneState::Claiming { backoff: backoff * MS }
    }

    #[test]
    fn each_event_has_one_next_state_and_one_action() {
        let check = |state: LaneState, event: Event, next: LaneState, action: Action| {
            assert_eq!(state.step(event), (next, action), "{state:?} {event:?}");
        };
        let (open, locked) =
            (LaneState::Waiting { keeps_lock: false }, LaneState::Waiting { keeps_lock: true });
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
        check(open, Event::Woken(WokenBy::Permit), open, Action::CheckPermits);
        check(open, Event::Woken(WokenBy::Claim), claiming(50), Action::YieldAndClaim);
        check(open, Event::LeftToOthers, open, Action::End);
        check(locked, free, claiming(50), Action::YieldAndClaim);
        check(locked, none, claiming(50), Action::GiveLockBack);

        let blocked = |backoff: u32| LaneState::Blocked { backoff: backoff * MS };
        let refused = |ms: u32| Event::Refused { retry_in: ms * MS };
        check(claiming(50), refused(0), blocked(50), Action::Rest(MS));
        check(claiming(50), refused(30), blocked(50), Action::Rest(30 * MS));
        check(claiming(400), refused(2_000), blocked(400), Action::Rest(100 * MS));
        check(blocked(400), Event::Rested, claiming(400), Action::Claim);

        let away = LaneState::ServerAway { backoff: 400 * MS };
        check(claiming(400), Event::ServerAway { server: 3 }, away, Action::AwaitServer(3));
        check(away, Event::Rested, claiming(400), Action::Claim);

        let backing_off = LaneState::BackingOff { backoff: MS };
        for state in [claiming(50), open, locked, blocked(50), away, backing_off] {
            check(state, Event::Stopped, state, Action::End);
        }
    }

    #[test]
    fn the_backoff_doubles_until_a_claim_is_answered() {
        let mut state = claiming(50);
        for wait in [50, 100, 200, 400, 800, 1_000, 1_000] {
            let (failed, action) = state.step(Event::Failed);
            assert_eq!(action, Action::Rest(wait * MS));
            assert!(matches!(failed, LaneState::BackingOff { .. }));
            let (blocked, _) = failed.step(Event::Rested).0.step(Event::Refused { retry_in: MS });
            state = blocked.step(Event::Rested).0;
        }
        let (state, _) = state.step(Event::Granted(Granted::ToBeContinued));
        assert_eq!(state.step(Event::Failed).1, Action::Rest(50 * MS));
    }
}
