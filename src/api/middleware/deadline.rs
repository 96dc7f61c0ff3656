//! The deadline of a request's answer. That includes reading a slow body.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::wire::error::Error;

/// The deadline of a request's answer. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self(Arc::new(Mutex::new(Instant::now() + limit)))
    }

    /// Extends the deadline by the `wait` that the caller asked for.
    pub(crate) fn put_off(&self, wait: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += wait;
    }

    fn moment(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, if it comes before the deadline.
    ///
    /// # Errors
    /// 503 otherwise.
    pub(crate) async fn limit<T>(
        &self,
        only_reads: bool,
        mut answer: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        loop {
            let moment = self.moment();
            match tokio::time::timeout_at(moment, answer.as_mut()).await {
                Ok(answer) => return answer,
                Err(_) if self.moment() > moment => {}
                Err(_) => {
                    return Err(match only_reads {
                        true => Error::Unavailable("the request took too long: try again"),
                        false => Error::Unconfirmed(
                            "the request took too long, so it is not confirmed: repeat it",
                        ),
                    });
                }
            }
        }
    }
}
