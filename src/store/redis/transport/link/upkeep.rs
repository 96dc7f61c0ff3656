//! Keeps a link healthy, and measures its round trip.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{self, FromRedisValue, RedisError, Value};
use tokio::time::Instant;

use super::{Link, LiveConnection};
use crate::model::breaker::State;
use crate::store::Error;
use crate::store::redis::transport::address::Address;
use crate::store::redis::transport::dial::Dialer;
use crate::store::redis::transport::fault::of_redis;
use crate::store::redis::transport::server;

/// The delay between two attempts to connect, and between two polls of an open breaker.
const REST: Duration = Duration::from_millis(100);
/// The interval between two checks of a healthy connection.
const ROUND: Duration = Duration::from_secs(1);
/// Every tenth check includes the server's settings.
const ROUNDS_A_LOOK: u32 = 10;

impl Link {
    /// Keeps the link healthy for as long as it is polled. It reconnects while the server is
    /// unreachable and sends the probes of a half-open breaker. It notices an unused connection
    /// that died or leads to another server, and changes of the server's durability.
    ///
    /// A link that is used each second notices by itself that its connection died. It leaves the
    /// checks of the server to `other` while that is connected to the same one.
    pub(crate) async fn look_after(&self, other: Option<&Self>) {
        for round in 0_u32.. {
            let rest = match (self.params.gate.state(), self.current()) {
                (State::Open, _) => REST,
                (_, None) => {
                    // The attempt itself remembers and logs a failure.
                    let _ = self.reconnect(self.connecting.lock().await).await;
                    REST
                }
                (State::Closed, Some(live)) => {
                    let checked = other.and_then(Self::current);
                    if checked.is_none_or(|other| other.at() != live.at()) {
                        self.look(&live, round.is_multiple_of(ROUNDS_A_LOOK)).await;
                    }
                    ROUND
                }
                (State::HalfOpen, Some(live)) => {
                    self.look(&live, false).await;
                    REST
                }
            };
            tokio::time::sleep(rest).await;
        }
    }

    async fn look(&self, live: &Arc<LiveConnection>, thoroughly: bool) {
        let dialer = self.params.pool.manager();
        let dialed = live.dialed();
        let asked = Instant::now();
        // The link has noticed a failure.
        let Ok(answers) =
            self.send(live, &[redis::cmd("INFO").arg("replication").take()], None).await
        else {
            return;
        };
        self.round_trips.took(asked.elapsed());
        if let Some(trouble) = trouble(answers.into_iter().next()) {
            tracing::warn!(server = %dialed.at, "{trouble}; reconnecting");
            self.discard(live);
        } else if self.leads_elsewhere(dialer, &dialed.at).await {
            tracing::warn!(server = %dialed.at, "The sentinels name another primary; reconnecting");
            self.discard(live);
        } else if thoroughly {
            match server::inspect(&mut dialed.connection.clone(), dialer.mode).await {
                Ok(server) => self.keeps(&server),
                Err(error @ Error::Misconfigured(_)) => {
                    tracing::warn!(
                        server = %dialed.at,
                        %error,
                        "Redis is no longer fit for use; reconnecting"
                    );
                    self.discard(live);
                }
                Err(error) => {
                    tracing::warn!(
                        server = %dialed.at,
                        %error,
                        "Redis refuses the check of its settings; reconnecting"
                    );
                    self.discard(live);
                }
            }
        }
    }

    /// Whether the connection leads to the wrong server. Takes at most the timeout, and stops if
    /// the breaker opens: silent sentinels must not keep this link from being checked.
    async fn leads_elsewhere(&self, dialer: &Dialer, at: &Address) -> bool {
        let opens = async {
            while self.breaker() == State::Closed {
                tokio::time::sleep(REST).await;
            }
        };
        tokio::select! {
            elsewhere = dialer.leads_elsewhere(at) => elsewhere,
            () = opens => false,
            () = tokio::time::sleep(self.params.timeout) => false,
        }
    }
}

/// What is wrong with a server that gave this answer to `INFO replication`; `None` if it is a
/// primary.
fn trouble(answer: Option<std::result::Result<Value, RedisError>>) -> Option<String> {
    let info = match answer {
        Some(Err(error)) => {
            return Some(format!("Redis refuses the check of its role ({})", of_redis(&error)));
        }
        Some(Ok(info)) => String::from_redis_value(info).unwrap_or_default(),
        None => String::new(),
    };
    (!server::is_primary(&info)).then(|| "This Redis is no longer a primary".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::transport::fault::refusal;

    /// A Redis on which a script ran for too long was logged as no longer a primary.
    #[test]
    fn a_server_that_refuses_the_check_is_not_called_a_replica() {
        let info = |role: &str| Ok(Value::BulkString(format!("role:{role}\r\n").into_bytes()));
        assert_eq!(trouble(Some(info("master"))), None);
        let replica = trouble(Some(info("slave"))).unwrap();
        assert_eq!(replica, "This Redis is no longer a primary");
        let busy = trouble(Some(Err(refusal("BUSY Redis is busy running a script")))).unwrap();
        assert!(busy.contains("busy") && !busy.contains("primary"), "{busy}");
        let loading = trouble(Some(Err(refusal("LOADING Redis is loading")))).unwrap();
        assert!(loading.contains("loading its data"), "{loading}");
    }
}
