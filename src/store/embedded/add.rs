//! `add`: a body, and a place on its destination's schedule.

use super::ledger::Ledger;
use super::record::Pending;
use crate::clock::UnixMillis;
use crate::store::{Added, Moment, NewTask, Novelty};
use crate::task::{Options, TaskId};

pub(super) fn add(ledger: &mut Ledger<'_>, tasks: &[NewTask]) -> rusqlite::Result<Vec<Added>> {
    tasks.iter().map(|task| add_one(ledger, task)).collect()
}

fn add_one(ledger: &mut Ledger<'_>, task: &NewTask) -> rusqlite::Result<Added> {
    let due = due(task.moment, ledger.now);
    let id = ledger.draw_id()?;
    let lane = task.topic.lane_of(id);
    let lane_number = ledger.lane(&lane, &task.topic)?;
    let destination = ledger.destination(lane_number, &task.destination)?;
    write_body(ledger, id, lane_number, destination, due, task)?;
    ledger.join_schedule(id, &Pending::fresh(lane_number, destination, due))?;
    ledger.hint(&lane, destination, due)?;
    Ok(Added { id, due, novelty: Novelty::New })
}

fn write_body(
    ledger: &Ledger<'_>,
    id: TaskId,
    lane: i64,
    destination: i64,
    due: UnixMillis,
    task: &NewTask,
) -> rusqlite::Result<()> {
    ledger
        .db
        .prepare_cached(
            "INSERT INTO task (id, lane, destination, due, created, options, content) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute((id, lane, destination, due, ledger.now, options_text(&task.options), &task.content))?;
    Ok(())
}

/// The due moment by the store's clock; what lies in the past is due now.
pub(super) fn due(moment: Moment, now: UnixMillis) -> UnixMillis {
    match moment {
        Moment::At(moment) => moment.max(now),
        Moment::After(wait) => now + wait,
    }
}

fn options_text(options: &Options) -> Option<String> {
    if options.is_default() {
        return None;
    }
    Some(serde_json::to_string(options).expect("options are plain data"))
}
