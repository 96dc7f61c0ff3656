//! Purge, discard and clear. Each script call is bounded in tasks, and in the bytes that it reads
//! to find their keys.

use deadpool_redis::redis::FromRedisValue;

use super::admin::write_outcome;
use super::answer::corrupt;
use super::script;
use super::session::Session;
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId};
use crate::store::{Cleared, Result};

/// The most tasks, or idempotency keys, of one script call.
const MOST: usize = 500;

impl Session {
    pub(crate) async fn purge(
        &self,
        lane: &Lane,
        most: u64,
        state: State,
        before: UnixMillis,
        limit: usize,
    ) -> Result<usize> {
        if !state.is_final() {
            return Ok(0);
        }
        let (mut tasks, mut keys) = (0, 0);
        loop {
            let (most_tasks, most_keys) = (MOST.min(limit - tasks), MOST.min(limit - keys));
            let call = self
                .lane_call(&script::PURGE, lane)
                .arg(state.as_str())
                .arg(before.0)
                .arg(most_tasks)
                .arg(most_keys)
                .arg(most)
                .take();
            let (purged, is_more, forgotten): (usize, bool, usize) =
                FromRedisValue::from_redis_value(self.working.run_one(call).await?)
                    .map_err(corrupt)?;
            tasks = limit.min(tasks + purged);
            keys = limit.min(keys + forgotten);
            let are_more_tasks = is_more && purged > 0 && tasks < limit;
            let are_more_keys = forgotten > 0 && forgotten == most_keys && keys < limit;
            if !are_more_tasks && !are_more_keys {
                return Ok(tasks);
            }
        }
    }

    pub(crate) async fn discard(
        &self,
        lane: &Lane,
        state: State,
        ids: Vec<TaskId>,
        outcome: Option<&str>,
    ) -> Result<usize> {
        let mut count = 0;
        for chunk in ids.chunks(MOST).filter(|_| state.is_final()) {
            let mut is_more = true;
            while is_more {
                let mut call = self.lane_call(&script::DISCARD, lane);
                call.arg(state.as_str()).arg(write_outcome(outcome));
                for id in chunk {
                    call.arg(id.0);
                }
                let answer = self.confirming.run_one(call).await?;
                let discarded: usize;
                (discarded, is_more) = FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
                count += discarded;
            }
        }
        Ok(count)
    }

    /// Removes tasks that are not leased, then marks a cancel on all leased ones: a scan of them
    /// that stopped at a limit would begin again with the next call. Unless the limit ends it, the
    /// last script finds no task to remove, so an empty lane has lost its idempotency keys.
    pub(crate) async fn clear(&self, lane: &Lane, limit: usize) -> Result<Cleared> {
        let mut cleared = Cleared::default();
        // How far the scan over the leased tasks has come; "0" is both its start and its end.
        let mut cursor = String::from("0");
        while cleared.removed < limit {
            let most = MOST.min(limit - cleared.removed);
            let call = self.lane_call(&script::CLEAR, lane).arg(most).arg(&cursor).take();
            let answer = self.confirming.run_one(call).await?;
            let (removed, cancelling, next): (usize, usize, String) =
                FromRedisValue::from_redis_value(answer).map_err(corrupt)?;
            cleared.removed += removed;
            cleared.cancelling += cancelling;
            cursor = next;
            if removed == 0 && cursor == "0" {
                break;
            }
        }
        Ok(cleared)
    }
}
