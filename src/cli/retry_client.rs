//! A client that retries: while a service restarts, or when the service asks for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::bail;
use delayd_wire::{ErrorCode, Nothing};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::client::{ApiClient, RefusedByService, ServiceAnswer};

/// The first and the maximum wait, unless the service names one. Each next wait is twice as long.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);

/// Repeats unconfirmed calls: without an answer, or with 503 or 429.
pub(super) struct RetryClient {
    client: ApiClient,
    patience: Duration,
    /// An unreachable service at the very beginning is most likely a wrong address.
    was_reached: AtomicBool,
}

/// The waits between the attempts of one call.
pub(super) struct Waits {
    until: Instant,
    next: Duration,
}

impl RetryClient {
    pub(super) fn new(client: ApiClient, patience: Duration) -> Self {
        Self { client, patience, was_reached: AtomicBool::new(false) }
    }

    pub(super) fn waits(&self) -> Waits {
        Waits { until: Instant::now() + self.patience, next: FIRST }
    }

    /// Posts `body` until the service confirms or refuses it.
    ///
    /// # Errors
    /// A refusal, or no confirmation within the patience.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        self.call_with(path, body, async || (), ServiceAnswer::checked).await
    }

    /// Like [`RetryClient::call`]. Returns the text of the answer as well.
    pub(super) async fn call_for_text<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<(String, A)> {
        let read = |answer: ServiceAnswer| Ok((answer.text.clone(), answer.checked()?));
        self.call_with(path, body, async || (), read).await
    }

    /// Like [`RetryClient::call`], for a batch: returns the results of its items also if all of
    /// them failed. Calls `between` before each further attempt.
    pub(super) async fn call_batch<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        between: impl AsyncFn(),
    ) -> anyhow::Result<A> {
        self.call_with(path, body, between, ServiceAnswer::batch).await
    }

    async fn call_with<A>(
        &self,
        path: &str,
        body: &impl Serialize,
        between: impl AsyncFn(),
        read: impl Fn(ServiceAnswer) -> anyhow::Result<A>,
    ) -> anyhow::Result<A> {
        let mut waits = self.waits();
        loop {
            let (refused, asked) = match self.client.post(path, body).await {
                Ok(answer) => {
                    self.was_reached.store(true, Ordering::Relaxed);
                    let asked = answer.retry_after;
                    if !answer.code().passes() {
                        return read(answer);
                    }
                    match answer.checked() {
                        Err(refused) => (refused, asked),
                        Ok(Nothing {}) => bail!("a failure was read as a success"),
                    }
                }
                Err(error) if !self.was_reached.load(Ordering::Relaxed) => return Err(error),
                Err(error) => (error, None),
            };
            waits.wait(refused, asked).await?;
            between().await;
        }
    }

    /// Posts `body` once, and returns whether it succeeded.
    pub(super) async fn try_once(&self, path: &str, body: &impl Serialize) -> bool {
        self.client.post(path, body).await.is_ok_and(|answer| answer.code() == ErrorCode::Ok)
    }

    /// Returns the answer, or `None` if nothing was found (1004).
    pub(super) async fn find<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<Option<A>> {
        match self.call(path, body).await {
            Err(error) if RefusedByService::is(&error, ErrorCode::NotFound) => Ok(None),
            found => found.map(Some),
        }
    }
}

impl Waits {
    /// Waits before the next attempt.
    ///
    /// # Errors
    /// `why`, once the patience is over.
    pub(super) async fn wait(
        &mut self,
        why: anyhow::Error,
        asked: Option<Duration>,
    ) -> anyhow::Result<()> {
        let now = Instant::now();
        if now >= self.until {
            return Err(why);
        }
        sleep(asked.unwrap_or(self.next).min(self.until - now)).await;
        self.next = (self.next * 2).min(LONGEST);
        Ok(())
    }
}
