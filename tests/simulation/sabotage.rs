//! Ways to break the promises on purpose, one at a time: each must be found out.

use crate::checker::Violation;

/// What a broken store, or a broken caller, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// An add is answered and then not stored.
    AnswerBeforeCommit,
    /// A claimed task counts as delivered from then on.
    DeleteBeforeCallback,
    /// Whoever settles or extends is taken for the holder.
    ReceiptNotCompared,
    /// A success counts for whatever revision there is.
    RevisionIgnored,
    /// A claim takes what is due within three seconds, too.
    EarlyFire,
    /// A cancel is answered and forgotten.
    CancelIgnored,
    /// A retry is answered, but the task is on no schedule afterwards.
    RetryUnscheduled,
    /// A success is answered, but the task stays leased.
    SuccessForgotten,
    /// Leases end after a tenth of their time.
    LeaseCutShort,
    /// The first lease of a task never ends.
    LeaseNeverSwept,
    /// A refused or failed call is reported as a success.
    FailureCalledSuccess,
    /// Each add makes a task, whatever its idempotency key.
    IdempotencyIgnored,
    /// Each add makes a task, whatever its key.
    KeyIgnored,
    /// A leased task whose key goes to a new one is retried all the same.
    NamesakeGoesOn,
    /// A task that is pushed back by its key keeps its content.
    PushBackKeepsContent,
    /// A task that is pushed back by its key falls due when it would have.
    PushBackKeepsMoment,
    /// Tasks are handed out however late.
    ExpiryIgnored,
    /// Nobody is told that a topic is paused.
    PauseUntold,
    /// What fell due in a pause is handed out, whatever its end says.
    MisfireIgnored,
    /// The end of a pause is taken for that of all time before and after it.
    MisfireTooWide,
    /// Nobody is called for the dead.
    CallForgotten,
    /// A task is called for when it is handed out, as if it were dead.
    CallBeforeDeath,
    /// A task is called for twice.
    CallTwice,
    /// An add is taken by whatever number of lanes it says that its topic has.
    LanesNotCompared,
    /// Each claim says that there will be something for the next one at once.
    BusyLoop,
}

impl Sabotage {
    /// Each, with the violations of which at least one must be found.
    pub(crate) const ALL: &[(Self, &[Violation])] = &[
        (Self::AnswerBeforeCommit, &[Violation::Lost]),
        (Self::DeleteBeforeCallback, &[Violation::EndedWithoutReason]),
        (Self::ReceiptNotCompared, &[Violation::LateHolderMoved]),
        (Self::RevisionIgnored, &[Violation::OldRevisionEnded]),
        (Self::EarlyFire, &[Violation::Early]),
        (Self::CancelIgnored, &[Violation::CancelledFired]),
        (Self::RetryUnscheduled, &[Violation::Stalled]),
        (Self::SuccessForgotten, &[Violation::DuplicateWithoutCause]),
        (Self::LeaseCutShort, &[Violation::TwoHolders]),
        (Self::LeaseNeverSwept, &[Violation::Stalled]),
        (Self::FailureCalledSuccess, &[Violation::EndedWithoutReason]),
        (Self::IdempotencyIgnored, &[Violation::AddedTwice]),
        (Self::KeyIgnored, &[Violation::TwoOfAKey]),
        (Self::NamesakeGoesOn, &[Violation::CancelledFired]),
        (Self::PushBackKeepsContent, &[Violation::WrongContent]),
        (Self::PushBackKeepsMoment, &[Violation::Early]),
        (Self::ExpiryIgnored, &[Violation::ExpiredFired]),
        (Self::PauseUntold, &[Violation::PausedFired]),
        (Self::MisfireIgnored, &[Violation::MisfireFired]),
        (Self::MisfireTooWide, &[Violation::EndedWithoutReason]),
        (Self::CallForgotten, &[Violation::DeathUntold]),
        (Self::CallBeforeDeath, &[Violation::CallWithoutDeath]),
        (Self::CallTwice, &[Violation::CallWithoutDeath]),
        (Self::LanesNotCompared, &[Violation::Lost]),
        (Self::BusyLoop, &[Violation::Spinning]),
    ];
}
