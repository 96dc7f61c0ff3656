//! A token bucket: limits how many calls begin in a time.

use std::time::Duration;

use delayd_wire::Rate;
use tokio::time::Instant;

/// The bucket holds the tokens of so many seconds. After a short wait, calls can catch up, but
/// there is no burst.
const SAVED: f64 = 0.1;

/// The shortest wait for tokens. At a high rate, one timer then covers several tokens.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// A token bucket that fills at a rate. It begins full. By default it holds the tokens of a tenth
/// of a second, and at least one, so that no second has more than 110 % of the rate.
///
/// Unused tokens can be given back. Crates for rate limiting do not offer that.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    capacity: f64,
    tokens: f64,
    filled: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self::of_capacity(rate, capacity(rate), now)
    }

    /// A full bucket that holds the tokens of `time`.
    pub fn saving(rate: Rate, time: Duration, now: Instant) -> Self {
        Self::of_capacity(rate, (rate.per_second() * time.as_secs_f64()).max(1.0), now)
    }

    fn of_capacity(rate: Rate, capacity: f64, now: Instant) -> Self {
        Self { rate, capacity, tokens: capacity, filled: now }
    }

    /// The rate at which the bucket fills.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The number of whole tokens.
    pub fn available(&self, now: Instant) -> usize {
        // Rounding errors of many small additions must not cost a token.
        (self.level(now) + 1e-6) as usize
    }

    /// Takes tokens. There must be enough.
    pub fn take(&mut self, count: usize, now: Instant) {
        self.tokens = (self.level(now) - count as f64).max(0.0);
        self.filled = now;
    }

    /// Gives unused tokens back.
    pub fn give_back(&mut self, count: usize, now: Instant) {
        self.tokens = (self.level(now) + count as f64).min(self.capacity);
        self.filled = now;
    }

    /// How long until there is a token; `None` if there is one.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        if self.available(now) > 0 {
            return None;
        }
        let wait =
            Duration::from_secs_f64((1.0 - self.level(now)).max(0.0) / self.rate.per_second());
        Some(wait.max(SHORTEST_WAIT))
    }

    /// Whether the bucket is full.
    pub fn is_full(&self, now: Instant) -> bool {
        self.level(now) >= self.capacity
    }

    fn level(&self, now: Instant) -> f64 {
        let filled =
            now.saturating_duration_since(self.filled).as_secs_f64() * self.rate.per_second();
        (self.tokens + filled).min(self.capacity)
    }
}

fn capacity(rate: Rate) -> f64 {
    (rate.per_second() * SAVED).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_time_no_more_goes_through_than_the_rate_and_a_tenth_of_a_second() {
        let check = |text: &str, seconds: u64| {
            let rate: Rate = text.parse().unwrap();
            let start = Instant::now();
            let mut bucket = TokenBucket::new(rate, start);
            let mut taken = 0;
            let mut now = start;
            while now <= start + Duration::from_secs(seconds) {
                let count = bucket.available(now);
                bucket.take(count, now);
                taken += count;
                now += bucket.wait(now).expect("it is empty now");
            }
            let wanted = rate.per_second() * seconds as f64;
            assert!(
                taken as f64 <= wanted + capacity(rate) + 1.0,
                "{text}: {taken} in {seconds} s"
            );
            assert!(taken as f64 >= wanted * 0.99, "{text}: {taken} in {seconds} s");
        };
        check("1/s", 100);
        check("100/s", 10);
        check("10000/s", 3);
        check("3000/m", 10);
    }

    #[test]
    fn a_bucket_saves_as_much_as_it_is_told() {
        let now = Instant::now();
        let check = |rate: &str, seconds: u64, holds: usize| {
            let bucket =
                TokenBucket::saving(rate.parse().unwrap(), Duration::from_secs(seconds), now);
            assert_eq!(bucket.available(now + Duration::from_secs(3600)), holds, "{rate}");
        };
        check("100/s", 1, 100);
        check("100/s", 3, 300);
        check("30/m", 1, 1);
    }

    #[test]
    fn tokens_given_back_can_be_taken_again() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new("20/s".parse().unwrap(), now);
        assert_eq!(bucket.available(now), 2);
        bucket.take(2, now);
        assert_eq!(bucket.available(now), 0);
        bucket.give_back(1, now);
        assert_eq!((bucket.available(now), bucket.wait(now)), (1, None));
        bucket.give_back(5, now);
        assert_eq!(bucket.available(now), 2, "never more than it holds");
    }
}
