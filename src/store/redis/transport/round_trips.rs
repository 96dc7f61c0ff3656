//! The round trip to a server, as the last requests show it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How many requests count: five minutes of checks, so that a busy server does not seem far away.
const KEPT: usize = 300;
/// How many requests show anything: each of the first ones may have been delayed.
const LEAST: usize = 3;

/// How long the last requests took. The shortest shows the network: the others also waited for
/// work of the server or of this process.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips {
    last: Mutex<VecDeque<Duration>>,
    /// The shortest of them in microseconds: each claim and each batch of adds asks for it.
    shortest: AtomicU64,
}

impl RoundTrips {
    /// A request took this long.
    pub(crate) fn took(&self, time: Duration) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.truncate(KEPT - 1);
        last.push_front(time);
        let shortest = last.iter().min().filter(|_| last.len() >= LEAST);
        let micros = shortest.map_or(0, |shortest| shortest.as_micros() as u64);
        self.shortest.store(micros, Ordering::Relaxed);
    }

    /// The shortest of the last requests; zero before there are some.
    pub(crate) fn shortest(&self) -> Duration {
        Duration::from_micros(self.shortest.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_request_says_nothing_and_many_say_that_the_server_is_far() {
        let trips = RoundTrips::default();
        let check = |took: u64, shortest: u64| {
            trips.took(Duration::from_millis(took));
            assert_eq!(trips.shortest(), Duration::from_millis(shortest), "after {took} ms");
        };
        check(5, 0);
        check(5, 0);
        check(4, 4);
        check(1, 1);
        for _ in 0..KEPT - 1 {
            check(9, 1);
        }
        check(9, 9);
        check(2, 2);
    }
}
