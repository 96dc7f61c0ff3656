//! A token bucket, which keeps a rate.

use std::time::Duration;

use delayd_wire::Rate;
use tokio::time::Instant;

/// So much of a second's tokens may be saved up: what had to wait a little may catch up, and there
/// is no burst.
const SAVED: f64 = 0.1;

/// The shortest wait for tokens. At a high rate several come together, instead of one timer each.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// A token bucket that fills at a rate. Full at first, as a rule with no more than a tenth of a
/// second's tokens, and at least one: so in any second at most a tenth more than the rate goes
/// through.
///
/// Tokens that were taken and not used can be given back, which is why no rate-limiting crate is
/// used here.
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

    /// A full one that holds the tokens of so long a time.
    pub fn saving(rate: Rate, time: Duration, now: Instant) -> Self {
        Self::of_capacity(rate, (rate.per_second() * time.as_secs_f64()).max(1.0), now)
    }

    fn of_capacity(rate: Rate, capacity: f64, now: Instant) -> Self {
        Self { rate, capacity, tokens: capacity, filled: now }
    }

    /// The rate at which it fills.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whole tokens in it now.
    pub fn available(&self, now: Instant) -> usize {
        // Rounding in the sum of many small fillings must not cost a token.
        (self.level(now) + 1e-6) as usize
    }

    /// Takes tokens, of which there must be enough.
    pub fn take(&mut self, count: usize, now: Instant) {
        self.tokens = (self.level(now) - count as f64).max(0.0);
        self.filled = now;
    }

    /// Puts tokens back that were not used.
    pub fn give_back(&mut self, count: usize, now: Instant) {
        self.tokens = (self.level(now) + count as f64).min(self.capacity);
        self.filled = now;
    }

    /// How long until there is a token, if there is none.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        if self.available(now) > 0 {
            return None;
        }
        let wait =
            Duration::from_secs_f64((1.0 - self.level(now)).max(0.0) / self.rate.per_second());
        Some(wait.max(SHORTEST_WAIT))
    }

    /// Whether no more tokens go in.
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
