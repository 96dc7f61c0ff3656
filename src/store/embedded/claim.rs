//! `claim`: sweeps expired leases, ends tasks that must not be delivered, leases due tasks, and
//! looks up what is next.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Row;
use tokio::sync::oneshot;

use super::expiry::{self, EndBudget};
use super::query::{earliest_deadline, earliest_due};
use super::rows::{read_options, read_pending, read_waiting};
use super::sql::progress::passed;
use super::sql::schedule::due;
use super::sql::{self, only};
use super::state::{self, Pending, StoredState};
use super::threads::queue;
use super::threads::write_queue::WriteQueue;
use super::values::{read_name, rows};
use super::write_tx::WriteTx;
use super::write_tx::unsynced::UnsyncedTasks;
use super::{Embedded, settle};
use crate::model::clock::UnixMillis;
use crate::model::task::{Destination, Lane, Receipt, State, TaskId};
use crate::store::{
    Claim, Claimed, Error, FURTHEST_DEADLINE, Grant, LeaseKind, LeasedTask, MAX_CLAIM_BYTES,
    MAX_OUTLOOK, MAX_SWEEP, Outlook, Position, Result, Settle, Swept, Transition, Want, counted,
};

/// How often tasks that were pulled too late are given back, and the first delay between two
/// attempts. Each next delay is three times as long; all attempts take about ten seconds.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(20);

impl Embedded {
    pub(crate) async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let slots = claim.wants.iter().map(|want| want.slots).fold(1, usize::saturating_add);
        // A power cut may undo a worker's lease, because its process is gone then too. A consumer's
        // lease has to survive both.
        let claimed = match claim.holder {
            Some(_) => self.writes.run_undoable(slots, move |tx| claim_in(tx, &claim)).await,
            None => self.claim_for_caller(slots, claim).await,
        };
        claimed.inspect(|claimed| counted::count_claim(&self.metrics, claimed))
    }

    /// A claim that a silent disk does not delay. Tasks that it takes after its caller has
    /// disconnected are given back without counting the attempt, because their lease may last for
    /// hours.
    async fn claim_for_caller(&self, slots: usize, claim: Claim) -> Result<Claimed> {
        let claiming = async {
            let (reply, claimed) = oneshot::channel();
            let writes = Arc::clone(&self.writes);
            self.claims.spawn(async move {
                let lane = claim.lane.clone();
                let claimed = writes.run(slots, move |tx| claim_in(tx, &claim)).await;
                if let Err(Ok(Claimed::Granted(grant))) = reply.send(claimed)
                    && !grant.tasks.is_empty()
                {
                    give_back(&writes, &lane, grant).await;
                }
            });
            claimed.await.unwrap_or_else(|_| Err(queue::closed()))
        };
        self.writes.promptly(claiming).await
    }
}

async fn give_back(writes: &WriteQueue, lane: &Lane, Grant { receipt, tasks, .. }: Grant) {
    let release = |task: &LeasedTask| Settle {
        lane: lane.clone(),
        id: task.id,
        receipt: receipt.clone(),
        transition: Transition::Release,
    };
    let back: Vec<Settle> = tasks.iter().map(release).collect();
    let count = back.len();
    let mut wait = FIRST_WAIT;
    for attempt in 1..=TRIES {
        let settles = back.clone();
        match writes.run(count, move |tx| settle::settle_in(tx, &settles)).await {
            Ok(_) => return,
            // The disk was silent a moment ago, so the queue may still be full.
            Err(Error::Unavailable(_) | Error::Full(_)) if attempt < TRIES => {
                tokio::time::sleep(wait).await
            }
            Err(error) => {
                tracing::warn!(
                    count,
                    %error,
                    "Tasks that were pulled too late could not be given back; they return when \
                     their leases expire"
                );
                return;
            }
        }
        wait *= 3;
    }
}

/// One process has the file, so no claim is refused.
pub(super) fn claim_in(tx: &mut WriteTx<'_>, claim: &Claim) -> rusqlite::Result<Claimed> {
    let mut grant = Grant {
        now: tx.now,
        receipt: Receipt::random(),
        tasks: Vec::new(),
        outlook: Outlook::default(),
        swept: Swept::default(),
    };
    if let Some(lane) = tx.find_lane(&claim.lane)? {
        tx.make_owed_calls(lane)?;
        let mut budget = EndBudget::new(tx);
        sweep(tx, (&claim.lane, lane), &mut budget)?;
        expiry::expire(tx, lane, &mut budget)?;
        grant.tasks = take(tx, lane, claim, &grant.receipt, &mut budget)?;
        grant.outlook = outlook_in(tx, lane, claim)?;
        if budget.is_exceeded {
            grant.outlook.next = Some(tx.now);
        }
        grant.swept = budget.swept;
    }
    Ok(Claimed::Granted(grant))
}

/// Ends the callbacks' leases of the previous process: its workers and their answers are gone. The
/// leases of receivers and movers continue.
pub(super) fn void_push_leases(tx: &mut WriteTx<'_>) -> rusqlite::Result<usize> {
    let held = read_leases(tx, sql::progress::of_workers::SQL, ())?;
    for (id, pending) in &held {
        let after = pending.swept(tx.now, tx.now);
        tx.replace(*id, &StoredState::Pending(pending.clone()), &after)?;
    }
    Ok(held.len())
}

fn sweep(
    tx: &mut WriteTx<'_>,
    (name, lane): (&Lane, i64),
    budget: &mut EndBudget,
) -> rusqlite::Result<()> {
    let now = tx.now;
    let mut expired = read_leases(tx, sql::progress::passed::SQL, (lane, now, rows(MAX_SWEEP)))?;
    expired.extend(read_leases(
        tx,
        sql::progress::too_far::SQL,
        (lane, now + FURTHEST_DEADLINE, rows(MAX_SWEEP - expired.len())),
    )?);
    for (id, pending) in expired {
        if !budget.has_calls(tx) {
            break;
        }
        let after = pending.swept(state::due_after_lease(pending.due, now), now);
        count(&mut budget.swept, &pending, &after);
        let is_lent = matches!(pending.lease, Some(LeaseKind::Mover { .. }));
        tx.replace(id, &StoredState::Pending(pending), &after)?;
        if let StoredState::Pending(back) = after
            && is_lent
        {
            // It may be due before what the lane's worker reads next.
            tx.hint(name, back.destination, back.due)?;
        }
    }
    Ok(())
}

/// Counts a lease that ran out, and the end of its task. A mover's lease that only returns the task
/// does not count.
fn count(swept: &mut Swept, before: &Pending, after: &StoredState) {
    match (before.lease, after) {
        (Some(LeaseKind::Mover { .. }), StoredState::Pending(_)) => {}
        (Some(LeaseKind::Consumer), _) => swept.pull_leases += 1,
        _ => swept.push_leases += 1,
    }
    if let StoredState::Ended(ended) = after {
        match ended.state {
            State::Cancelled => swept.cancelled += 1,
            _ => swept.leases_ran_out += 1,
        }
    }
}

fn read_leases(
    tx: &WriteTx<'_>,
    select: &str,
    params: impl rusqlite::Params,
) -> rusqlite::Result<Vec<(TaskId, Pending)>> {
    let read = |row: &Row<'_>| {
        let id = row.get(passed::id)?;
        Ok((id, read_pending(row, passed::pending, id)?))
    };
    tx.db.prepare_cached(select)?.query_map(params, read)?.collect()
}

fn take(
    tx: &mut WriteTx<'_>,
    lane: i64,
    claim: &Claim,
    receipt: &Receipt,
    budget: &mut EndBudget,
) -> rusqlite::Result<Vec<LeasedTask>> {
    let mut tasks = Vec::new();
    let mut room = MAX_CLAIM_BYTES.saturating_sub(claim.in_hand);
    let deadline = state::deadline(claim.lease, tx.now);
    for want in &claim.wants {
        let Some(destination) = tx.find_destination(lane, &want.destination)? else { continue };
        let left_over = expiry::misfire(tx, (lane, destination), &claim.misfires, budget)?;
        let DueTasks { due, is_full, has_hidden, has_own } = read_due(
            tx,
            (lane, destination),
            want,
            left_over,
            &mut room,
            tasks.is_empty() && claim.in_hand == 0,
        )?;
        tx.answer_waits |= has_own;
        if has_hidden {
            tx.passed_over(&claim.lane, tx.now);
            for DueTask { id, before, .. } in &due {
                tx.leave_schedule(*id, before)?;
            }
        } else if let (Some(first), Some(last)) = (due.first(), due.last()) {
            tx.leave_schedule_up_to(&first.before, &last.before, last.id)?;
        }
        for DueTask { id, before, task } in due {
            let Some(mut task) = task else {
                bury(tx, id, before)?;
                budget.swept.unreadable += 1;
                continue;
            };
            if let Some(occurrence) = &task.options.schedule
                && before.attempts == 0
                && overlaps(tx, lane, occurrence.after)?
            {
                let after = before.skipped(tx.now);
                tx.replace(id, &StoredState::Pending(before), &after)?;
                budget.swept.skipped += 1;
                continue;
            }
            let after = before.leased_by(receipt, LeaseKind::of_claim(&want.destination), deadline);
            task.attempt = after.attempts;
            if let Some(moment) = before.expires {
                tx.forget_expiry(lane, moment, id)?;
            }
            tx.write_progress(id, &after)?;
            tasks.push(task);
        }
        if is_full {
            break;
        }
    }
    Ok(tasks)
}

/// Whether the occurrence before one that falls due has not ended.
fn overlaps(
    tx: &mut WriteTx<'_>,
    lane: i64,
    occurrence_before: Option<TaskId>,
) -> rusqlite::Result<bool> {
    let Some(id) = occurrence_before.filter(|id| id.0 > 0) else { return Ok(false) };
    Ok(matches!(tx.load(lane, id)?, Some(StoredState::Pending(_))))
}

/// A due task.
struct DueTask {
    id: TaskId,
    before: Pending,
    /// `None` if its content is missing or cannot be read.
    task: Option<LeasedTask>,
}

/// What is due for a destination.
#[derive(Default)]
struct DueTasks {
    due: Vec<DueTask>,
    /// Whether the room ran out.
    is_full: bool,
    /// Whether tasks were passed over that are not durable.
    has_hidden: bool,
    /// Whether the open transaction has stored some: dead-letter calls.
    has_own: bool,
}

/// Ends a task that cannot be handed out. Otherwise every claim would meet it before the others.
fn bury(tx: &mut WriteTx<'_>, id: TaskId, before: Pending) -> rusqlite::Result<()> {
    tracing::error!(
        task.id = %id,
        "Task {id} cannot be read; it is dead, and nothing of it is deleted"
    );
    let dead = before.unreadable(tx.now);
    tx.replace(id, &StoredState::Pending(before), &dead)
}

/// Reads the due tasks of a destination: as many as are wanted and have room, up to a task that
/// should have been ended and was left. Passes over tasks that are not durable. The rows are
/// changed only after all are read, because a change would move them under the query.
fn read_due(
    tx: &WriteTx<'_>,
    (lane, destination): (i64, i64),
    want: &Want,
    left_over: Option<(UnixMillis, TaskId)>,
    room: &mut usize,
    is_first: bool,
) -> rusqlite::Result<DueTasks> {
    let mut found = DueTasks::default();
    let hidden = tx.hidden(destination);
    let limit = want.slots.saturating_add(hidden.map_or(0, UnsyncedTasks::len));
    let mut select = tx.db.prepare_cached(due::SQL)?;
    let mut due_rows = select.query((destination, tx.now, rows(limit)))?;
    while found.due.len() < want.slots
        && let Some(row) = due_rows.next()?
    {
        let (id, moment) = (row.get(due::id)?, row.get(due::due)?);
        if hidden.is_some_and(|hidden| hidden.hides(id)) {
            found.has_hidden = true;
            continue;
        }
        let waiting = Pending::fresh(lane, destination, moment);
        let before = read_waiting(row, id, waiting, (due::body_due, due::options), due::pending)?;
        let is_over = before.expires.is_some_and(|expires| expires <= tx.now);
        if is_over || left_over.is_some_and(|first| first <= (moment, id)) {
            break;
        }
        let content = row.get_ref(due::content)?.as_str().ok();
        let bytes = content.map_or(0, str::len);
        let is_single = is_first && found.due.is_empty();
        if bytes > *room && !is_single {
            found.is_full = true;
            break;
        }
        *room = room.saturating_sub(bytes);
        let task = content.map(|content| read_task(row, id, want, content)).transpose()?;
        found.has_own |= hidden.is_some_and(|hidden| hidden.is_own(id));
        let held_until = tx.unsynced.as_deref().and_then(|unsynced| unsynced.held_until(id));
        let task = task.map(|task| LeasedTask { held_until, ..task });
        found.due.push(DueTask { id, before, task });
    }
    Ok(found)
}

fn read_task(
    row: &Row<'_>,
    id: TaskId,
    want: &Want,
    content: &str,
) -> rusqlite::Result<LeasedTask> {
    Ok(LeasedTask {
        id,
        destination: want.destination.clone(),
        attempt: 0,
        due: row.get(due::body_due)?,
        created: row.get(due::created)?,
        held_until: None,
        options: read_options(row, due::options, id)?,
        content: content.to_owned(),
    })
}

fn outlook_in(tx: &mut WriteTx<'_>, lane: i64, claim: &Claim) -> rusqlite::Result<Outlook> {
    tx.write_earliest()?;
    let mut found = read_page(tx, lane, claim.after.as_ref())?;
    let end = if found.len() == MAX_OUTLOOK { end_of(&found) } else { None };
    let mut wanted = Vec::new();
    for want in &claim.wants {
        if let Some(number) = tx.find_destination(lane, &want.destination)?
            && let Some(earliest) = tx.earliest_of(number)?.filter(|moment| *moment <= tx.now)
        {
            wanted.push(DueDestination { number, name: Ok(want.destination.clone()), earliest });
        }
    }
    if !wanted.is_empty() {
        let page: HashSet<i64> = found.iter().map(|listed| listed.number).collect();
        found.extend(wanted.into_iter().filter(|listed| !page.contains(&listed.number)));
    }
    let (mut due, mut after_hidden) = (Vec::with_capacity(found.len()), None);
    for DueDestination { number, name, earliest } in found {
        if has_only_hidden(tx, number)? {
            // The worker would ask for them again and again.
            tx.passed_over(&claim.lane, earliest);
            after_hidden = after_hidden.into_iter().chain(earliest_after(tx, number)?).min();
        } else {
            due.extend(tx.readable(number, name));
        }
    }
    let later = earliest_due(tx.db, lane, tx.now)?;
    let deadline = earliest_deadline(tx.db, lane, tx.now)?;
    let expiry = expiry::earliest_expiry(tx.db, lane)?.map(|moment| moment.max(tx.now));
    let next = later.into_iter().chain(after_hidden).chain(deadline).chain(expiry).min();
    Ok(Outlook { due, end, next })
}

/// A due destination.
struct DueDestination {
    number: i64,
    name: rusqlite::Result<Destination>,
    earliest: UnixMillis,
}

/// The due destinations after a position, at most [`MAX_OUTLOOK`].
fn read_page(
    tx: &mut WriteTx<'_>,
    lane: i64,
    after: Option<&Position>,
) -> rusqlite::Result<Vec<DueDestination>> {
    use sql::destination::{due, due_at};
    let read = |row: &Row<'_>| {
        let (number, earliest) = (row.get(due::id)?, row.get(due::earliest)?);
        Ok(DueDestination { number, name: read_name(row, due::name), earliest })
    };
    let mut page = Vec::new();
    // Two statements, because SQLite would read all destinations of the moment for one.
    if let Some(Position { moment, destination: Some(name) }) = after
        && *moment <= tx.now
    {
        // If the destination has other tasks by now, or was deleted, the moment begins again. If it
        // was created again, with a higher number, the hint of its task has the moment read again.
        let last = match tx.find_destination(lane, name)? {
            Some(last) if tx.earliest_of(last)? == Some(*moment) => last,
            _ => i64::MIN,
        };
        let mut select = tx.db.prepare_cached(due_at::SQL)?;
        for listed in select.query_map((lane, moment, last, rows(MAX_OUTLOOK)), read)? {
            page.push(listed?);
        }
    }
    let (moment, left) = (after.map_or(i64::MIN, |at| at.moment.0), MAX_OUTLOOK - page.len());
    let mut select = tx.db.prepare_cached(due::SQL)?;
    for listed in select.query_map((lane, moment, tx.now, rows(left)), read)? {
        page.push(listed?);
    }
    Ok(page)
}

/// Where a page ends. Destinations that have no readable name at its end are read again.
fn end_of(page: &[DueDestination]) -> Option<Position> {
    let named = page.iter().rev().find_map(|listed| Some((listed, listed.name.as_ref().ok()?)));
    let at =
        |listed: &DueDestination, name| Position { moment: listed.earliest, destination: name };
    match (named, page.last()) {
        (Some((listed, name)), _) => Some(at(listed, Some(name.clone()))),
        (None, last) => last.map(|listed| at(listed, None)),
    }
}

/// Whether none of the destination's due tasks is durable.
fn has_only_hidden(tx: &WriteTx<'_>, destination: i64) -> rusqlite::Result<bool> {
    let Some(hidden) = tx.hidden(destination) else { return Ok(false) };
    let mut select = tx.db.prepare_cached(sql::schedule::DUE_IDS)?;
    let mut ids = select.query((destination, tx.now))?;
    while let Some(row) = ids.next()? {
        if !hidden.hides(row.get(0)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The earliest moment of a destination that is not due yet.
fn earliest_after(tx: &WriteTx<'_>, destination: i64) -> rusqlite::Result<Option<UnixMillis>> {
    tx.db.prepare_cached(sql::schedule::EARLIEST_AFTER)?.query_row((destination, tx.now), only)
}
