//! `delayd add --retry`: repeats an add until it is confirmed.

use std::time::Duration;

use anyhow::anyhow;
use delayd_wire::{ErrorCode, Stored};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout};

use super::client::ApiClient;

pub(super) const PATH: &str = "/delay/task/add";
/// The longest time of one attempt. The service answers within 10 s, or not at all.
const ATTEMPT: Duration = Duration::from_secs(15);
/// The first and the longest wait, unless the service names a longer one. Each next wait is up to
/// twice as long.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// A random idempotency key.
pub(super) fn new_key() -> String {
    format!("delayd-add-{:032x}", rand::random::<u128>())
}

/// Posts an add until it is confirmed or refused, for at most `patience`. `body` has the
/// idempotency key `key`. Returns the answer, and its text.
///
/// # Errors
/// A refusal. If the task may be stored all the same, the error names the key.
pub(super) async fn add(
    client: &ApiClient,
    body: &impl Serialize,
    key: &str,
    patience: Duration,
) -> anyhow::Result<(Stored, String)> {
    let until = Instant::now() + patience;
    let (mut backoff, mut may_be_stored) = (FIRST, false);
    loop {
        let longest = ATTEMPT.min(until.saturating_duration_since(Instant::now()));
        let (why, retry_after, code) = match timeout(longest, client.post(PATH, body)).await {
            Ok(Ok(answer)) => {
                let (code, after, text) = (answer.code(), answer.retry_after, answer.text.clone());
                match answer.checked() {
                    Ok(stored) => return Ok((stored, text)),
                    Err(refused) => (refused, after, Some(code)),
                }
            }
            Ok(Err(error)) => (error, None, None),
            Err(_) => (anyhow!("no answer within {} s", longest.as_secs_f32()), None, None),
        };
        may_be_stored |= is_unconfirmed(code);
        // The jitter keeps callers that failed together from coming back together.
        let jittered = backoff.mul_f64(rand::random_range(0.5..=1.0));
        let wait = retry_after.unwrap_or_default().max(jittered);
        let is_final = !is_unconfirmed(code) && code != Some(ErrorCode::UsedUp);
        if is_final || Instant::now() + wait > until {
            return Err(if may_be_stored { unconfirmed(why, key) } else { why });
        }
        eprintln!("delayd: trying again: {why}");
        sleep(wait).await;
        backoff = (2 * backoff).min(LONGEST);
    }
}

/// Whether the task may be stored after an answer with this code, or after none.
fn is_unconfirmed(code: Option<ErrorCode>) -> bool {
    code.is_none_or(|code| matches!(code, ErrorCode::Unavailable | ErrorCode::Internal))
}

fn unconfirmed(why: anyhow::Error, key: &str) -> anyhow::Error {
    why.context(format!(
        "the add is not confirmed, and the task may be stored or not; repeat it with \
         --idempotency-key {key}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_failures_leave_it_open_whether_the_task_is_stored() {
        let check = |code, expected| assert_eq!(is_unconfirmed(code), expected, "{code:?}");
        check(None, true);
        check(Some(ErrorCode::Unavailable), true);
        check(Some(ErrorCode::Internal), true);
        check(Some(ErrorCode::UsedUp), false);
        check(Some(ErrorCode::Invalid), false);
        check(Some(ErrorCode::KeyReused), false);
    }

    #[test]
    fn keys_are_random_and_short_enough() {
        let (one, other) = (new_key(), new_key());
        assert!(one != other && one.len() <= 256, "{one} {other}");
    }
}
