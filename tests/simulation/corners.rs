//! The rare situations that the schedules must reach. A simulation that never reaches them shows
//! nothing.

use std::collections::BTreeMap;

use delayd::model::task::State;
use delayd::store::{Cancelled, Message, Planned, Rescheduled, Settled, Transition};

use crate::history::{Change, Heard, What};
use crate::schedule::play;

/// The situation that an event stands for, if any.
fn corner(what: &What) -> Option<&'static str> {
    Some(match what {
        What::Settled {
            transition: Transition::Delivered { .. },
            answer: Settled::Stale { .. },
            ..
        } => "a late success",
        What::Settled {
            transition: Transition::Retry { .. },
            answer: Settled::Stale { .. },
            ..
        } => "a late failure",
        What::Settled { transition: Transition::Release, .. } => "a task that is given back",
        What::Extended { answer: Settled::Done, .. } => "a lease that is extended",
        What::Extended { answer: Settled::Stale { .. }, .. } => {
            "an extension of a lease that another holds by now"
        }
        What::Cancelled { answer: Cancelled::Pending, .. } => {
            "a cancel that waits for the end of a lease"
        }
        What::Cancelled { key: Some(_), answer: Cancelled::Done, .. } => "a cancel by key",
        What::Cancelled { key: Some(_), answer: Cancelled::Unknown, .. } => {
            "a cancel by a key that has passed on"
        }
        What::Cancelled { answer: Cancelled::Done, .. } => "a cancel",
        What::Rescheduled { answer: Rescheduled::Done { .. }, .. } => "a reschedule",
        What::Rescheduled { answer: Rescheduled::Refused { state: State::Leased }, .. } => {
            "a reschedule of a held task"
        }
        What::ScheduleSet { change: Change::Changed, .. } => "a change of a schedule",
        What::SchedulePaused { is_paused: true, .. } => "a pause of a schedule",
        What::ScheduleDeleted { .. } => "a deletion of a schedule",
        What::Planned { answer: Planned::Waits, plan, .. } if plan.missed.is_some() => {
            "an occurrence that waits while a moment passes"
        }
        What::PlanStale => "a plan of a schedule that has changed",
        What::PlanForgotten { .. } => "a plan that a failover forgets",
        What::Claimed { skipped, .. } if !skipped.is_empty() => {
            "an occurrence that is skipped while an earlier one runs"
        }
        What::CallBegan { occurrence: Some(called), .. } if called.missed > 0 => {
            "an occurrence that stands for missed moments"
        }
        What::Replayed { .. } => "a replay",
        What::Repeated { .. } => "an add that is repeated",
        What::Replaced { .. } => "a push-back by key",
        What::Recounted { .. } => "a topic that is created again with another number of lanes",
        What::AddedStale { .. } => "an add with an old number of lanes",
        What::TopicPaused { .. } => "a pause of a topic",
        What::TopicResumed { becomes: None, .. } => {
            "an end of a pause after which all tasks are delivered"
        }
        What::TopicResumed { becomes: Some(_), .. } => {
            "an end of a pause after which not all tasks are delivered"
        }
        What::Looked { .. } => "an instance that learns of a pause",
        What::Claimed { calls, .. } if !calls.is_empty() => "a misfire with a dead-letter callback",
        What::Settled { calls, .. } if !calls.is_empty() => "a death with a dead-letter callback",
        What::StoreFailed { verb: "add", how: "done twice", .. } => "an add that is done twice",
        What::CallEnded { heard: Heard::Final, .. } => "a final answer",
        What::CallDropped { .. } => "a call that is cut off",
        What::Crashed { .. } => "a crash",
        What::Paused { .. } => "a pause",
        What::Drained { cut_off: 0, .. } => "an orderly stop",
        What::Untold { message: Message::Leaves, .. } => {
            "a message of an instance that leaves, which is lost"
        }
        What::Jumped { .. } => "a jump of the store's clock",
        What::StoreFailed { verb: "settle", how: "done, answer lost", .. } => {
            "a settle whose answer is lost"
        }
        What::StoreFailed { verb: "settle", how: "done late, no answer", .. } => {
            "a settle that is done late"
        }
        What::StoreFailed { verb: "claim", how: "done twice", .. } => "a claim that is done twice",
        What::Found { state: State::Dead, .. } => "a task that dies",
        What::Found { state: State::Expired, .. } => "a task that expires",
        What::Found { state: State::Cancelled, .. } => "a task that is cancelled",
        _ => return None,
    })
}

#[test]
fn the_schedules_reach_the_corners() {
    const CORNERS: usize = 44;
    let mut reached: BTreeMap<&str, u32> = BTreeMap::new();
    let mut seeds = 0..400;
    while reached.len() < CORNERS
        && let Some(seed) = seeds.next()
    {
        let report = play(seed, None);
        for corner in report.history.events.iter().filter_map(|event| corner(&event.what)) {
            *reached.entry(corner).or_default() += 1;
        }
    }
    for (corner, count) in &reached {
        println!("{count:>6} × {corner}");
    }
    assert_eq!(reached.len(), CORNERS, "not every situation was reached: {reached:#?}");
}
