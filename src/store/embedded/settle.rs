//! `settle`, `extend`: end and extend leases.

use std::time::Duration;

use super::Embedded;
use super::rows::is_unreadable;
use super::state::{Decision, StoredState};
use super::write_tx::WriteTx;
use crate::model::task::{Lane, Receipt, TaskId};
use crate::store::{Asker, Result, Settle, Settled};

impl Embedded {
    pub(crate) async fn settle(&self, asker: Asker, settles: Vec<Settle>) -> Vec<Result<Settled>> {
        let count = settles.len();
        let work = move |tx: &mut WriteTx<'_>| settle_in(tx, &settles);
        let settled = match asker {
            Asker::Worker => self.writes.run_deferrable(count, work).await,
            Asker::Caller => self.writes.ask(count, work).await,
        };
        match settled {
            Ok(settled) => settled.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); count],
        }
    }

    pub(crate) async fn extend(
        &self,
        asker: Asker,
        lane: &Lane,
        id: TaskId,
        receipt: &Receipt,
        lease: Duration,
    ) -> Result<Settled> {
        let (lane, receipt) = (lane.clone(), receipt.clone());
        let work = move |tx: &mut WriteTx<'_>| extend_in(tx, &lane, id, &receipt, lease);
        match asker {
            Asker::Worker => self.writes.run_undoable(1, work).await,
            Asker::Caller => self.writes.ask(1, work).await,
        }
    }
}

pub(super) fn settle_in(
    tx: &mut WriteTx<'_>,
    settles: &[Settle],
) -> rusqlite::Result<Vec<Settled>> {
    let mut answers = Vec::with_capacity(settles.len());
    for settle in settles {
        let now = tx.now;
        let answer = apply(tx, &settle.lane, settle.id, |record| {
            record.settle(&settle.receipt, &settle.transition, now)
        });
        answers.push(match answer {
            Ok(answer) => answer.unwrap_or(Settled::Unknown),
            // Nothing was written yet. The other settles of the batch must not fail for it.
            Err(failure) if is_unreadable(&failure) => {
                let id = settle.id;
                tracing::error!(
                    task.id = %id,
                    "The state of task {id} cannot be read; its settle changed nothing: {failure}"
                );
                Settled::Unknown
            }
            Err(failure) => return Err(failure),
        });
    }
    Ok(answers)
}

pub(super) fn extend_in(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    id: TaskId,
    receipt: &Receipt,
    lease: Duration,
) -> rusqlite::Result<Settled> {
    let now = tx.now;
    let answer = apply(tx, lane, id, |record| record.extend(receipt, lease, now))?;
    Ok(answer.unwrap_or(Settled::Unknown))
}

/// Loads a task's record, decides, and stores the new record. `None` if there is no such task.
pub(super) fn apply<A>(
    tx: &mut WriteTx<'_>,
    lane: &Lane,
    id: TaskId,
    decide: impl FnOnce(&StoredState) -> Decision<A>,
) -> rusqlite::Result<Option<A>> {
    let Some(number) = tx.find_lane(lane)? else { return Ok(None) };
    let Some(record) = tx.load(number, id)? else { return Ok(None) };
    let verdict = decide(&record);
    if let Some(after) = &verdict.becomes {
        tx.replace(id, &record, after)?;
        if let StoredState::Pending(back) = after
            && !back.leased
        {
            tx.hint(lane, back.destination, back.due)?;
        }
    }
    Ok(Some(verdict.answer))
}
