//! The ids that an instance has drawn, and whether the counter answers.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::pool::{Drawn, IdPool, IdRequest};
use crate::store::{Error, Result};

/// The interval between two draws while the counter does not answer.
const REST: Duration = Duration::from_millis(100);
/// How long a failure counts. Later, for example when the instance was idle, requests wait for a
/// draw again.
const RECENT: Duration = Duration::from_secs(1);
/// The bounds of the wait for a draw while there is an id reserve.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The result of a draw, once there is one.
pub(crate) type Drawing = watch::Receiver<Option<Result<()>>>;

/// The ids that an instance has drawn.
#[derive(Debug, Default)]
pub(crate) struct Stock {
    pool: IdPool,
    /// What is left of the blocks that are stale: the id reserve, together with `pool`.
    reserve: IdPool,
    /// How long after its draw a block is used while the counter is away; zero without a cluster,
    /// where no lane works without the server of the counter. It bounds by how much the time in an
    /// id is wrong.
    outage: Duration,
    /// The highest id drawn.
    highest: u64,
    /// The draw under way.
    drawing: Option<Drawing>,
    counter: Counter,
    /// How often all ids were dropped. The ids of a draw that began before are not used.
    emptied: u64,
}

/// Whether the counter answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Counter {
    #[default]
    Answers,
    /// A draw has failed, or takes long.
    IsAway { since: Instant, why: Arc<str>, used: Used },
}

/// How far the id reserve was used in an outage. Each step is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Used {
    Nothing,
    Some,
    TooFew,
}

/// What a draw asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// The number of ids.
    pub(crate) block: u64,
    /// The highest id drawn before.
    pub(crate) highest: u64,
    emptied: u64,
}

impl Stock {
    pub(crate) fn new(outage: Duration) -> Self {
        Self { outage, ..Self::default() }
    }

    /// Takes ids for the requests that have none, from the id reserve only while the counter is
    /// away. Returns whether each request has its ids.
    pub(crate) fn take_for(&mut self, requests: &[IdRequest], drawn: &mut [Option<Drawn>]) -> bool {
        let is_done = |drawn: &[Option<Drawn>]| drawn.iter().all(Option::is_some);
        self.pool.keep_fresh(&mut self.reserve);
        self.reserve.remove_older_than(self.outage);
        self.pool.take_for(requests, drawn);
        if is_done(drawn) || !self.is_away() {
            return is_done(drawn);
        }
        let has_some = self.has_reserve();
        self.reserve.take_for(requests, drawn);
        let is_done = is_done(drawn);
        if let Counter::IsAway { used, why, .. } = &mut self.counter {
            let now = if is_done { Used::Some } else { Used::TooFew };
            if now > *used && (has_some || *used == Used::Some) {
                now.log(self.reserve.left(self.outage), why);
                *used = now;
            }
        }
        is_done
    }

    /// Whether the counter did not answer lately.
    pub(crate) fn is_away(&self) -> bool {
        match self.counter {
            Counter::Answers => false,
            Counter::IsAway { since, .. } => self.drawing().is_some() || since.elapsed() < RECENT,
        }
    }

    /// Whether to draw now, although nothing is missing: a block is soon over, or the counter may
    /// answer again.
    pub(crate) fn is_to_draw(&self) -> bool {
        match self.counter {
            _ if self.drawing().is_some() => false,
            Counter::Answers => self.pool.is_soon_over(),
            Counter::IsAway { since, .. } => since.elapsed() >= REST,
        }
    }

    /// What to draw for the requests that remain.
    pub(crate) fn order(&self, requests: &[IdRequest]) -> Order {
        let block = self.pool.size_for(requests);
        Order { block, highest: self.highest, emptied: self.emptied }
    }

    /// The draw under way.
    pub(crate) fn drawing(&self) -> Option<Drawing> {
        // A draw that has panicked leaves a closed channel.
        self.drawing.clone().filter(|drawing| drawing.has_changed().is_ok())
    }

    /// A draw has begun.
    pub(crate) fn begins(&mut self, drawing: Drawing) {
        self.drawing = Some(drawing);
    }

    /// A draw has ended. However late its answer is, its ids are used.
    pub(crate) fn ended(&mut self, order: Order, block: Result<Range<u64>>, began: Instant) {
        self.drawing = None;
        let block = match block {
            Ok(block) => block,
            Err(error) => return self.counter_is_away(&error),
        };
        if let Counter::IsAway { used: Used::Some | Used::TooFew, .. } = self.counter {
            tracing::info!("The id counter answers again");
        }
        self.counter = Counter::Answers;
        self.highest = self.highest.max(block.end - 1);
        if self.emptied == order.emptied {
            self.pool.put(block, began, Instant::now());
        }
    }

    /// A draw has failed, or takes long.
    pub(crate) fn counter_is_away(&mut self, error: &Error) {
        let used = match self.counter {
            Counter::IsAway { used, .. } => used,
            Counter::Answers => Used::Nothing,
        };
        let why = error.to_string().into();
        self.counter = Counter::IsAway { since: Instant::now(), why, used };
    }

    /// How long to wait for a draw before the id reserve is used. It follows the round trip to the
    /// counter's server, and the last draw, which shows how busy it is.
    pub(crate) fn patience(&self, round_trip: Duration) -> Duration {
        (4 * round_trip).max(2 * self.pool.took()).clamp(SHORTEST_WAIT, LONGEST_WAIT)
    }

    /// How many ids tasks may get without the counter. They may lead to other lanes than a request
    /// names.
    pub(crate) fn reserve_left(&self) -> u64 {
        self.pool.left(self.outage) + self.reserve.left(self.outage)
    }

    /// Whether [`Self::reserve_left`] is not zero.
    pub(crate) fn has_reserve(&self) -> bool {
        self.pool.has_left(self.outage) || self.reserve.has_left(self.outage)
    }

    /// Drops all ids, and those being drawn.
    pub(crate) fn empty(&mut self) {
        (self.pool, self.reserve) = Default::default();
        self.emptied += 1;
    }
}

impl Used {
    fn log(self, left: u64, error: &str) {
        match self {
            Self::Nothing => {}
            Self::Some => tracing::warn!(
                left,
                error,
                "The id counter does not answer: tasks get ids of the id reserve"
            ),
            Self::TooFew => tracing::warn!(
                left,
                error,
                "The id reserve has too few ids: adds are refused until the id counter answers"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::TaskId;

    const OUTAGE: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    fn take(stock: &mut Stock, count: usize) -> Vec<u64> {
        let mut drawn = vec![None; count];
        let request = IdRequest { shards: 1, shard: None, has_call: false };
        stock.take_for(&vec![request; count], &mut drawn);
        drawn.into_iter().flatten().map(|Drawn { own: TaskId(id), .. }| id).collect()
    }

    fn silent() -> Error {
        Error::Unavailable("silent".into())
    }

    fn draw(stock: &mut Stock, ids: Range<u64>) {
        let (order, began) = (stock.order(&[]), Instant::now());
        stock.ended(order, Ok(ids), began);
    }

    /// A stock that drew 100 to 108 a second ago. The draw took this long.
    async fn stock(took: Duration) -> Stock {
        let (mut stock, began) = (Stock::new(OUTAGE), Instant::now());
        let order = stock.order(&[]);
        tokio::time::advance(took).await;
        stock.ended(order, Ok(100..109), began);
        tokio::time::advance(SECOND).await;
        stock
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_used_only_while_the_counter_is_away() {
        let mut stock = stock(Duration::ZERO).await;
        draw(&mut stock, 109..112);
        assert_eq!(take(&mut stock, 4), [109, 110, 111]);
        assert_eq!((take(&mut stock, 1), stock.reserve_left()), (vec![], 9));
        stock.counter_is_away(&silent());
        assert_eq!((take(&mut stock, 2), stock.reserve_left()), (vec![100, 101], 7));
        assert_eq!(stock.order(&[]).highest, 111);
        draw(&mut stock, 200..203);
        assert_eq!((take(&mut stock, 4), stock.reserve_left()), (vec![200, 201, 202], 7));
    }

    /// The blocks of the last seconds suffice for as many seconds without the counter.
    #[tokio::test(start_paused = true)]
    async fn the_reserve_has_the_ids_of_an_outage_at_the_recent_rate() {
        for rate in [1, 400, 900, 5_000] {
            let (mut stock, mut last) = (Stock::new(OUTAGE), 0);
            for _ in 0..40 {
                let mut left = rate;
                while left > 0 {
                    let size = stock.order(&[]).block;
                    draw(&mut stock, last..last + size);
                    last += size;
                    left -= take(&mut stock, left).len();
                }
                tokio::time::advance(SECOND).await;
            }
            for second in 0..OUTAGE.as_secs() - 1 {
                stock.counter_is_away(&silent());
                assert_eq!(take(&mut stock, rate).len(), rate, "{rate} a second, at {second}");
                tokio::time::advance(SECOND).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_becomes_too_old_and_without_a_cluster_there_is_none() {
        let mut stock = stock(Duration::ZERO).await;
        tokio::time::advance(OUTAGE - SECOND - Duration::from_millis(1)).await;
        assert_eq!(stock.reserve_left(), 9);
        stock.counter_is_away(&silent());
        assert_eq!(take(&mut stock, 1), [100]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((stock.reserve_left(), take(&mut stock, 1)), (0, vec![]));
        let mut alone = Stock::new(Duration::ZERO);
        draw(&mut alone, 1..9);
        alone.counter_is_away(&silent());
        assert_eq!((alone.reserve_left(), take(&mut alone, 1)), (0, vec![1]));
        tokio::time::advance(SECOND).await;
        assert!(take(&mut alone, 1).is_empty());
    }

    /// A request without an id used to mark the whole id reserve as used up, so that all adds were
    /// refused.
    #[tokio::test(start_paused = true)]
    async fn a_lane_without_ids_leaves_the_ids_of_the_others() {
        let mut stock = stock(Duration::ZERO).await;
        stock.counter_is_away(&silent());
        let request = |shard| IdRequest { shards: 4, shard: Some(shard), has_call: false };
        let mut drawn = [None; 4];
        stock.take_for(&[request(3), request(3), request(3), request(1)], &mut drawn);
        let ids = drawn.map(|drawn| drawn.map(|Drawn { own: TaskId(id), .. }| id));
        assert_eq!(ids, [Some(103), Some(107), None, Some(101)]);
        assert_eq!((stock.reserve_left(), take(&mut stock, 1)), (6, vec![100]));
    }

    /// The id reserve used to be dropped before another draw had succeeded.
    #[tokio::test(start_paused = true)]
    async fn a_failed_draw_leaves_the_reserve_and_the_counter_rests() {
        let mut stock = stock(Duration::ZERO).await;
        for next in [100, 101] {
            let order = stock.order(&[]);
            stock.ended(order, Err(silent()), Instant::now());
            assert!(!stock.is_to_draw());
            assert_eq!(take(&mut stock, 1), [next]);
            tokio::time::advance(REST).await;
            assert!(stock.is_to_draw());
        }
    }

    /// An idle instance sends no draws. Its first request used to take from the id reserve although
    /// the counter had answered long before.
    #[tokio::test(start_paused = true)]
    async fn an_old_failure_does_not_open_the_reserve() {
        let mut stock = stock(Duration::ZERO).await;
        stock.counter_is_away(&silent());
        tokio::time::advance(RECENT).await;
        assert!((take(&mut stock, 1).is_empty(), stock.is_to_draw()) == (true, true));
        let (_sender, drawing) = watch::channel(None);
        stock.begins(drawing);
        assert_eq!(take(&mut stock, 1), [100], "the draw of another request takes long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_is_not_lost() {
        let mut stock = stock(Duration::ZERO).await;
        let (order, began) = (stock.order(&[]), Instant::now());
        let (_sender, drawing) = watch::channel(None);
        stock.begins(drawing);
        tokio::time::advance(LONGEST_WAIT).await;
        stock.counter_is_away(&silent());
        tokio::time::advance(REST).await;
        assert!(!stock.is_to_draw(), "one draw is under way");
        stock.ended(order, Ok(200..203), began);
        assert_eq!(stock.counter, Counter::Answers);
        assert_eq!(take(&mut stock, 4), [200, 201, 202]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_draw_is_awaited_as_long_as_the_counter_usually_takes() {
        let check = async |took_ms: u64, round_trip_ms: u64, expected_ms: u64| {
            let stock = stock(Duration::from_millis(took_ms)).await;
            let patience = stock.patience(Duration::from_millis(round_trip_ms));
            let expected = Duration::from_millis(expected_ms);
            assert_eq!(patience, expected, "{took_ms} ms, {round_trip_ms} ms");
        };
        check(0, 0, 50).await;
        check(2, 1, 50).await;
        check(50, 50, 200).await;
        check(200, 1, 400).await;
        check(900, 1, 500).await;
        check(2, 300, 500).await;
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_ids_are_not_used_and_neither_are_those_being_drawn() {
        let mut stock = stock(Duration::ZERO).await;
        let (order, began) = (stock.order(&[]), Instant::now());
        stock.empty();
        stock.ended(order, Ok(200..209), began);
        stock.counter_is_away(&silent());
        assert_eq!((take(&mut stock, 1), stock.reserve_left()), (vec![], 0));
        assert_eq!(stock.order(&[]).highest, 208);
    }
}
