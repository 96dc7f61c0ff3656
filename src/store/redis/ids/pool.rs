//! Blocks of allocated ids, and which of their ids are used.
//!
//! Pure, except that blocks age. A task that has to lie in a certain lane takes an id that leads
//! there; the ids that it skips are used for others. For each lane that was ever requested, the
//! first possibly free id is remembered, so no id is examined more than once for a lane.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::task::TaskId;

/// How many ids are drawn at once, unless more are needed. The size doubles if more than half of a
/// block is used while it is fresh, and halves if less than a quarter is. So what is left of the
/// blocks of some seconds suffices for as many seconds without the counter.
const BLOCK: u64 = 1_000;
/// The most ids of a block, unless more are needed.
pub(crate) const LONGEST_BLOCK: u64 = 32_000;
/// How long a block may be used.
const FRESH: Duration = Duration::from_secs(1);

/// What a task asks of its ids.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdRequest {
    /// The number of lanes of its topic.
    pub(crate) shards: u16,
    /// The lane that its id has to lead to, if any.
    pub(crate) shard: Option<u16>,
    /// Whether it needs a second id that leads to the same lane, for its dead-letter call.
    pub(crate) has_call: bool,
}

/// A task's ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drawn {
    pub(crate) own: TaskId,
    pub(crate) call: Option<TaskId>,
}

/// The allocated ids.
#[derive(Debug, Default)]
pub(crate) struct IdPool {
    /// In the order of their draws, so that ids grow from block to block.
    blocks: Vec<Block>,
    /// Where the search for a free id of a lane begins.
    next: BTreeMap<IdSeries, u64>,
    /// How many ids the next draw brings, if no block is fresh and no more are needed.
    usual: u64,
    /// How long the last draw took.
    took: Duration,
    /// How many ids were examined.
    #[cfg(test)]
    looks: u64,
}

/// Ids that were drawn together.
#[derive(Debug)]
pub(crate) struct Block {
    ids: Range<u64>,
    /// Whether each id is used.
    given: Vec<bool>,
    /// How many ids are used.
    used: u64,
    drawn: Instant,
}

/// The ids that lead to a lane: their remainder by the number of lanes is the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct IdSeries {
    shards: u64,
    shard: u64,
}

impl IdRequest {
    /// The ids that it may have.
    fn way(&self) -> IdSeries {
        self.shard.map_or(IdSeries::ANY, |shard| IdSeries {
            shards: self.shards.max(1).into(),
            shard: shard.into(),
        })
    }

    /// How many ids it needs.
    fn count(&self) -> u64 {
        1 + u64::from(self.has_call)
    }
}

impl IdSeries {
    /// Every id leads to the only lane.
    const ANY: Self = Self { shards: 1, shard: 0 };

    /// The lane that the id leads to, with this number of lanes.
    fn of(id: u64, shards: u16) -> Self {
        let shards = u64::from(shards.max(1));
        Self { shards, shard: id % shards }
    }

    /// The ids of a range that lead there.
    fn among(self, ids: Range<u64>) -> impl Iterator<Item = u64> {
        let to_first = (self.shard + self.shards - ids.start % self.shards) % self.shards;
        (ids.start + to_first..ids.end).step_by(self.shards as usize)
    }
}

/// The requests that have no ids yet.
pub(crate) fn open(requests: &[IdRequest], drawn: &[Option<Drawn>]) -> Vec<IdRequest> {
    let open = requests.iter().zip(drawn).filter(|(_, drawn)| drawn.is_none());
    open.map(|(request, _)| *request).collect()
}

impl IdPool {
    /// Removes the blocks that are stale, and gives them to the pool for an outage.
    pub(crate) fn keep_fresh(&mut self, outage: &mut Self) {
        if let Some(last) = self.blocks.last().filter(|last| last.drawn.elapsed() >= FRESH) {
            self.usual = last.next_size();
        }
        outage.blocks.extend(self.remove_older_than(FRESH));
    }

    /// Removes the blocks that were drawn as long ago, or longer.
    pub(crate) fn remove_older_than(&mut self, age: Duration) -> Vec<Block> {
        let removed = self.blocks.partition_point(|block| block.drawn.elapsed() >= age);
        let removed: Vec<Block> = self.blocks.drain(..removed).collect();
        if !removed.is_empty() {
            let first = self.blocks.first().map_or(u64::MAX, |block| block.ids.start);
            self.next.retain(|_, next| *next > first);
        }
        removed
    }

    /// Takes ids for the requests that have none, as far as there are ids. Each in turn gets the
    /// lowest free id, its own before the one for its call.
    pub(crate) fn take_for(&mut self, requests: &[IdRequest], drawn: &mut [Option<Drawn>]) {
        let open = requests.iter().zip(drawn).filter(|(_, drawn)| drawn.is_none());
        open.for_each(|(request, drawn)| *drawn = self.take_both(request));
    }

    fn take_both(&mut self, request: &IdRequest) -> Option<Drawn> {
        let own = self.take(request.way())?;
        // If there is no id for the call, its own id is wasted.
        let call = if request.has_call {
            Some(TaskId(self.take(IdSeries::of(own, request.shards))?))
        } else {
            None
        };
        Some(Drawn { own: TaskId(own), call })
    }

    fn take(&mut self, way: IdSeries) -> Option<u64> {
        let next = self.next.entry(way).or_default();
        let used_up = self.blocks.partition_point(|block| block.ids.end <= *next);
        for block in &mut self.blocks[used_up..] {
            let first = block.ids.start;
            for id in way.among(first.max(*next)..block.ids.end) {
                #[cfg(test)]
                {
                    self.looks += 1;
                }
                *next = id + 1;
                if !std::mem::replace(&mut block.given[(id - first) as usize], true) {
                    block.used += 1;
                    return Some(id);
                }
            }
        }
        None
    }

    /// How many ids to draw for the requests that remain: enough for each lane that they name, and
    /// more for a while. If ids lead to the lanes of two requests, they may not suffice; then there
    /// is another draw.
    pub(crate) fn size_for(&self, requests: &[IdRequest]) -> u64 {
        let usual = match self.blocks.last() {
            // Its ids are used up, or those of the requested lanes.
            Some(last) if !requests.is_empty() => 2 * last.size(),
            Some(last) => last.next_size(),
            None => self.usual,
        };
        let usual = usual.clamp(BLOCK, LONGEST_BLOCK);
        let mut counts: BTreeMap<IdSeries, u64> = BTreeMap::new();
        requests
            .iter()
            .for_each(|request| *counts.entry(request.way()).or_default() += request.count());
        let of_a_lane = counts.iter().map(|(way, count)| way.shards * count).max().unwrap_or(0);
        // If any lane will do, the id of the call still has to lead to the same lane, which is one
        // number of lanes further on.
        let shards = requests.iter().map(|request| u64::from(request.shards)).max().unwrap_or(0);
        let of_all = counts.values().sum::<u64>() + 2 * shards;
        usual.max(of_a_lane).max(of_all)
    }

    /// How many ids of the blocks that are younger than this are not used.
    pub(crate) fn left(&self, age: Duration) -> u64 {
        self.unused(age).sum()
    }

    /// Whether [`Self::left`] is not zero. Mostly the newest block answers it.
    pub(crate) fn has_left(&self, age: Duration) -> bool {
        self.unused(age).any(|unused| unused > 0)
    }

    /// The unused ids of each block that is younger than this, from the newest block on.
    fn unused(&self, age: Duration) -> impl Iterator<Item = u64> {
        let young = self.blocks.iter().rev().take_while(move |block| block.drawn.elapsed() < age);
        young.map(|block| block.size() - block.used)
    }

    /// How long the last draw took.
    pub(crate) fn took(&self) -> Duration {
        self.took
    }

    /// Adds a block that was drawn between two moments. Its ids are higher than all before.
    pub(crate) fn put(&mut self, ids: Range<u64>, began: Instant, drawn: Instant) {
        self.took = drawn - began;
        self.blocks.push(Block::new(ids, drawn));
    }

    /// Whether the last block will be stale or used up, at its pace so far, before two draws are
    /// done.
    pub(crate) fn is_soon_over(&self) -> bool {
        self.blocks.last().is_some_and(|last| last.lasts_for() <= 2 * self.took)
    }
}

impl Block {
    fn new(ids: Range<u64>, drawn: Instant) -> Self {
        Self { given: vec![false; (ids.end - ids.start) as usize], ids, used: 0, drawn }
    }

    /// How long the block lasts at its pace so far. The first adds show no pace yet.
    fn lasts_for(&self) -> Duration {
        let age = self.drawn.elapsed();
        let left = (self.size() - self.used) as f64 / self.used.max(1) as f64;
        FRESH.saturating_sub(age).min(age.max(FRESH / 16).mul_f64(left))
    }

    /// The size of the next block, by the pace so far.
    fn next_size(&self) -> u64 {
        let age = self.drawn.elapsed().clamp(FRESH / 16, FRESH);
        let needed = self.used as f64 / age.div_duration_f64(FRESH);
        match needed / self.size() as f64 {
            share if share > 0.5 => 2 * self.size(),
            share if share < 0.25 => self.size() / 2,
            _ => self.size(),
        }
    }

    fn size(&self) -> u64 {
        self.ids.end - self.ids.start
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pool(ids: Range<u64>) -> IdPool {
        IdPool { blocks: vec![Block::new(ids, Instant::now())], ..IdPool::default() }
    }

    fn request(shard: impl Into<Option<u16>>, has_call: bool) -> IdRequest {
        IdRequest { shards: 4, shard: shard.into(), has_call }
    }

    fn drawn(own: u64, call: impl Into<Option<u64>>) -> Drawn {
        Drawn { own: TaskId(own), call: call.into().map(TaskId) }
    }

    impl IdPool {
        fn take_all(&mut self, requests: &[IdRequest]) -> Vec<Drawn> {
            let mut drawn = vec![None; requests.len()];
            self.take_for(requests, &mut drawn);
            drawn.into_iter().flatten().collect()
        }

        /// As `ids::draw` does, from a counter that stands at `last`.
        fn draw(&mut self, requests: &[IdRequest], last: &mut u64) -> Vec<Drawn> {
            let mut drawn = vec![None; requests.len()];
            loop {
                self.take_for(requests, &mut drawn);
                let open = open(requests, &drawn);
                if open.is_empty() {
                    return drawn.into_iter().flatten().collect();
                }
                let size = self.size_for(&open);
                self.blocks.push(Block::new(*last + 1..*last + 1 + size, Instant::now()));
                *last += size;
            }
        }
    }

    #[test]
    fn ids_lead_to_the_lanes_that_are_wished_for_and_none_is_wasted() {
        let requests = [
            request(3, false),
            request(None, false),
            request(None, true),
            request(0, true),
            request(None, false),
        ];
        let mut pool = pool(8..20);
        let expected =
            [drawn(11, None), drawn(8, None), drawn(9, 13), drawn(12, 16), drawn(10, None)];
        assert_eq!(pool.take_all(&requests), expected);
        assert_eq!(
            pool.take_all(&[request(None, false); 9]),
            [14, 15, 17, 18, 19].map(|own| drawn(own, None))
        );
    }

    #[test]
    fn what_is_left_of_a_block_goes_before_the_next_one() {
        let mut pool = pool(8..12);
        assert_eq!(pool.take_all(&[request(1, true)]), []);
        pool.blocks.push(Block::new(20..32, Instant::now()));
        let requests = [
            request(1, true),
            request(2, false),
            request(2, false),
            request(None, true),
            request(None, false),
        ];
        let expected =
            [drawn(21, 25), drawn(10, None), drawn(22, None), drawn(8, 20), drawn(11, None)];
        assert_eq!(pool.take_all(&requests), expected);
    }

    #[test]
    fn a_draw_is_as_large_as_the_lanes_need() {
        let check = |requests: &[IdRequest], size: u64| {
            assert_eq!(IdPool::default().size_for(requests), size, "{requests:?}")
        };
        check(&[request(None, true)], BLOCK);
        check(&[request(None, false); 2_000], 2_008);
        check(&[request(None, true); 2_000], 4_008);
        check(&[request(2, false); 2_000], 8_000);
        check(&[[request(2, true); 2_000], [request(3, false); 2_000]].concat(), 16_000);
        let many = IdRequest { shards: 1_024, shard: None, has_call: true };
        check(&[many], 2_050);
        assert_eq!(IdPool::default().draw(&[many], &mut 6).len(), 1);
    }

    /// The size fell back to a thousand ids every second, and ids were then drawn repeatedly while
    /// all requests waited.
    #[tokio::test(start_paused = true)]
    async fn a_block_is_as_long_as_a_second_needs() {
        let (mut pool, mut sizes) = (IdPool::default(), Vec::new());
        // How many ids of each block are used, and how long it takes.
        for (used, ms) in
            [(1_000, 250), (2_000, 250), (3_500, 1_000), (100, 1_000), (0, 1_000), (0, 1_000)]
        {
            pool.keep_fresh(&mut IdPool::default());
            let (size, first) = (pool.size_for(&[]), sizes.iter().sum::<u64>() + 1);
            sizes.push(size);
            pool.put(first..first + size, Instant::now(), Instant::now());
            pool.take_all(&vec![request(None, false); used]);
            tokio::time::advance(Duration::from_millis(ms)).await;
        }
        assert_eq!(sizes, [1_000, 2_000, 4_000, 8_000, 4_000, 2_000]);
    }

    /// The ids of one lane are a small part of a block, and used up while most of the block is
    /// left.
    #[tokio::test(start_paused = true)]
    async fn a_block_whose_lane_is_used_up_makes_the_next_one_longer() {
        let (mut pool, mut last) = (IdPool::default(), 0);
        let mut draws = 0;
        for _ in 0..500 {
            pool.keep_fresh(&mut IdPool::default());
            let before = last;
            pool.draw(&[IdRequest { shards: 256, shard: Some(7), has_call: false }], &mut last);
            draws += u32::from(last > before);
            tokio::time::advance(Duration::from_millis(2)).await;
        }
        assert!(draws <= 10, "{draws} draws in a second");
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_block_is_drawn_before_this_one_is_over() {
        let check = async |took_ms: u64, used: usize, after_ms: u64, is_soon_over: bool| {
            let mut pool = IdPool { took: Duration::from_millis(took_ms), ..pool(1..1_001) };
            tokio::time::advance(Duration::from_millis(after_ms)).await;
            pool.take_all(&vec![request(None, false); used]);
            assert_eq!(pool.is_soon_over(), is_soon_over, "{took_ms} {used} {after_ms}");
        };
        // Redis is near: only at the end.
        check(1, 10, 990, false).await;
        check(1, 10, 999, true).await;
        check(1, 512, 0, false).await;
        check(1, 999, 500, true).await;
        // Redis is far away: by age or by pace.
        check(250, 10, 499, false).await;
        check(250, 10, 500, true).await;
        check(250, 400, 200, true).await;
        check(250, 200, 200, false).await;
        check(250, 512, 0, true).await;
    }

    /// Each request examined all ids that had been left for the two other lanes.
    #[test]
    fn an_adder_of_a_third_of_the_lanes_looks_at_few_ids_and_draws_them_once() {
        let requests: Vec<IdRequest> = (0..10_000)
            .map(|n| IdRequest { shards: 30, shard: Some(3 * (n % 10)), has_call: false })
            .collect();
        for batch in [10_000, 500, 1] {
            let (mut pool, mut last) = (IdPool::default(), 0);
            let mut given: Vec<TaskId> = requests
                .chunks(batch)
                .flat_map(|requests| pool.draw(requests, &mut last))
                .map(|drawn| drawn.own)
                .collect();
            assert!(pool.looks < 11_000, "{batch} at once: {} looked at", pool.looks);
            assert!(last < 50_000, "{batch} at once: {last} drawn");
            given.sort_unstable();
            given.dedup();
            assert_eq!(given.len(), 10_000);
        }
    }

    /// The same, by examining all ids that are left.
    fn take_plainly(left: &mut BTreeSet<u64>, requests: &[IdRequest], drawn: &mut [Option<Drawn>]) {
        let mut lowest = |shards: u16, shard: Option<u16>| {
            let leads =
                |id: &u64| shard.is_none_or(|shard| id % u64::from(shards) == u64::from(shard));
            let id = left.iter().copied().find(leads)?;
            left.remove(&id).then_some(id)
        };
        let mut both = |request: &IdRequest| {
            let own = lowest(request.shards, request.shard)?;
            let shard = (own % u64::from(request.shards)) as u16;
            let call = if request.has_call {
                Some(TaskId(lowest(request.shards, Some(shard))?))
            } else {
                None
            };
            Some(Drawn { own: TaskId(own), call })
        };
        for (request, drawn) in requests.iter().zip(drawn) {
            *drawn = drawn.or_else(|| both(request));
        }
    }

    proptest! {
        #[test]
        fn each_wish_has_the_lowest_id_that_is_left_for_it(
            calls in vec(vec((0..5_usize, any::<Option<u16>>(), any::<bool>()), 0..12), 0..12),
            sizes in vec(1..80_u64, 200),
        ) {
            let (mut pool, mut left) = (IdPool::default(), BTreeSet::new());
            let (mut last, mut sizes) = (6, sizes.into_iter());
            for call in calls {
                let request = |(n, shard, has_call): (usize, Option<u16>, bool)| {
                    let shards = [1, 2, 3, 4, 16][n];
                    IdRequest { shards, shard: shard.map(|shard| shard % shards), has_call }
                };
                let requests: Vec<IdRequest> = call.into_iter().map(request).collect();
                let mut drawn = vec![None; requests.len()];
                let mut expected = drawn.clone();
                loop {
                    pool.take_for(&requests, &mut drawn);
                    take_plainly(&mut left, &requests, &mut expected);
                    prop_assert_eq!(&drawn, &expected);
                    if drawn.iter().all(Option::is_some) {
                        break;
                    }
                    // With other instances, a block does not begin where the previous one ends.
                    let first = last + 1 + last % 3;
                    last = first + sizes.next().unwrap_or(80);
                    left.extend(first..=last);
                    pool.blocks.push(Block::new(first..last + 1, Instant::now()));
                }
            }
        }
    }
}
