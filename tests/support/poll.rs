//! Bounded polls, for conditions that can only be asked for.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::time::{Duration, Instant};

/// How long a poll goes on: long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks until there is an answer; `None` after a minute.
pub(crate) async fn answer<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks until the condition holds. Returns whether it did within a minute.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) -> bool {
    answer(async || holds().await.then_some(())).await.is_some()
}
