//! `claim`: expired leases are swept, due tasks are leased, and what is next is looked up.

use rusqlite::types::ValueRef;

use super::ledger::Ledger;
use super::query::{earliest_deadline, earliest_due};
use super::record::{self, Pending, Record};
use super::rows::{pending_columns, read_name, read_options, read_pending};
use super::values::rows;
use crate::clock::UnixMillis;
use crate::store::{
    Claim, Claimed, Grant, LeasedTask, MAX_CLAIM_BYTES, MAX_LEASE, MAX_OUTLOOK, MAX_SWEEP, Outlook, Want,
};
use crate::task::{Destination, Receipt, TaskId};

/// One process has the file, so nobody is refused.
pub(super) fn claim(ledger: &mut Ledger<'_>, claim: &Claim) -> rusqlite::Result<Claimed> {
    let mut grant =
        Grant { now: ledger.now, receipt: Receipt::random(), tasks: Vec::new(), outlook: Outlook::default() };
    if let Some(lane) = ledger.find_lane(&claim.lane)? {
        sweep(ledger, lane)?;
        let deadline = record::deadline(claim.lease, ledger.now);
        grant.tasks = take(ledger, lane, &claim.wants, &grant.receipt, deadline)?;
        grant.outlook = look(ledger, lane, claim.skip)?;
    }
    Ok(Claimed::Granted(grant))
}

/// Ends what the process before held for its callbacks: its workers are gone, and their answers with them.
pub(super) fn void_push_leases(ledger: &mut Ledger<'_>) -> rusqlite::Result<usize> {
    let held = read_leases(
        ledger,
        concat!(
            "SELECT p.id, ",
            pending_columns!(),
            " FROM progress p JOIN destination d ON d.id = p.destination WHERE p.leased = 1 AND d.called = 1"
        ),
        [],
    )?;
    for (id, pending) in &held {
        let after = pending.swept(ledger.now, ledger.now);
        ledger.replace(*id, &Record::Pending(pending.clone()), &after)?;
    }
    Ok(held.len())
}

fn sweep(ledger: &mut Ledger<'_>, lane: i64) -> rusqlite::Result<()> {
    let now = ledger.now;
    let mut expired = read_leases(
        ledger,
        concat!(
            "SELECT p.id, ",
            pending_columns!(),
            " FROM progress p WHERE p.lane = ? AND p.leased = 1 AND p.due <= ? ORDER BY p.due, p.id LIMIT ?"
        ),
        (lane, now, rows(MAX_SWEEP)),
    )?;
    expired.extend(read_leases(
        ledger,
        concat!(
            "SELECT p.id, ",
            pending_columns!(),
            " FROM progress p WHERE p.lane = ? AND p.leased = 1 AND p.due > ? ORDER BY p.due, p.id LIMIT ?"
        ),
        (lane, now + MAX_LEASE, rows(MAX_SWEEP - expired.len())),
    )?);
    for (id, pending) in expired {
        let after = pending.swept(record::due_after_lease(pending.due, now), now);
        ledger.replace(id, &Record::Pending(pending), &after)?;
    }
    Ok(())
}

fn read_leases(
    ledger: &Ledger<'_>,
    select: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Vec<(TaskId, Pending)>> {
    ledger.db.prepare_cached(select)?.query_map(params, |row| Ok((row.get(0)?, read_pending(row, 1)?)))?.collect()
}

fn take(
    ledger: &mut Ledger<'_>,
    lane: i64,
    wants: &[Want],
    receipt: &Receipt,
    deadline: UnixMillis,
) -> rusqlite::Result<Vec<LeasedTask>> {
    let mut tasks = Vec::new();
    let mut room = MAX_CLAIM_BYTES;
    for want in wants {
        let Some(destination) = ledger.find_destination(lane, &want.destination)? else { continue };
        let (due, is_full) = read_due(ledger, (lane, destination), want, &mut room, tasks.is_empty())?;
        for (mut task, before) in due {
            let after = before.leased_by(receipt, deadline);
            task.attempt = after.attempts;
            ledger.leave_schedule(task.id, &before)?;
            ledger.write_progress(task.id, &after)?;
            tasks.push(task);
        }
        if is_full {
            break;
        }
    }
    Ok(tasks)
}

/// Reads the due tasks of a destination, as many as are wanted and have room; says whether the room ran out.
/// The rows are changed only when all are read, for a change would move them under the reading query.
fn read_due(
    ledger: &Ledger<'_>,
    (lane, destination): (i64, i64),
    want: &Want,
    room: &mut usize,
    is_first: bool,
) -> rusqlite::Result<(Vec<(LeasedTask, Pending)>, bool)> {
    let mut due = Vec::new();
    let mut select = ledger.db.prepare_cached(concat!(
        "SELECT t.id, t.due, t.options, t.content, s.due, ",
        pending_columns!(),
        " FROM schedule s CROSS JOIN task t ON t.id = s.id LEFT JOIN progress p ON p.id = s.id
         WHERE s.destination = ? AND s.due <= ? ORDER BY s.due, s.id LIMIT ?"
    ))?;
    let mut found = select.query((destination, ledger.now, rows(want.slots)))?;
    while let Some(row) = found.next()? {
        let content = row.get_ref(3)?.as_str()?;
        let fits = content.len() <= *room;
        let is_single = is_first && due.is_empty();
        if !fits && !is_single {
            return Ok((due, true));
        }
        *room = room.saturating_sub(content.len());
        let id = row.get(0)?;
        let task = LeasedTask {
            id,
            destination: want.destination.clone(),
            attempt: 0,
            due: row.get(1)?,
            options: read_options(row, 2, id)?,
            content: content.to_owned(),
        };
        let was_claimed = row.get_ref(5)? != ValueRef::Null;
        let before = if was_claimed { read_pending(row, 5)? } else { Pending::fresh(lane, destination, row.get(4)?) };
        due.push((task, before));
    }
    Ok((due, false))
}

fn look(ledger: &mut Ledger<'_>, lane: i64, skip: usize) -> rusqlite::Result<Outlook> {
    ledger.write_earliest()?;
    let due = ledger
        .db
        .prepare_cached(
            "SELECT name FROM destination WHERE lane = ? AND called = 1 AND earliest <= ?
             ORDER BY earliest, id LIMIT ? OFFSET ?",
        )?
        .query_map((lane, ledger.now, rows(MAX_OUTLOOK), rows(skip)), |row| read_name::<Destination>(row, 0))?
        .collect::<rusqlite::Result<_>>()?;
    let later = earliest_due(ledger.db, lane, ledger.now)?;
    let deadline = earliest_deadline(ledger.db, lane, ledger.now)?;
    Ok(Outlook { due, next: later.into_iter().chain(deadline).min() })
}
