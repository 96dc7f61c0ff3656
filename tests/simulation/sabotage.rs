//! Ways to break the promises on purpose. Each must be detected.

use crate::checker::Violation;

/// What a broken store, or a broken caller, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// An add is answered and then not stored.
    AnswerBeforeCommit,
    /// A claimed task counts as delivered from then on.
    DeleteBeforeCallback,
    /// A settle or an extension is accepted with any receipt.
    ReceiptNotCompared,
    /// A success counts for any revision.
    RevisionIgnored,
    /// A claim also takes tasks that are due within three seconds.
    EarlyFire,
    /// A cancel is answered and forgotten.
    CancelIgnored,
    /// A cancel by key does not look whether the task still has the key.
    NameNotCompared,
    /// A retry is answered, but the task is in no schedule afterwards.
    RetryUnscheduled,
    /// A success is answered, but the task stays leased.
    SuccessForgotten,
    /// Leases end after a tenth of their time.
    LeaseCutShort,
    /// The first lease of a task never ends.
    LeaseNeverSwept,
    /// A refused or failed call is reported as a success.
    FailureCalledSuccess,
    /// Each add makes a task, whatever its idempotency key is.
    IdempotencyIgnored,
    /// Each add makes a task, whatever its key is.
    KeyIgnored,
    /// A leased task whose key goes to a new one is still retried.
    NamesakeGoesOn,
    /// A task that is pushed back by its key keeps its content.
    PushBackKeepsContent,
    /// A task that is pushed back by its key keeps its due moment.
    PushBackKeepsMoment,
    /// Tasks are handed out after they have expired.
    ExpiryIgnored,
    /// No instance learns that a topic is paused.
    PauseUntold,
    /// Tasks that fell due in a pause are handed out, whatever the end of the pause says.
    MisfireIgnored,
    /// The end of a pause applies to tasks before and after the pause as well.
    MisfireTooWide,
    /// No dead-letter callback is made.
    CallForgotten,
    /// The dead-letter callback of a task is made when it is handed out.
    CallBeforeDeath,
    /// The dead-letter callback of a task is made twice.
    CallTwice,
    /// An add is accepted with any number of lanes.
    LanesNotCompared,
    /// An instance that died counts as alive for ever.
    DeathUnnoticed,
    /// An instance that does not own a lane finds nothing in its turn.
    TurnsUnused,
    /// Each claim says that the next one will find something at once.
    BusyLoop,
    /// A plan is accepted whatever revision of the schedule the planner has read.
    RevisionNotCompared,
    /// A plan is accepted whatever cursor of the schedule the planner has read.
    CursorNotCompared,
    /// A plan adds the occurrence, and the cursor is sometimes not written after that.
    CursorAfterAdd,
    /// The `webhook-id` of an occurrence is made of the moment of its plan.
    IdOfThePlan,
    /// Missed moments are passed over, and no occurrence stands for them.
    MissedNotCounted,
    /// A pause of a schedule leaves the occurrence that waits.
    PauseLeavesOccurrence,
}

impl Sabotage {
    /// Each sabotage with its violations. At least one of them must be found.
    pub(crate) const ALL: &[(Self, &[Violation])] = &[
        (Self::AnswerBeforeCommit, &[Violation::Lost]),
        (Self::DeleteBeforeCallback, &[Violation::EndedWithoutReason]),
        (Self::ReceiptNotCompared, &[Violation::LateHolderMoved]),
        (Self::RevisionIgnored, &[Violation::OldRevisionEnded]),
        (Self::EarlyFire, &[Violation::Early]),
        (Self::CancelIgnored, &[Violation::CancelledFired]),
        (Self::NameNotCompared, &[Violation::CancelledAnother]),
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
        (Self::DeathUnnoticed, &[Violation::Late]),
        (Self::TurnsUnused, &[Violation::Late]),
        (Self::BusyLoop, &[Violation::Spinning]),
        (Self::RevisionNotCompared, &[Violation::PlannedFromOld]),
        (Self::CursorNotCompared, &[Violation::OccurrenceTwice]),
        (Self::CursorAfterAdd, &[Violation::OccurrenceTwice]),
        (Self::IdOfThePlan, &[Violation::MomentTwice]),
        (Self::MissedNotCounted, &[Violation::MomentMissing]),
        (Self::PauseLeavesOccurrence, &[Violation::CancelledFired]),
    ];
}

/// Seeds that detect a sabotage that few schedules show. They are played first, only to save time:
/// if the plans have changed and such a seed detects nothing, all seeds are played.
pub(crate) const KNOWN_SEEDS: &[(Sabotage, u64)] = &[
    (Sabotage::ReceiptNotCompared, 102),
    (Sabotage::RevisionIgnored, 477),
    (Sabotage::NameNotCompared, 171),
    (Sabotage::NamesakeGoesOn, 119),
    (Sabotage::TurnsUnused, 81),
    (Sabotage::IdOfThePlan, 36),
];
