//! Removes the contents of ended tasks (`history.contents = false`).
//!
//! A task keeps its content for at least a minute after its end. Until then, the Redis store may
//! send its add again after a lost answer, and recognizes it by the content.
//!
//! The tasks of each lane are read in the order of their ends, each once. Every [`A_SCAN`] rounds,
//! they are read from the beginning: tasks that were moved here may have ended long ago. A round
//! reads at most [`PAGES_A_ROUND`] pages, so that the janitor goes on with its other work; the next
//! round continues.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::{HISTORY, ROUND};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, TaskId};
use crate::store::{LaneHistory, ListQuery, Listed, Maintenance, Result, Topics};

/// The most tasks of one call.
const CHUNK: usize = 250;
/// The number of rounds from one scan of all histories to the next. The first one is a scan.
const A_SCAN: u32 = 24 * 60;
/// The most pages of one round: half a million tasks.
const PAGES_A_ROUND: u32 = 2_000;

/// How far the histories of the lanes were read.
#[derive(Debug, Default)]
pub(super) struct Progress {
    rounds: u32,
    /// How many more pages this round may read.
    pages: u32,
    lanes: HashMap<Lane, LaneProgress>,
}

/// How far a lane was read.
#[derive(Debug, Default)]
struct LaneProgress {
    seen: LaneHistory,
    /// How many more rounds read it.
    turns: u32,
    /// The last task that was read, per state.
    last: HashMap<State, Listed>,
}

impl Progress {
    /// A round begins, for these lanes.
    pub(super) fn begin_round(&mut self, lanes: &[Lane]) {
        if self.rounds.is_multiple_of(A_SCAN) {
            self.lanes.clear();
        }
        self.rounds = self.rounds.wrapping_add(1);
        self.pages = PAGES_A_ROUND;
        if self.lanes.len() > lanes.len() {
            let known: HashSet<&Lane> = lanes.iter().collect();
            self.lanes.retain(|lane, _| known.contains(lane));
        }
    }

    /// Removes the contents of the lane's tasks that ended longer ago than `after`.
    ///
    /// # Errors
    /// Those of the store. The next round continues.
    pub(super) async fn remove(
        &mut self,
        store: &(impl Topics + Maintenance),
        lane: &Lane,
        history: &LaneHistory,
        now: UnixMillis,
        after: Duration,
    ) -> Result<()> {
        let of_lane = self.lanes.entry(lane.clone()).or_default();
        if of_lane.seen != *history {
            (of_lane.seen, of_lane.turns) = (*history, turns(after));
        }
        if history.ended == 0 || of_lane.turns == 0 {
            return Ok(());
        }
        for state in HISTORY {
            of_lane.remove(store, lane, state, now - after, &mut self.pages).await?;
        }
        // If the pages are used up, the next round continues.
        if self.pages > 0 {
            of_lane.turns -= 1;
        }
        Ok(())
    }
}

/// The number of rounds in which a lane is read after its history has changed. Tasks that ended
/// just before the first of them are old enough in the last.
fn turns(after: Duration) -> u32 {
    let rounds = after.as_secs().div_ceil(ROUND.as_secs());
    u32::try_from(rounds).map_or(u32::MAX, |rounds| rounds + 1)
}

impl LaneProgress {
    async fn remove(
        &mut self,
        store: &(impl Topics + Maintenance),
        lane: &Lane,
        state: State,
        before: UnixMillis,
        pages: &mut u32,
    ) -> Result<()> {
        while *pages > 0 {
            *pages -= 1;
            let query = ListQuery {
                lane: lane.clone(),
                state,
                from: UnixMillis(i64::MIN),
                to: before - Duration::from_millis(1),
                after: self.last.get(&state).copied(),
                limit: CHUNK,
            };
            let page = store.list(query).await?;
            let Some(last) = page.last() else { return Ok(()) };
            let ids: Vec<TaskId> = page.iter().map(|listed| listed.id).collect();
            store.remove_contents(lane, &ids).await?;
            self.last.insert(state, *last);
            if page.len() < CHUNK {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a long `store.redis.timeout`, a lane was left alone before its tasks were old enough.
    #[test]
    fn the_last_turn_finds_all_tasks_old_enough() {
        for seconds in [0, 1, 59, 60, 61, 64, 120, 300] {
            let after = Duration::from_secs(seconds);
            // The first turn may come at the moment of the end.
            let youngest = (turns(after) - 1) * ROUND;
            assert!(youngest >= after && youngest < after + ROUND, "{seconds} s");
        }
    }
}
