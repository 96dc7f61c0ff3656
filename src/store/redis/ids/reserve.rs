//! The id reserve: ids for an outage of the server that has the counter.
//!
//! In a cluster, one server has the counter, and adds to the lanes of all servers need ids. So
//! draws also bring an id reserve: as many ids as the blocks of an outage have. It is replaced once
//! it is partly used, too small, or a minute old. Not each draw does that: the instances would
//! compete for the ids that the counter may be ahead of the clock.

use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use super::pool::{Drawn, IdPool, IdRequest, LONGEST_BLOCK};

/// How long after its draw a id reserve is used. It bounds by how much the time in an id is wrong.
const USABLE: Duration = Duration::from_secs(300);
/// How long after its draw another id reserve is requested.
const RENEWED: Duration = Duration::from_secs(60);

/// Ids that are used while the counter does not answer.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    ids: Range<u64>,
    drawn: Option<Instant>,
    /// The same ids, and which of them are used; `None` before the first is.
    opened: Option<IdPool>,
}

impl Reserve {
    /// How many ids a draw should bring for it, beside a block of this size for a second; 0 while
    /// the present id reserve will do.
    pub(crate) fn wanted(&self, block: u64, outage: Duration) -> u64 {
        let wanted = (block.min(LONGEST_BLOCK) as f64 * outage.as_secs_f64()) as u64;
        let is_recent = self.drawn.is_some_and(|drawn| drawn.elapsed() < RENEWED);
        let is_whole = self.opened.as_ref().is_none_or(|opened| !opened.is_used());
        if is_recent && is_whole && self.size() >= wanted { 0 } else { wanted }
    }

    /// Replaces the id reserve by a later one. If there was no room for a large one, the better one
    /// stays.
    pub(crate) fn replace(&mut self, ids: Range<u64>, drawn: Instant) {
        let size = ids.end.saturating_sub(ids.start);
        if size > 0 && 2 * size >= self.left() {
            *self = Self { ids, drawn: Some(drawn), opened: None };
        }
    }

    /// Takes ids for the requests that have none, as [`IdPool::take_for`] does.
    pub(crate) fn take_for(&mut self, requests: &[IdRequest], drawn: &mut [Option<Drawn>]) {
        if self.left() > 0 {
            let opened = self.opened.get_or_insert_with(|| IdPool::of(self.ids.clone()));
            opened.take_for(requests, drawn);
        }
    }

    /// How many ids may be used. They may lead to other lanes than a request names.
    pub(crate) fn left(&self) -> u64 {
        let is_usable = self.drawn.is_some_and(|drawn| drawn.elapsed() < USABLE);
        match &self.opened {
            _ if !is_usable => 0,
            Some(opened) => opened.left(),
            None => self.size(),
        }
    }

    fn size(&self) -> u64 {
        self.ids.end - self.ids.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::TaskId;

    fn take(reserve: &mut Reserve, count: usize) -> Vec<u64> {
        let mut drawn = vec![None; count];
        let request = IdRequest { shards: 1, shard: None, has_call: false };
        reserve.take_for(&vec![request; count], &mut drawn);
        drawn.into_iter().flatten().map(|Drawn { own: TaskId(id), .. }| id).collect()
    }

    #[test]
    fn a_reserve_has_the_blocks_of_an_outage() {
        let check = |block, outage_ms, expected| {
            let size = Reserve::default().wanted(block, Duration::from_millis(outage_ms));
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

    /// Each draw used to request a id reserve, and a second instance found no room for its own.
    #[tokio::test(start_paused = true)]
    async fn another_reserve_is_requested_once_it_is_used_too_small_or_old() {
        const OUTAGE: Duration = Duration::from_secs(2);
        let mut reserve = Reserve::default();
        assert_eq!(reserve.wanted(50, OUTAGE), 100);
        reserve.replace(100..200, Instant::now());
        assert_eq!(reserve.wanted(50, OUTAGE), 0);
        assert_eq!(reserve.wanted(51, OUTAGE), 102, "it is too small");
        tokio::time::advance(RENEWED).await;
        assert_eq!(reserve.wanted(50, OUTAGE), 100, "it is too old");
        reserve.replace(200..300, Instant::now());
        assert_eq!(reserve.wanted(50, OUTAGE), 0);
        take(&mut reserve, 1);
        assert_eq!(reserve.wanted(50, OUTAGE), 100, "it is partly used");
    }

    /// A request without an id used to mark the whole id reserve as used up, so that all adds were
    /// refused.
    #[tokio::test(start_paused = true)]
    async fn a_lane_without_ids_leaves_the_ids_of_the_others() {
        let mut reserve = Reserve::default();
        reserve.replace(100..108, Instant::now());
        let request = |shard| IdRequest { shards: 4, shard: Some(shard), has_call: false };
        let requests = [request(3), request(3), request(3), request(1)];
        let mut drawn = [None; 4];
        reserve.take_for(&requests, &mut drawn);
        let ids = drawn.map(|drawn| drawn.map(|Drawn { own: TaskId(id), .. }| id));
        assert_eq!(ids, [Some(103), Some(107), None, Some(101)]);
        assert_eq!((reserve.left(), take(&mut reserve, 1)), (5, vec![100]));
    }
}
