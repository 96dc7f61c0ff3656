//! The rate limit of one topic or destination.

use std::time::Duration;

use tokio::time::Instant;

use super::token_bucket::TokenBucket;
use delayd_wire::Rate;

/// A token bucket, or no limit.
#[derive(Debug)]
pub(super) struct RateLimit(Option<TokenBucket>);

impl RateLimit {
    pub(super) fn new(rate: Option<Rate>, now: Instant) -> Self {
        Self(rate.map(|rate| TokenBucket::new(rate, now)))
    }

    /// Changes the rate. A different rate starts with a full bucket.
    pub(super) fn set(&mut self, rate: Option<Rate>, now: Instant) {
        if self.rate() != rate {
            *self = Self::new(rate, now);
        }
    }

    /// The rate.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.0.map(|bucket| bucket.rate())
    }

    /// How many calls may begin now.
    pub(super) fn available(&self, now: Instant) -> usize {
        self.0.map_or(usize::MAX, |bucket| bucket.available(now))
    }

    /// Takes tokens. There must be enough.
    pub(super) fn take(&mut self, count: usize, now: Instant) {
        if let Some(bucket) = &mut self.0 {
            bucket.take(count, now);
        }
    }

    /// Gives back the tokens of calls that did not begin.
    pub(super) fn give_back(&mut self, count: usize, now: Instant) {
        if let Some(bucket) = &mut self.0 {
            bucket.give_back(count, now);
        }
    }

    /// How long until there is a token; `None` if there is one.
    pub(super) fn retry_in(&self, now: Instant) -> Option<Duration> {
        self.0.and_then(|bucket| bucket.wait(now))
    }

    /// Whether the bucket is full, as a new one would be.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.0.is_none_or(|bucket| bucket.is_full(now))
    }
}
