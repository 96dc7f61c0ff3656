//! Ids for an outage of the server that has the counter.
//!
//! In a cluster, one server has the counter, and adds to the lanes of all servers need ids. So each
//! draw also brings a reserve: as many ids as the blocks of an outage have. They are higher than
//! those of the block, and lower than those of the next draw, which replaces them.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{Drawn, IdPool, IdRequest, LONGEST_BLOCK};

/// How long after its draw a reserve is used. It bounds by how much the time in an id is wrong.
const USABLE: Duration = Duration::from_secs(300);

/// Ids that are used while the counter does not answer.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    ids: Range<u64>,
    drawn: Option<Instant>,
    /// The same ids, and which of them are used; `None` before the first is.
    opened: Option<IdPool>,
    /// Whether a request found no id.
    is_used_up: bool,
}

impl Reserve {
    /// How many ids to draw for it, beside a block of this size for a second.
    pub(crate) fn size_for(block: u64, outage: Duration) -> u64 {
        (block.min(LONGEST_BLOCK) as f64 * outage.as_secs_f64()) as u64
    }

    /// Replaces the reserve by a later one. If there was no room for a large one, the better one
    /// stays.
    pub(crate) fn replace(&mut self, ids: Range<u64>, drawn: Instant) {
        let size = ids.end.saturating_sub(ids.start);
        if size > 0 && 2 * size >= self.left() {
            *self = Self { ids, drawn: Some(drawn), opened: None, is_used_up: false };
        }
    }

    /// Takes ids for as many requests as possible, as [`IdPool::take_for`] does.
    pub(crate) fn take_for(&mut self, requests: &[IdRequest], drawn: &mut Vec<Drawn>) {
        if self.left() > 0 {
            let opened = self.opened.get_or_insert_with(|| IdPool::of(self.ids.clone()));
            opened.take_for(requests, drawn);
        }
        self.is_used_up |= drawn.len() < requests.len();
    }

    /// How many ids may be used; 0 once a request has found none.
    pub(crate) fn left(&self) -> u64 {
        let is_usable = self.drawn.is_some_and(|drawn| drawn.elapsed() < USABLE);
        match &self.opened {
            _ if !is_usable || self.is_used_up => 0,
            Some(opened) => opened.left(),
            None => self.ids.end - self.ids.start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::TaskId;

    fn take(reserve: &mut Reserve, count: usize) -> Vec<u64> {
        let mut drawn = Vec::new();
        let request = IdRequest { shards: 1, shard: None, has_call: false };
        reserve.take_for(&vec![request; count], &mut drawn);
        drawn.into_iter().map(|Drawn { own: TaskId(id), .. }| id).collect()
    }

    #[test]
    fn a_reserve_has_the_blocks_of_an_outage() {
        let check = |block, outage_ms, expected| {
            let size = Reserve::size_for(block, Duration::from_millis(outage_ms));
            assert_eq!(size, expected, "{block} for {outage_ms} ms");
        };
        check(1_000, 30_000, 30_000);
        check(1_000, 500, 500);
        check(32_000, 30_000, 960_000);
        check(2_000_000, 30_000, 960_000);
    }

    #[tokio::test(start_paused = true)]
    async fn its_ids_are_used_once_and_become_too_old() {
        let mut reserve = Reserve::default();
        assert!(take(&mut reserve, 1).is_empty());
        reserve.replace(100..104, Instant::now());
        assert_eq!((take(&mut reserve, 3), reserve.left()), (vec![100, 101, 102], 1));
        assert_eq!((take(&mut reserve, 2), reserve.left()), (vec![103], 0));
        reserve.replace(200..204, Instant::now());
        tokio::time::advance(USABLE - Duration::from_millis(1)).await;
        assert_eq!((take(&mut reserve, 1), reserve.left()), (vec![200], 3));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((reserve.left(), take(&mut reserve, 1)), (0, vec![]));
    }

    /// After a failover, several instances may share little room.
    #[tokio::test(start_paused = true)]
    async fn a_much_smaller_reserve_replaces_none_that_can_still_be_used() {
        let mut reserve = Reserve::default();
        reserve.replace(100..200, Instant::now());
        reserve.replace(300..300, Instant::now());
        reserve.replace(300..349, Instant::now());
        assert_eq!(take(&mut reserve, 1), [100]);
        reserve.replace(400..450, Instant::now());
        assert_eq!(take(&mut reserve, 1), [400]);
        tokio::time::advance(USABLE).await;
        reserve.replace(500..501, Instant::now());
        assert_eq!(take(&mut reserve, 1), [500]);
    }

    /// No id of the reserve leads to a lane, though others are left. The instance is not ready: it
    /// cannot store the tasks that come.
    #[tokio::test(start_paused = true)]
    async fn it_is_used_up_once_a_lane_finds_no_id() {
        let mut reserve = Reserve::default();
        reserve.replace(100..103, Instant::now());
        let mut drawn = Vec::new();
        let request = IdRequest { shards: 4, shard: Some(3), has_call: false };
        reserve.take_for(&[request], &mut drawn);
        assert_eq!((drawn.len(), reserve.left()), (0, 0));
    }
}
