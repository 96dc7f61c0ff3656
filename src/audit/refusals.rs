//! Bounds how many refused requests are recorded.
//!
//! Anyone who reaches the port can send requests that are refused. Without a bound, their entries
//! would fill the log, and remove those of other actions from the store.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use delayd_wire::Rate;
use tokio::time::Instant;

use crate::limits::TokenBucket;

/// How many refused requests of a token are recorded at once, and the time until the next one.
const AT_ONCE: u32 = 20;
const EVERY: Duration = Duration::from_secs(60);
/// [`EVERY`] as a rate.
const RATE: &str = "1/m";

/// One bucket for each token, and one for all callers without a known token.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<HashMap<Option<String>, RefusalBucket>>);

#[derive(Debug)]
struct RefusalBucket {
    bucket: TokenBucket,
    unrecorded: u64,
}

impl Refusals {
    /// Takes a refused request. Returns the number of earlier ones that were not recorded, or
    /// `None` if this one is not recorded either.
    pub(super) fn admit(&self, token: Option<&str>) -> Option<u64> {
        let now = Instant::now();
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rate: Rate = RATE.parse().expect("a rate");
        let fresh = || RefusalBucket {
            bucket: TokenBucket::saving(rate, EVERY * AT_ONCE, now),
            unrecorded: 0,
        };
        // Only names of configured tokens get here, so the map stays small.
        let of_token = buckets.entry(token.map(str::to_owned)).or_insert_with(fresh);
        if of_token.bucket.available(now) == 0 {
            of_token.unrecorded += 1;
            return None;
        }
        of_token.bucket.take(1, now);
        Some(std::mem::take(&mut of_token.unrecorded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn refused_requests_are_recorded_at_a_bounded_rate() {
        let refusals = Refusals::default();
        let admitted = |token: Option<&str>, times: usize| -> Vec<u64> {
            (0..times).filter_map(|_| refusals.admit(token)).collect()
        };
        assert_eq!(admitted(None, 1_000), [0; AT_ONCE as usize]);
        assert_eq!(admitted(Some("a"), 1), [0]);
        tokio::time::advance(EVERY).await;
        assert_eq!(admitted(None, 5), [1_000 - u64::from(AT_ONCE)]);
        tokio::time::advance(EVERY * 2).await;
        assert_eq!(admitted(None, 5), [4, 0]);
    }
}
