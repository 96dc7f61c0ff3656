//! What `check` finds: the nouns of `delayd fsck`.
//!
//! A store keeps each task in several structures, and each of its verbs moves a task through all of
//! them in one step. What such steps can never leave behind is a [`Flaw`]: the mark of a failover
//! that lost writes, of a restored backup, of a hand in the data, or of a defect. Each flaw has one
//! remedy, chosen so that nothing accepted is lost, and nothing that is known to have ended is
//! called again.
//!
//! # Invariants
//!
//! - A task is judged over all structures in one atomic step: a claim between two looks cannot look
//!   like a flaw.
//! - A check without repair writes nothing.
//! - A repair that is repeated finds nothing more, but for what is left alone.

use std::any::Any;

use super::{Error, Result};
use crate::model::task::Lane;

/// Where a check continues. [`Cursor::start`] makes the first one, and each [`Checked`] brings the
/// next.
#[derive(Debug)]
pub struct Cursor(Option<Box<dyn Any + Send + Sync>>);

impl Cursor {
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
pub struct Checked {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Tasks looked at in this step.
    pub tasks: u64,
    /// Lanes whose last page this was.
    pub lanes: u64,
    /// Where to go on; `None`: the check is over.
    pub next: Option<Cursor>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub flaw: Flaw,
    /// Where, if in a lane.
    pub lane: Option<Lane>,
    /// Which: a task's id, the name of a destination, a topic or a key, or what the store says. Not
    /// to be trusted: it may hold anything.
    pub subject: String,
    /// It has been put right.
    pub repaired: bool,
}

macro_rules! flaws {
    ($($(#[doc = $doc:literal])+ $flaw:ident $name:literal => $remedy:expr;)+) => {
        /// What can be wrong; the comment of each says what it means.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Flaw {
            $($(#[doc = $doc])+ $flaw,)+
        }

        impl Flaw {
            /// Every flaw; the gravest first.
            pub const ALL: &[Self] = &[$(Self::$flaw),+];

            /// Its name, in words joined by hyphens.
            pub fn name(self) -> &'static str {
                match self { $(Self::$flaw => $name),+ }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$flaw => concat!($($doc),+).trim_ascii()),+ }
            }

            /// What a repair does, in a sentence; `None`: it is left alone.
            pub fn remedy(self) -> Option<&'static str> {
                match self { $(Self::$flaw => $remedy),+ }
            }
        }
    };
}

flaws! {
    /// The body of a task that stands nowhere: it would never be called.
    BodyWithoutPlace "body-without-place" => Some("It is put on its schedule, for its due moment or for now, whichever is later.");
    /// A destination's earliest due moment is missing or wrong: its tasks would be seen late, or
    /// never.
    EarliestWrong "earliest-wrong" => Some("The moment is taken from the schedule.");
    /// A topic that nobody registered, though its lanes hold tasks: nobody works them.
    UnregisteredTopic "unregistered-topic" => Some("The topic is registered, with as many lanes as they remember.");
    /// A lane beyond its topic's number of lanes: nobody works it.
    LaneOutsideTopic "lane-outside-topic" => Some("The topic's number of lanes is raised; running instances learn of it within a second.");
    /// A topic whose entry in the registry cannot be read: nobody works its lanes.
    UnreadableTopic "unreadable-topic" => Some("The entry is written anew, with as many lanes as the lanes remember.");
    /// The pauses of a topic cannot be read: it counts as paused.
    UnreadablePause "unreadable-pause" => None;
    /// A task that is on its schedule and leased at a time: two would be given it.
    ScheduledAndLeased "scheduled-and-leased" => Some("It is taken off the schedule if somebody holds it, else its lease is ended.");
    /// A task that has ended, by its own mark, and is yet scheduled or leased: it would be called
    /// again.
    EndedYetLive "ended-yet-live" => Some("It is taken off the schedule and off its lease: what has ended is not called again.");
    /// A leased task without a receipt: nobody can settle it.
    LeasedWithoutReceipt "leased-without-receipt" => Some("It is scheduled for the end of its lease, since somebody may be calling it until then.");
    /// A schedule holds a task that is not its own.
    WrongSchedule "wrong-schedule" => Some("It is moved to the schedule of the destination that its body names, or taken off if it stands elsewhere, too.");
    /// A task is scheduled for another moment than the one it waits for.
    DueDiffers "due-differs" => Some("It is scheduled for the moment that it waits for.");
    /// A schedule names a task that has no body: there is nothing to deliver.
    ScheduledWithoutBody "scheduled-without-body" => Some("It is taken off.");
    /// A lease on a task that has no body.
    LeasedWithoutBody "leased-without-body" => Some("It is taken off.");
    /// The attempts and receipts of a task that has no body.
    EntryWithoutBody "entry-without-body" => Some("They are removed.");
    /// A task that is listed as ended and has no body.
    EndedWithoutBody "ended-without-body" => Some("It is taken off the list.");
    /// A task that is listed as ended, without a mark that says so.
    EndedUnmarked "ended-unmarked" => Some("It is marked as ended.");
    /// A task that is marked as ended and missing from the list of those that ended so.
    EndedUnlisted "ended-unlisted" => Some("It is listed, as ended now.");
    /// A task in the lists of two ends.
    EndedTwice "ended-twice" => Some("It stays in the one that its mark names.");
    /// A task on its way, by its own mark, that is listed as ended.
    LiveYetListed "live-yet-listed" => Some("It is taken off the list.");
    /// A cancel waits for the end of a lease that there is not.
    CancelWithoutLease "cancel-without-lease" => Some("The task is cancelled.");
    /// Attempts and body of a task name different destinations.
    DestinationsDiffer "destinations-differ" => Some("The body's counts.");
    /// Parts of a task name different lanes.
    LanesDiffer "lanes-differ" => Some("The body's counts.");
    /// A moment that is none: no whole number of milliseconds between 0 and 2^53.
    BadMoment "bad-moment" => Some("A task waits for its first due moment, or for now; a lease is over; an end was now.");
    /// A body that cannot be read: there is nothing that could be delivered.
    UnreadableBody "unreadable-body" => Some("The task is dead; its bytes stay as they are.");
    /// A body that another version of delayd wrote.
    ForeignBody "foreign-body" => None;
    /// Attempts and receipts that cannot be read; they may stop the whole lane.
    UnreadableEntry "unreadable-entry" => Some("They are written anew, from where the task stands; in Redis, their bytes are set aside.");
    /// Something without a task's number among the tasks; it may stop the whole lane.
    NotAnId "not-an-id" => Some("It is set aside, bytes and all.");
    /// The end of an idempotency key's window is not listed, or something is listed that is none:
    /// the key would be remembered for ever.
    WindowWrong "window-wrong" => Some("The list is put right.");
    /// A destination without waiting tasks is listed as if it had some.
    ListedWithoutSchedule "listed-without-schedule" => Some("It is taken off the list.");
    /// The pulled schedule is listed among those that are called, or a called one is not.
    CalledWrong "called-wrong" => Some("The list is put right.");
    /// A destination with a name that cannot be one; it may stop the whole lane.
    UnreadableDestination "unreadable-destination" => Some("It is no longer called.");
    /// A lane remembers another number of lanes than its topic has, or none.
    ShardsDiffer "shards-differ" => Some("It remembers the topic's.");
    /// The counter of ids stands behind a task's id: ids could be drawn again.
    BehindIds "counter-behind" => Some("The counter is raised.");
    /// The counter of ids cannot be read: nothing can be added.
    UnreadableCounter "unreadable-counter" => Some("It begins anew, behind all ids there are.");
    /// A lane counts other tasks than it holds: its statistics are wrong, and its quota lets too
    /// many or too few in.
    CountsWrong "counts-wrong" => Some("They are counted again.");
    /// A task that waits does not expire when it should, or something expires that does not wait.
    ExpiryWrong "expiry-wrong" => Some("The list of what expires is put right.");
    /// A key names a task that is not there, or is not the key's.
    KeyWithoutTask "key-without-task" => Some("The key is free again.");
    /// What an idempotency key answered cannot be read: the key counts as unused.
    UnreadableKey "unreadable-key" => Some("The key is forgotten.");
    /// Notes of attempts at a task that has no body.
    NoteWithoutBody "note-without-body" => Some("They are removed.");
    /// The policy of a topic cannot be read: it follows the configuration.
    UnreadablePolicy "unreadable-policy" => None;
    /// A task in another lane than its number names: it is called, but not found by get, cancel and
    /// ack.
    Misplaced "misplaced" => None;
    /// A row that names a lane or a destination that there is not.
    ForeignRow "foreign-row" => None;
    /// A key that looks like a lane's and names none.
    StrayKey "stray-key" => None;
    /// The file itself is damaged.
    Damaged "damaged-file" => None;
}

impl Flaw {
    /// Reads a [`Flaw::name`].
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is none.
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
