//! Keeps a token: requests one, and the next one before it expires.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::OAuth;
use super::fetch::{TokenGrant, Ungranted, basic_pair, fetch};
use crate::callback::Client;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A token is renewed this long before it expires, or after three quarters of its lifetime.
const BEFORE: Duration = Duration::from_secs(30);
/// The wait after a failure. It doubles with each further one.
const SHORTEST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Keeps the token of a service, until it is aborted. `told` hears of each request, and whether it
/// succeeded.
pub async fn keep(oauth: Arc<OAuth>, client: Client, told: impl Fn(bool)) {
    let mut failures = 0;
    loop {
        let asked = Instant::now();
        let granted = expiring(&oauth, request(&oauth, &client)).await;
        told(granted.is_ok());
        match granted {
            Ok(grant) => {
                failures = 0;
                let renew = asked + renewed_after(grant.lifetime);
                oauth.granted(grant, asked);
                until_wanted(&oauth, renew).await;
            }
            Err(error) => {
                oauth.failed(&error.to_string());
                let wait = wait_after(failures).mul_f64(rand::random_range(0.8..1.2));
                failures += 1;
                expiring(&oauth, sleep(wait)).await;
            }
        }
    }
}

/// Requests a token once.
async fn request(oauth: &Arc<OAuth>, client: &Client) -> Result<TokenGrant, Ungranted> {
    let params = oauth.params();
    let source = params.client_secret.clone();
    // It may be a file.
    let read = tokio::task::spawn_blocking(move || source.read()).await;
    let secret = read.expect("reading a secret does not panic")?;
    oauth.remember(basic_pair(&params.client_id, &secret));
    oauth.remember(secret.clone());
    fetch(client, params, &secret, TIMEOUT).await
}

/// Waits until the token is to be renewed, or a call was refused with it.
async fn until_wanted(oauth: &OAuth, renew: Instant) {
    let mut sleeping = pin!(sleep_until(renew));
    while !oauth.wants_another() {
        tokio::select! {
            () = &mut sleeping => return,
            () = oauth.refused.notified() => {}
        }
    }
}

/// Waits for `work`. A token that expires meanwhile is given up.
async fn expiring<T>(oauth: &OAuth, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        let expires = oauth.expires();
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = sleep_until(expires.unwrap_or_else(Instant::now)), if expires.is_some() => {
                oauth.drop_expired();
            }
        }
    }
}

fn renewed_after(lifetime: Duration) -> Duration {
    lifetime.saturating_sub(BEFORE).max(lifetime * 3 / 4)
}

/// The wait after this many failures before, without jitter.
fn wait_after(failures: u32) -> Duration {
    (SHORTEST_WAIT * 2_u32.pow(failures.min(10))).min(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_before_it_expires() {
        let check = |lifetime: u64, expected: u64| {
            let after = renewed_after(Duration::from_millis(lifetime));
            assert_eq!(after, Duration::from_millis(expected));
        };
        check(1_000, 750);
        check(5_000, 3_750);
        check(120_000, 90_000);
        check(3_600_000, 3_570_000);
    }

    #[test]
    fn the_waits_double_up_to_a_limit() {
        let waits = [0, 1, 5, 6, 7, 1_000].map(|failures| wait_after(failures).as_millis());
        assert_eq!(waits, [500, 1_000, 16_000, 30_000, 30_000, 30_000]);
    }
}
