//! Keeps the OAuth access tokens of services, one keeper for each service, and closes the gate of a
//! service while it has none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::callback::{Changes, Client, OAuth, Service, Services, keep};
use crate::limits::DestinationLimits;
use crate::metrics::{Metrics, TokenMetrics};
use crate::model::task::Destination;

/// The keepers of all services. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Keepers {
    client: Client,
    limits: DestinationLimits,
    metrics: Arc<Metrics>,
    running: Mutex<HashMap<Destination, TokenKeeper>>,
}

#[derive(Debug)]
struct TokenKeeper {
    oauth: Arc<OAuth>,
    task: AbortHandle,
    ended: Arc<Mutex<bool>>,
}

impl Keepers {
    pub(super) fn new(client: Client, limits: DestinationLimits, metrics: Arc<Metrics>) -> Self {
        Self { client, limits, metrics, running: Mutex::default() }
    }

    /// Keeps the tokens of exactly these services from now on. Those whose settings did not change
    /// keep their token.
    pub(super) fn follow(&self, services: &Services) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *running);
        for service in services.all() {
            let Some(oauth) = service.oauth() else { continue };
            let same =
                before.remove(service.name()).filter(|keeper| Arc::ptr_eq(&keeper.oauth, oauth));
            let keeper = same.unwrap_or_else(|| self.start(&service, oauth));
            running.insert(service.name().clone(), keeper);
        }
        for (sn, keeper) in before {
            drop(keeper);
            if !running.contains_key(&sn) {
                self.limits.set_no_token(&sn, None);
                self.metrics.tokens.of(sn.as_str()).missing(false);
            }
        }
    }

    /// Starts a keeper. Until it has a token, the service is not called.
    fn start(&self, service: &Service, oauth: &Arc<OAuth>) -> TokenKeeper {
        let sn = service.name().clone();
        let metrics = self.metrics.tokens.of(sn.as_str());
        let ended = Arc::new(Mutex::new(false));
        let (limits, of_gate) = (self.limits.clone(), ended.clone());
        let gate = TokenGate { sn, limits, metrics: metrics.clone(), ended: of_gate };
        let changes = oauth.changes();
        gate.set(oauth.no_token());
        let (kept, client) = (oauth.clone(), self.client.clone());
        let task = tokio::spawn(async move {
            let followed = gate.follow(&kept, changes);
            let kept = keep(kept.clone(), client, move |granted| metrics.requested(granted));
            tokio::join!(kept, followed);
        });
        TokenKeeper { oauth: oauth.clone(), task: task.abort_handle(), ended }
    }
}

impl Drop for TokenKeeper {
    fn drop(&mut self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.task.abort();
    }
}

/// The gate of one service.
struct TokenGate {
    sn: Destination,
    limits: DestinationLimits,
    metrics: Arc<TokenMetrics>,
    /// Whether the keeper has ended. An aborted task runs to its next await.
    ended: Arc<Mutex<bool>>,
}

impl TokenGate {
    /// Sets the gate, unless the keeper has ended: others set it then.
    fn set(&self, no_token: Option<String>) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if *ended {
            return;
        }
        self.metrics.missing(no_token.is_some());
        self.limits.set_no_token(&self.sn, no_token);
    }

    /// Follows the token of the service until it is aborted.
    async fn follow(&self, oauth: &OAuth, mut changes: Changes) {
        let (mut logged, sn) = (None, &self.sn);
        loop {
            changes.next().await;
            let (no_token, failure) = (oauth.no_token(), oauth.failure());
            self.set(no_token.clone());
            let now = match (&no_token, &failure) {
                (Some(_), Some(_)) => Some(Logged::Missing),
                // It is requested right now.
                (Some(_), None) => logged,
                (None, Some(_)) => Some(Logged::Old),
                (None, None) => None,
            };
            let why = failure.unwrap_or_default();
            match (logged, now) {
                (before, Some(Logged::Missing)) if before != now => tracing::warn!(
                    %sn, why,
                    "Service {sn} has no OAuth access token ({why}); its tasks wait"
                ),
                (None, Some(Logged::Old)) => tracing::warn!(
                    %sn, why,
                    "The OAuth access token of service {sn} is not renewed ({why}); the old one is \
                     used until it expires"
                ),
                (Some(Logged::Missing), None | Some(Logged::Old)) => {
                    tracing::info!(%sn, "Service {sn} has an OAuth access token again")
                }
                (Some(Logged::Old), None) => {
                    tracing::info!(%sn, "The OAuth access token of service {sn} is renewed again")
                }
                _ => {}
            }
            logged = now;
        }
    }
}

/// What was logged last about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logged {
    /// There is none.
    Missing,
    /// There is one, and no new one.
    Old,
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::callback::{Credentials, OAuthParams, Params, SecretText, ServiceParams};
    use crate::limits::{Allowance, LimitParams};
    use crate::model::breaker;
    use crate::model::clock::Clock;

    /// A service with OAuth, or without it if there is no scope.
    fn services(scope: Option<&str>) -> Vec<ServiceParams> {
        let oauth = scope.map(|scope| OAuthParams {
            token_url: "http://127.0.0.1:1/token".parse().unwrap(),
            client_id: "me".into(),
            client_secret: SecretText::literal("hush"),
            scope: Some(scope.into()),
        });
        vec![ServiceParams {
            name: "shop".into(),
            endpoints: vec!["http://127.0.0.1:1".into()],
            allowance: Allowance::default(),
            success: Default::default(),
            secrets: Vec::new(),
            credentials: Credentials { oauth, ..Credentials::default() },
        }]
    }

    fn keepers() -> Keepers {
        crate::install_crypto();
        let connect_timeout = Duration::from_secs(1);
        let params = Params { connect_timeout, final_statuses: Vec::new(), clock: Clock::system() };
        let limits = DestinationLimits::new(LimitParams {
            concurrency: 10,
            concurrency_per_service: 10,
            breaker: breaker::Params::default(),
            retry_after_max: Duration::from_secs(60),
        });
        Keepers::new(Client::new(params).unwrap(), limits, Metrics::new([]))
    }

    impl Keepers {
        /// Why the service is not called.
        fn no_token(&self) -> Option<String> {
            let shop = "shop".parse().unwrap();
            self.limits.standing(&shop, Allowance::default()).no_token
        }

        /// Replaces the keeper of the service by one that requests nothing. Returns its gate.
        fn without_requests(&self, services: &Services) -> TokenGate {
            let service = services.get("shop").unwrap();
            let (sn, oauth) = (service.name().clone(), service.oauth().unwrap().clone());
            let ended = Arc::new(Mutex::new(false));
            let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
            let keeper = TokenKeeper { oauth, task, ended: ended.clone() };
            self.running.lock().unwrap().insert(sn.clone(), keeper);
            let metrics = self.metrics.tokens.of("shop");
            TokenGate { sn, limits: self.limits.clone(), metrics, ended }
        }
    }

    /// An aborted keeper runs to its next await. The gate of a service without OAuth stayed closed
    /// for ever, or that of a service without a token was opened.
    #[tokio::test]
    async fn a_keeper_that_a_reload_ended_sets_no_gate() {
        let (keepers, services) = (keepers(), Services::new(services(Some("a"))).unwrap());
        let gate = keepers.without_requests(&services);
        gate.set(Some("down".into()));
        assert_eq!(keepers.no_token().as_deref(), Some("down"));
        keepers.follow(&services);
        assert_eq!(keepers.no_token().as_deref(), Some("down"), "the settings are the same");
        // Another keeper sets the gate.
        services.replace(self::services(Some("b"))).unwrap();
        keepers.follow(&services);
        let unasked = Some("the token endpoint was not asked yet");
        assert_eq!(keepers.no_token().as_deref(), unasked);
        gate.set(None);
        assert_eq!(keepers.no_token().as_deref(), unasked);
        // No keeper sets the gate.
        let gate = keepers.without_requests(&services);
        services.replace(self::services(None)).unwrap();
        keepers.follow(&services);
        assert_eq!(keepers.no_token(), None);
        gate.set(Some("down".into()));
        assert_eq!(keepers.no_token(), None);
    }

    /// A keeper has seen that it runs, and then sets its gate. A reload meanwhile opened the gate
    /// first, and the keeper closed it for ever.
    #[tokio::test]
    async fn a_reload_waits_for_a_keeper_that_sets_its_gate() {
        let (keepers, services) = (keepers(), Services::new(services(Some("a"))).unwrap());
        let gate = keepers.without_requests(&services);
        let setting = gate.ended.lock().unwrap();
        services.replace(self::services(None)).unwrap();
        let (done, is_done) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                keepers.follow(&services);
                done.send(()).unwrap();
            });
            let early = is_done.recv_timeout(Duration::from_millis(50));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
            gate.limits.set_no_token(&gate.sn, Some("down".into()));
            drop(setting);
        });
        is_done.recv().unwrap();
        assert_eq!(keepers.no_token(), None);
    }
}
