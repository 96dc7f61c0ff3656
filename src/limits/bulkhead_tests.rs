//! Tests of one bulkhead. Its owner has no rate and no gate here, so all vacant slots are free.

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::sync::Notify;

use super::*;

/// A bulkhead, and the notifies of all its waiters, by number.
struct Bench {
    bulkhead: Bulkhead,
    wakes: Vec<Arc<Notify>>,
}

impl Bench {
    fn new(limit: usize) -> Self {
        Self { bulkhead: Bulkhead::new(limit), wakes: Vec::new() }
    }

    fn free(&self) -> usize {
        self.bulkhead.vacant(usize::MAX)
    }

    fn serve(&mut self) {
        self.bulkhead.wake(self.free(), || None);
    }

    /// A new waiter checks.
    fn enqueue(&mut self) -> Availability {
        self.wakes.push(Arc::default());
        self.check(self.wakes.len() - 1)
    }

    fn check(&mut self, waiter: usize) -> Availability {
        let wake: Arc<dyn Wake> = self.wakes[waiter].clone();
        let availability = self.bulkhead.check(self.free(), waiter as u64, &wake, || None);
        self.serve();
        availability
    }

    fn take(&mut self, waiter: Option<usize>, most: usize) -> usize {
        let taken = self.bulkhead.take(self.free(), waiter.map(|waiter| waiter as u64), most);
        self.serve();
        taken
    }

    fn give_back(&mut self, count: usize) {
        self.bulkhead.give_back(count);
        self.serve();
    }

    fn leave(&mut self, waiter: usize) {
        self.bulkhead.suspend(waiter as u64);
        self.serve();
    }

    /// The waiters that were woken since the last call.
    fn woken(&self) -> Vec<usize> {
        (0..self.wakes.len())
            .filter(|waiter| self.wakes[*waiter].notified().now_or_never().is_some())
            .collect()
    }
}

#[test]
fn waiters_are_woken_in_the_order_of_arrival() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.take(None, 1), 1);
    for _ in 0..5 {
        assert_eq!(bench.enqueue(), Availability::Later(None));
    }
    for waiter in 0..5 {
        bench.give_back(1);
        assert_eq!(bench.woken(), [waiter]);
        assert_eq!(bench.take(None, 1), 0, "the slot is reserved");
        assert_eq!(bench.take(Some(waiter), 1), 1);
    }
    bench.give_back(1);
    assert!(bench.bulkhead.is_idle());
}

/// A waiter that was dropped after its wake-up kept the slot.
#[test]
fn a_woken_waiter_that_leaves_passes_its_slot_on() {
    let mut bench = Bench::new(1);
    bench.take(None, 1);
    for _ in 0..3 {
        bench.enqueue();
    }
    bench.give_back(1);
    assert_eq!(bench.woken(), [0]);
    bench.leave(0);
    assert_eq!(bench.woken(), [1]);
    bench.leave(1);
    assert_eq!(bench.woken(), [2]);
    bench.leave(2);
    assert_eq!(bench.take(None, 1), 1, "no waiter is left");
}

#[test]
fn a_waiter_that_waits_again_keeps_its_position() {
    let mut bench = Bench::new(1);
    bench.take(None, 1);
    for _ in 0..2 {
        bench.enqueue();
    }
    bench.give_back(1);
    assert_eq!(bench.woken(), [0]);
    // It suspends itself, and the other one takes the slot meanwhile.
    bench.leave(0);
    assert_eq!((bench.woken(), bench.take(Some(1), 1)), (vec![1], 1));
    bench.enqueue();
    bench.check(0);
    bench.give_back(1);
    assert_eq!(bench.woken(), [0]);
}

#[test]
fn a_lower_limit_takes_nothing_away_and_gives_nothing_out() {
    let mut bench = Bench::new(4);
    assert_eq!(bench.take(None, 9), 4);
    bench.bulkhead.set_limit(2);
    bench.give_back(2);
    assert_eq!((bench.bulkhead.in_flight(), bench.take(None, 9)), (2, 0));
    bench.give_back(1);
    assert_eq!(bench.take(None, 9), 1);
}

#[test]
fn one_waiter_keeps_the_timer_and_passes_it_on() {
    let (mut bulkhead, wakes) =
        (Bulkhead::new(9), [Arc::<Notify>::default(), Arc::default(), Arc::default()]);
    let second = Some(Duration::from_secs(1));
    let check = |bulkhead: &mut Bulkhead, waiter: usize| {
        let wake: Arc<dyn Wake> = wakes[waiter].clone();
        bulkhead.check(0, waiter as u64, &wake, || second)
    };
    assert_eq!(check(&mut bulkhead, 0), Availability::Later(second));
    assert_eq!(check(&mut bulkhead, 1), Availability::Later(None));
    assert_eq!(check(&mut bulkhead, 2), Availability::Later(None));
    bulkhead.suspend(0);
    bulkhead.wake(0, || second);
    assert!(wakes[1].notified().now_or_never().is_some(), "the next waiter keeps the timer");
    assert_eq!(check(&mut bulkhead, 1), Availability::Later(second));
    bulkhead.wake_timer();
    assert!(wakes[1].notified().now_or_never().is_some(), "the timer has another duration");
    assert!(wakes[2].notified().now_or_never().is_none());
}

proptest! {
    /// Steps: a newcomer takes slots, a new waiter comes, slots come back, a waiter leaves, or the
    /// limit changes. Each woken waiter then takes slots, waits again, or leaves.
    #[test]
    fn nothing_is_admitted_beyond_the_limit_and_no_free_slot_is_forgotten(
        steps in prop::collection::vec((0_u8..5, 1_usize..40), 0..200),
    ) {
        let mut bench = Bench::new(20);
        let mut waiting = std::collections::BTreeSet::new();
        for (step, amount) in steps {
            let before = bench.bulkhead.in_flight();
            let mut may_have = bench.bulkhead.limit().max(before);
            match step {
                0 => {
                    let taken = bench.take(None, amount);
                    prop_assert!(waiting.is_empty() || taken == 0, "a newcomer overtook a waiter");
                }
                1 => {
                    if bench.enqueue() != Availability::Now {
                        waiting.insert(bench.wakes.len() - 1);
                    }
                }
                2 => bench.give_back(amount.min(before)),
                3 => {
                    let index = amount % waiting.len().max(1);
                    if let Some(waiter) = waiting.iter().copied().nth(index) {
                        waiting.remove(&waiter);
                        bench.leave(waiter);
                    }
                }
                _ => {
                    bench.bulkhead.set_limit(amount);
                    may_have = amount.max(before);
                    bench.serve();
                }
            }
            prop_assert!(bench.bulkhead.in_flight() <= may_have);
            loop {
                let woken = bench.woken();
                if woken.is_empty() {
                    break;
                }
                let first: Vec<usize> = waiting.iter().copied().take(woken.len()).collect();
                prop_assert_eq!(&woken, &first, "not in the order of arrival");
                for waiter in woken {
                    let free = bench.free();
                    match bench.check(waiter) {
                        Availability::Later(_) => prop_assert_eq!(free, 0),
                        Availability::Now => {
                            prop_assert!(amount % 3 == 0 || bench.take(Some(waiter), amount) > 0);
                            bench.leave(waiter);
                            waiting.remove(&waiter);
                        }
                    }
                }
                prop_assert!(bench.bulkhead.in_flight() <= may_have);
            }
            prop_assert!(
                waiting.is_empty() || bench.free() == 0,
                "a waiter sleeps beside a free slot"
            );
        }
    }
}

#[derive(Debug)]
struct Declines;

impl Wake for Declines {
    fn wake(&self) -> bool {
        false
    }
}

/// A lane that claims already would keep the slot from all others until its claim is answered.
#[test]
fn a_declined_turn_goes_to_the_next_waiter() {
    let (mut bulkhead, next) = (Bulkhead::new(1), Arc::<Notify>::default());
    let wakes: [Arc<dyn Wake>; 2] = [Arc::new(Declines), next.clone()];
    let check = |bulkhead: &mut Bulkhead, free, waiter: usize| {
        bulkhead.check(free, waiter as u64, &wakes[waiter], || None)
    };
    assert_eq!(bulkhead.take(1, None, 1), 1);
    for waiter in [0, 1] {
        assert_eq!(check(&mut bulkhead, 0, waiter), Availability::Later(None));
    }
    bulkhead.give_back(1);
    assert_eq!(bulkhead.wake(1, || None), 1);
    assert!(next.notified().now_or_never().is_some());
    assert_eq!(bulkhead.take(1, None, 1), 0, "the slot is reserved for the next waiter");
    assert_eq!(check(&mut bulkhead, 1, 0), Availability::Later(None));
    assert_eq!(bulkhead.take(1, Some(1), 1), 1);
}
