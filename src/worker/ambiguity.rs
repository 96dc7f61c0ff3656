//! Warns of services whose answers count as success although a field in them usually says that a
//! call failed. Such a service would lose tasks silently.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::task::Destination;

/// The time between two warnings about a service.
const EVERY: Duration = Duration::from_secs(3600);
/// The most services whose last warning is remembered. Callers can name any number of hosts;
/// further ones are only counted.
const MOST: usize = 1_024;

/// When each service was warned of last.
#[derive(Debug, Default)]
pub(super) struct AmbiguityWarnings(Mutex<HashMap<Destination, Instant>>);

impl AmbiguityWarnings {
    /// Logs the warning, unless it was logged within the last hour.
    pub(super) fn warn(&self, sn: &Destination, outcome: &str, field: &'static str) {
        if !self.is_news(sn, Instant::now()) {
            return;
        }
        let end = match sn.is_host() {
            true => "list the service in [services], with a rule in `success`".to_owned(),
            false => format!(
                "set services.\"{sn}\".success, for example to {{ pointer = \"/{field}\", equals = \
                 [{}] }}",
                if field == "success" { "true" } else { "0" }
            ),
        };
        tracing::warn!(
            %sn, outcome, field,
            "Service {sn} answered {outcome}, and the field \"{field}\" of the answer looks like a \
             failure. The task counts as delivered. To say what counts as success, {end}"
        );
    }

    fn is_news(&self, sn: &Destination, now: Instant) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.get(sn).is_some_and(|at| now.duration_since(*at) < EVERY) {
            return false;
        }
        if warned.len() >= MOST {
            warned.retain(|_, at| now.duration_since(*at) < EVERY);
        }
        let has_room = warned.len() < MOST;
        if has_room {
            warned.insert(sn.clone(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_service_is_warned_of_once_an_hour() {
        let ambiguity = AmbiguityWarnings::default();
        let is_news = |name: &str| ambiguity.is_news(&name.parse().unwrap(), Instant::now());
        assert!(is_news("a") && is_news("b"));
        assert!(!is_news("a") && !is_news("b"));
        tokio::time::advance(EVERY - Duration::from_millis(1)).await;
        assert!(!is_news("a"));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(is_news("a") && !is_news("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_services_is_remembered() {
        let ambiguity = AmbiguityWarnings::default();
        let is_news =
            |n: usize| ambiguity.is_news(&format!("s{n}").parse().unwrap(), Instant::now());
        assert!((0..MOST).all(is_news));
        assert!(!is_news(MOST));
        tokio::time::advance(EVERY).await;
        assert!(is_news(MOST));
        assert_eq!(ambiguity.0.lock().unwrap().len(), 1);
    }
}
