//! Table tests and property tests of the breaker.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(15);

/// A breaker, and a time that the test sets.
struct Bench {
    breaker: Breaker,
    now: Instant,
}

impl Bench {
    fn new(params: Params) -> Self {
        let now = Instant::now();
        Self { breaker: Breaker::new(params, now), now }
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self
    }

    fn begin(&mut self) -> Option<Ticket> {
        let mut ticket = self.breaker.reserve(self.now)?;
        self.breaker.begin(&mut ticket, self.now, TIMEOUT);
        Some(ticket)
    }

    fn end(&mut self, ticket: Ticket, verdict: Verdict) {
        self.breaker.end(ticket, Some(verdict), self.now);
    }

    fn calls(&mut self, verdicts: &str) -> &mut Self {
        for verdict in verdicts.chars() {
            let ticket = self.begin().expect("the breaker admits the call");
            self.end(ticket, if verdict == '+' { Verdict::Success } else { Verdict::Failure });
        }
        self
    }

    fn state(&mut self) -> State {
        self.breaker.state(self.now)
    }

    fn opened() -> Self {
        let mut bench = Self::new(Params::default());
        bench.calls("-----");
        assert_eq!(bench.state(), State::Open);
        bench
    }
}

#[test]
fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
    let check = |verdicts: &str, state: State| {
        assert_eq!(Bench::new(Params::default()).calls(verdicts).state(), state, "{verdicts}");
    };
    check("----", State::Closed);
    check("-----", State::Open);
    check("----+----", State::Closed);
}

#[test]
fn the_failure_ratio_opens_it_from_the_least_number_of_calls_on() {
    let check = |verdicts: String, state: State| {
        assert_eq!(Bench::new(Params::default()).calls(&verdicts).state(), state, "{verdicts}");
    };
    check("+-".repeat(9) + "+", State::Closed);
    check("+-".repeat(10), State::Open);
    check("++-".repeat(20), State::Closed);
}

#[test]
fn calls_that_hang_past_their_deadline_open_it_though_none_has_ended() {
    let mut bench = Bench::new(Params::default());
    let tickets: Vec<_> = (0..20).map(|_| bench.begin().unwrap()).collect();
    assert_eq!(bench.wait(TIMEOUT).state(), State::Closed);
    assert_eq!(bench.wait(SECOND).state(), State::Open);
    drop(tickets);
}

#[test]
fn it_half_opens_after_its_time_and_closes_after_as_many_successes_as_there_are_probes() {
    let mut bench = Bench::opened();
    assert_eq!(bench.wait(5 * SECOND - Duration::from_millis(1)).state(), State::Open);
    assert_eq!(bench.wait(Duration::from_millis(1)).state(), State::HalfOpen);
    let probes: Vec<_> = (0..3).map(|_| bench.begin().unwrap()).collect();
    assert!(bench.begin().is_none(), "no more than three at a time");
    for probe in probes {
        assert_eq!(bench.state(), State::HalfOpen);
        bench.end(probe, Verdict::Success);
    }
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn a_probe_that_fails_opens_it_for_twice_as_long_up_to_the_longest() {
    let mut bench = Bench::opened();
    for seconds in [10, 20, 40, 60, 60] {
        let left = bench.breaker.retry_in(bench.now).unwrap_or_default();
        bench.wait(left).calls("-");
        assert_eq!(
            bench.wait(SECOND * seconds - Duration::from_millis(1)).state(),
            State::Open,
            "{seconds} s"
        );
        assert_eq!(bench.wait(Duration::from_millis(1)).state(), State::HalfOpen, "{seconds} s");
    }
}

#[test]
fn a_calm_time_makes_the_next_opening_short_again_and_flapping_does_not() {
    let mut bench = Bench::opened();
    bench.wait(5 * SECOND).calls("+++").calls("-----");
    assert_eq!(
        bench.wait(9 * SECOND).state(),
        State::Open,
        "it opened again at once, so for ten seconds"
    );
    bench.wait(SECOND).calls("+++").wait(10 * SECOND).calls("-----");
    assert_eq!(bench.wait(5 * SECOND).state(), State::HalfOpen);
}

/// A known bug of breakers: each late failure restarts the open time, so it never half-opens.
#[test]
fn a_late_failure_neither_prolongs_the_opening_nor_counts_after_it() {
    let mut bench = Bench::new(Params::default());
    let late: Vec<_> = (0..20).map(|_| bench.begin().unwrap()).collect();
    bench.calls("-----");
    bench.wait(4 * SECOND);
    let (first, second) = late.split_at(10);
    first.iter().for_each(|&ticket| bench.end(ticket, Verdict::Failure));
    assert_eq!(bench.wait(SECOND).state(), State::HalfOpen);
    second.iter().for_each(|&ticket| bench.end(ticket, Verdict::Failure));
    assert_eq!(bench.state(), State::HalfOpen, "they are no probes");
    assert_eq!(bench.calls("+++").state(), State::Closed);
}

/// A known bug of breakers: a lost probe keeps it half-open forever.
#[test]
fn a_lost_probe_counts_as_failed_after_its_deadline() {
    let mut bench = Bench::opened();
    bench.wait(5 * SECOND);
    let _lost = bench.begin().unwrap();
    assert_eq!(bench.wait(TIMEOUT).state(), State::HalfOpen);
    assert_eq!(bench.wait(Duration::from_millis(1)).state(), State::Open);
    assert_eq!(bench.wait(10 * SECOND).calls("+++").state(), State::Closed);
}

#[test]
fn probes_that_were_reserved_and_not_used_are_there_for_others() {
    let mut bench = Bench::opened();
    bench.wait(5 * SECOND);
    let reserved: Vec<_> = (0..3).map(|_| bench.breaker.reserve(bench.now).unwrap()).collect();
    assert_eq!(bench.breaker.room(bench.now), 0);
    bench.breaker.end(reserved[0], None, bench.now);
    assert_eq!(bench.breaker.room(bench.now), 1);
    bench.wait(RESERVED + SECOND);
    assert_eq!(bench.breaker.room(bench.now), 3, "a leak ends by itself");
}

/// With a task an hour, it was half-open for two more hours.
#[test]
fn one_success_closes_it_if_no_other_call_comes_for_its_open_time() {
    let millisecond = Duration::from_millis(1);
    let mut bench = Bench::opened();
    assert_eq!(bench.wait(3600 * SECOND).state(), State::HalfOpen, "nothing has succeeded");
    bench.calls("+");
    assert_eq!(bench.wait(5 * SECOND - millisecond).state(), State::HalfOpen);
    assert_eq!(bench.wait(millisecond).state(), State::Closed);
    // A probe that still runs may fail.
    let mut bench = Bench::opened();
    bench.wait(5 * SECOND);
    let slow = bench.begin().unwrap();
    bench.calls("+");
    assert_eq!(bench.wait(10 * SECOND).state(), State::HalfOpen);
    bench.end(slow, Verdict::Failure);
    assert_eq!(bench.state(), State::Open);
    // It was open for ten seconds.
    bench.wait(10 * SECOND).calls("+");
    assert_eq!(bench.wait(10 * SECOND - millisecond).state(), State::HalfOpen);
    assert_eq!(bench.wait(millisecond).state(), State::Closed);
}

proptest! {
    /// The breaker never gets stuck: when the target is well, it closes within a bounded time.
    #[test]
    fn it_always_finds_its_way_back(
        events in prop::collection::vec((0_u8..4, 0_u64..20_000), 0..200),
    ) {
        let mut bench = Bench::new(Params::default());
        let mut out = Vec::new();
        for (event, number) in events {
            match event {
                0 => drop(bench.wait(Duration::from_millis(number))),
                1 => out.extend(bench.begin()),
                2 if !out.is_empty() => {
                    let ticket = out.swap_remove(number as usize % out.len());
                    let verdicts = [Some(Verdict::Success), Some(Verdict::Failure), None];
                    let verdict = verdicts[number as usize % 3];
                    bench.breaker.end(ticket, verdict, bench.now);
                }
                _ => drop(bench.state()),
            }
            let (state, room) = (bench.state(), bench.breaker.room(bench.now));
            let fits = match state {
                State::Closed => room == usize::MAX,
                State::Open => room == 0,
                State::HalfOpen => room <= 3,
            };
            prop_assert!(fits, "{:?} with room for {}", state, room);
            prop_assert_eq!(bench.breaker.retry_in(bench.now).is_none(), room > 0);
        }
        // From now on every permitted call succeeds at once. Earlier ones are lost.
        for _ in 0..200 {
            if bench.state() == State::Closed {
                return Ok(());
            }
            match bench.breaker.retry_in(bench.now) {
                Some(wait) => drop(bench.wait(wait)),
                None => drop(bench.calls("+")),
            }
        }
        prop_assert!(false, "still {:?}", bench.state());
    }
}

#[test]
fn a_probe_by_hand_that_fails_does_not_double_the_wait() {
    let mut bench = Bench::opened();
    for _ in 0..3 {
        bench.breaker.end_wait(bench.now);
        bench.calls("-");
        assert_eq!(bench.wait(SECOND).state(), State::Open);
    }
    assert_eq!(bench.wait(4 * SECOND).state(), State::HalfOpen);
    bench.calls("-");
    assert_eq!(bench.wait(9 * SECOND).state(), State::Open);
    assert_eq!(bench.wait(SECOND).state(), State::HalfOpen);
}
