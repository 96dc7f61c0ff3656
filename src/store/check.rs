//! The findings of a check (`delayd fsck`).
//!
//! A store keeps each task in several structures, and each method moves a task through all of them
//! in one step. A [`Flaw`] is a state that such steps never leave behind. It is the mark of a
//! failover that lost writes, a restored backup, a manual change, or a defect. Each flaw has one
//! remedy, which loses no accepted task and calls no task again that is known to have ended.
//!
//! # Invariants
//!
//! - A task is judged over all structures in one atomic step, so a concurrent claim cannot look
//!   like a flaw.
//! - A check without repair writes nothing.
//! - A repeated repair finds only flaws that have no remedy.

use std::any::Any;

use super::{Error, Result};
use crate::model::task::Lane;

/// Where a check continues. [`CheckCursor::start`] makes the first one, and each [`CheckStep`]
/// brings the next.
#[derive(Debug)]
pub struct CheckCursor(Option<Box<dyn Any + Send + Sync>>);

impl CheckCursor {
    /// The beginning of a check.
    pub fn start() -> Self {
        Self(None)
    }

    /// A cursor at a place, whose type is private to the store.
    pub(super) fn at(place: impl Any + Send + Sync) -> Self {
        Self(Some(Box::new(place)))
    }

    /// The place where the store left off, `None` at the beginning.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if another kind of store made the cursor.
    pub(super) fn into_place<P: Any>(self) -> Result<Option<P>> {
        let foreign = |_| Error::Corrupt("a check goes on with another store's cursor".into());
        self.0.map(|place| place.downcast().map(|place| *place).map_err(foreign)).transpose()
    }
}

/// One step of a check.
#[derive(Debug, Default)]
pub struct CheckStep {
    /// The flaws found in this step.
    pub findings: Vec<Finding>,
    /// How many tasks this step checked.
    pub tasks: u64,
    /// How many lanes this step finished.
    pub lanes: u64,
    /// Where to continue. `None` if the check is complete.
    pub next: Option<CheckCursor>,
}

/// One flaw that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The flaw.
    pub flaw: Flaw,
    /// The lane, if it is in one.
    pub lane: Option<Lane>,
    /// A task's id, the name of a destination, topic or key, or a message of the store. It may hold
    /// any text: do not trust it.
    pub subject: String,
    /// Whether it was repaired.
    pub repaired: bool,
}

macro_rules! flaws {
    ($($(#[doc = $doc:literal])+ $flaw:ident $name:literal => $remedy:expr;)+) => {
        /// A flaw in what is stored. The comment of each is its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw {
            $($(#[doc = $doc])+ $flaw,)+
        }

        impl Flaw {
            /// Every flaw, the worst first.
            pub const ALL: &[Self] = &[$(Self::$flaw),+];

            /// Its name, in words joined by hyphens.
            pub fn name(self) -> &'static str {
                match self { $(Self::$flaw => $name),+ }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$flaw => concat!($($doc),+).trim_ascii()),+ }
            }

            /// What a repair does, in a sentence. `None` if it does nothing.
            pub fn remedy(self) -> Option<&'static str> {
                match self { $(Self::$flaw => $remedy),+ }
            }
        }
    };
}

flaws! {
    /// A task has content, but is not scheduled, leased or listed: it would never be
    /// called.
    BodyWithoutPlace "body-without-place" =>
        Some("The task is scheduled for its due time or for now, whichever is later.");
    /// The earliest due moment of a destination is missing or wrong: its tasks would be seen late
    /// or never.
    EarliestWrong "earliest-wrong" => Some("The moment is taken from the schedule.");
    /// A topic is not registered, but its lanes hold tasks: no worker claims them.
    UnregisteredTopic "unregistered-topic" =>
        Some("The topic is registered, with the number of lanes that its lanes remember.");
    /// A lane lies beyond its topic's number of lanes: no worker claims its tasks.
    LaneOutsideTopic "lane-outside-topic" => Some(
        "The topic's number of lanes is raised; running instances learn of it within a \
         second.",
    );
    /// The registry's entry of a topic cannot be read: no worker claims its tasks.
    UnreadableTopic "unreadable-topic" =>
        Some("The entry is rewritten, with the number of lanes that the lanes remember.");
    /// The pauses of a topic cannot be read: the topic counts as paused.
    UnreadablePause "unreadable-pause" => None;
    /// A task is scheduled and leased at the same time: two workers would get it.
    ScheduledAndLeased "scheduled-and-leased" => Some(
        "If the lease has a receipt, the task is taken off the schedule; otherwise the lease is \
         ended.",
    );
    /// A task is marked as ended, but scheduled or leased: it would be called again.
    EndedYetLive "ended-yet-live" => Some(
        "The task is taken off the schedule and its lease is ended: a task that has ended is \
         not called again.",
    );
    /// A leased task has no receipt: it cannot be settled.
    LeasedWithoutReceipt "leased-without-receipt" => Some(
        "The task is scheduled for the end of its lease, because a worker may be calling it \
         until then.",
    );
    /// A schedule holds a task of another destination.
    WrongSchedule "wrong-schedule" => Some(
        "The task is moved to the schedule of its destination, or removed if it stands \
         elsewhere too.",
    );
    /// A task is scheduled for another moment than the one that it waits for.
    DueDiffers "due-differs" => Some("The task is scheduled for the moment that it waits for.");
    /// A schedule names a task without content: there is nothing to deliver.
    ScheduledWithoutBody "scheduled-without-body" => Some("The task is taken off the schedule.");
    /// A lease names a task without content.
    LeasedWithoutBody "leased-without-body" => Some("The lease is removed.");
    /// Attempts and receipts belong to a task without content.
    EntryWithoutBody "entry-without-body" => Some("They are removed.");
    /// A task is listed as ended, but has no content.
    EndedWithoutBody "ended-without-body" => Some("The task is taken off the list.");
    /// A task is listed as ended, but not marked as ended.
    EndedUnmarked "ended-unmarked" => Some("The task is marked as ended.");
    /// A task is marked as ended, but missing from the list of that end.
    EndedUnlisted "ended-unlisted" => Some("The task is listed, as ended now.");
    /// A task is in the lists of two ends.
    EndedTwice "ended-twice" => Some("The task stays in the list that its mark names.");
    /// A task is marked as waiting or leased, but listed as ended.
    LiveYetListed "live-yet-listed" => Some("The task is taken off the list.");
    /// A cancel is pending on a task that is not leased.
    CancelWithoutLease "cancel-without-lease" => Some("The task is cancelled.");
    /// The parts of a task name different destinations.
    DestinationsDiffer "destinations-differ" =>
        Some("The destination that is stored with the content counts.");
    /// The parts of a task name different lanes.
    LanesDiffer "lanes-differ" => Some("The lane that is stored with the content counts.");
    /// A moment is not a whole number of milliseconds between 0 and 2^53.
    BadMoment "bad-moment" => Some(
        "A task waits for its first due moment or for now; a lease has expired; an end was \
         now.",
    );
    /// The record of a task cannot be read: there is nothing that could be delivered.
    UnreadableBody "unreadable-body" => Some("The task is dead; its bytes stay as they are.");
    /// The record of a task was written by another version of delayd.
    ForeignBody "foreign-body" => None;
    /// Attempts and receipts of a task cannot be read; they may stop the whole lane.
    UnreadableEntry "unreadable-entry" =>
        Some("They are rewritten from where the task stands; in Redis, their bytes are set aside.");
    /// A structure of tasks holds a name that is not a task's id; it may stop the whole lane.
    NotAnId "not-an-id" => Some("The item is set aside with its bytes.");
    /// The list of ends of idempotency windows lacks a key or has a wrong one: a key would never be
    /// forgotten.
    WindowWrong "window-wrong" => Some("The list is corrected.");
    /// A destination without waiting tasks is listed as having some.
    ListedWithoutSchedule "listed-without-schedule" =>
        Some("The destination is taken off the list.");
    /// The list of called destinations has the pulled schedule, or lacks a called one.
    CalledWrong "called-wrong" => Some("The list is corrected.");
    /// A destination's name is not valid; it may stop the whole lane.
    UnreadableDestination "unreadable-destination" => Some("The destination is no longer called.");
    /// A lane remembers another number of lanes than its topic has, or none.
    ShardsDiffer "shards-differ" => Some("The lane gets the topic's number.");
    /// The counter of ids is lower than a task's id: ids could be allocated twice.
    BehindIds "counter-behind" => Some("The counter is raised, unless such an id was never drawn.");
    /// The counter of ids cannot be read: nothing can be added.
    UnreadableCounter "unreadable-counter" =>
        Some("The counter is set anew, past all ids that exist.");
    /// The counts of a lane differ from its tasks: its statistics are wrong, and its quota admits
    /// too many or too few.
    CountsWrong "counts-wrong" => Some("The tasks are counted again.");
    /// A topic counts among those of a token that has not created it: the token may create too few.
    CreatorWrong "creator-wrong" => Some("The topic does not count any more.");
    /// A waiting task would not expire when it should, or something expires that does not wait.
    ExpiryWrong "expiry-wrong" => Some("The list of expiries is corrected.");
    /// A key names a task that does not exist, or that has another key.
    KeyWithoutTask "key-without-task" => Some("The key is free again.");
    /// The answer of an idempotency key cannot be read: the key counts as unused.
    UnreadableKey "unreadable-key" => Some("The key is forgotten.");
    /// Notes of attempts belong to a task without content.
    NoteWithoutBody "note-without-body" => Some("They are removed.");
    /// A recurring schedule is not paused, but no planner looks at it: it never fires.
    ScheduleWithoutPlan "schedule-without-plan" => Some("A planner looks at it now.");
    /// A planner looks at a recurring schedule that is paused or does not exist.
    PlanWithoutSchedule "plan-without-schedule" => Some("No planner looks at it any more.");
    /// A topic has recurring schedules, but is not marked as having some: none of them fires.
    SchedulesUnmarked "schedules-unmarked" =>
        Some("The topic is marked; running instances learn of it within a second.");
    /// The record of a recurring schedule cannot be read by this version: it does not fire.
    UnreadableSchedule "unreadable-schedule" => None;
    /// A recurring schedule is in another lane than its name leads to: it does not fire, and calls
    /// do not find it.
    ScheduleMisplaced "schedule-misplaced" => None;
    /// The policy of a topic cannot be read: the topic follows the configuration.
    UnreadablePolicy "unreadable-policy" => None;
    /// A task is in another lane than its id leads to: it is called, but get, cancel and ack do not
    /// find it.
    Misplaced "misplaced" => None;
    /// A row names a lane or a destination that does not exist.
    ForeignRow "foreign-row" => None;
    /// A key looks like a lane's, but names no lane.
    StrayKey "stray-key" => None;
    /// The database file is damaged.
    Damaged "damaged-file" => None;
}

impl Flaw {
    /// Reads a [`Flaw::name`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no such flaw.
    pub(super) fn from_name(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().copied().find(|flaw| flaw.name() == name);
        found.ok_or_else(|| Error::Corrupt(format!("a check found {name:?}, which is no flaw")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flaw_has_a_name_and_sentences_of_its_own() {
        for flaw in Flaw::ALL {
            assert_eq!(Flaw::from_name(flaw.name()).unwrap(), *flaw);
            assert!(
                flaw.meaning().ends_with('.')
                    && flaw.remedy().is_none_or(|text| text.ends_with('.')),
                "{flaw:?}"
            );
        }
    }
}
