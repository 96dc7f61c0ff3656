//! How often something may happen: a rate as people write it, and the bucket of tokens that keeps
//! it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::Instant;

/// So much of a second's tokens may be saved up: what had to wait a little may catch up, and there
/// is no burst.
const SAVED: f64 = 0.1;

/// The shortest wait for tokens. At a high rate several come together, instead of one timer each.
const SHORTEST_WAIT: Duration = Duration::from_millis(5);

/// Events in a time: `"100/s"`, `"6000/m"`, `"500/h"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    count: u32,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Second,
    Minute,
    Hour,
}

/// What a text that is no rate is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a number from 1 to 1000000 with a unit of time, such as \"100/s\", \"6000/m\" or \"500/h\""
)]
pub struct InvalidRate;

impl Rate {
    /// Events in a second.
    pub fn per_second(self) -> f64 {
        let seconds = match self.unit {
            Unit::Second => 1.0,
            Unit::Minute => 60.0,
            Unit::Hour => 3600.0,
        };
        f64::from(self.count) / seconds
    }
}

impl FromStr for Rate {
    type Err = InvalidRate;

    fn from_str(text: &str) -> Result<Self, InvalidRate> {
        let (count, unit) = text.split_once('/').ok_or(InvalidRate)?;
        let unit = match unit.trim() {
            "s" => Unit::Second,
            "m" => Unit::Minute,
            "h" => Unit::Hour,
            _ => return Err(InvalidRate),
        };
        let count = count.trim().parse().ok().filter(|count| (1..=1_000_000).contains(count));
        Ok(Self { count: count.ok_or(InvalidRate)?, unit })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Second => "s",
            Unit::Minute => "m",
            Unit::Hour => "h",
        };
        write!(f, "{}/{unit}", self.count)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A token bucket that fills at a rate. Full at first, as a rule with no more than a tenth of a
/// second's tokens, and at least one: so in any second at most a tenth more than the rate goes
/// through.
///
/// Tokens that were taken and not used can be given back, which is why no rate-limiting crate is
/// used here.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    capacity: f64,
    tokens: f64,
    filled: Instant,
}

impl Bucket {
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
    fn a_rate_reads_what_it_writes_and_refuses_the_rest() {
        let check = |text: &str, per_second: Option<f64>| {
            let rate = text.parse::<Rate>();
            assert_eq!(rate.clone().map(Rate::per_second).ok(), per_second, "{text}");
            assert_eq!(rate.map_or(text.into(), |rate| rate.to_string()), text);
        };
        check("100/s", Some(100.0));
        check("6000/m", Some(100.0));
        check("3600/h", Some(1.0));
        check("0/s", None);
        check("-1/s", None);
        check("1.5/s", None);
        check("100", None);
        check("100/d", None);
        check("/s", None);
        check("", None);
        check("1000001/s", None);
    }

    #[test]
    fn over_any_time_no_more_goes_through_than_the_rate_and_a_tenth_of_a_second() {
        let check = |text: &str, seconds: u64| {
            let rate: Rate = text.parse().unwrap();
            let start = Instant::now();
            let mut bucket = Bucket::new(rate, start);
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
            let bucket = Bucket::saving(rate.parse().unwrap(), Duration::from_secs(seconds), now);
            assert_eq!(bucket.available(now + Duration::from_secs(3600)), holds, "{rate}");
        };
        check("100/s", 1, 100);
        check("100/s", 3, 300);
        check("30/m", 1, 1);
    }

    #[test]
    fn tokens_given_back_can_be_taken_again() {
        let now = Instant::now();
        let mut bucket = Bucket::new("20/s".parse().unwrap(), now);
        assert_eq!(bucket.available(now), 2);
        bucket.take(2, now);
        assert_eq!(bucket.available(now), 0);
        bucket.give_back(1, now);
        assert_eq!((bucket.available(now), bucket.wait(now)), (1, None));
        bucket.give_back(5, now);
        assert_eq!(bucket.available(now), 2, "never more than it holds");
    }
}
