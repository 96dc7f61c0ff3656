//! The OAuth access tokens of services.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::label_value;
use super::services::{OTHER, ServiceNames};

label_value! {
    /// The result of a request of a token.
    TokenResult {
        /// The token endpoint granted one.
        Granted = "granted",
        /// It did not, or did not answer.
        Failed = "failed",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenCall {
    service: Arc<str>,
    result: TokenResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    service: Arc<str>,
}

/// The metrics of the tokens of one service, or of all that share the label "other".
#[derive(Debug)]
pub struct TokenMetrics {
    requests: Vec<Counter>,
    missing: Gauge,
}

impl TokenMetrics {
    /// A request of a token ended.
    pub fn requested(&self, is_granted: bool) {
        let result = if is_granted { TokenResult::Granted } else { TokenResult::Failed };
        self.requests[result as usize].inc();
    }

    /// Whether there is no token, so that tasks wait.
    pub fn missing(&self, is_missing: bool) {
        self.missing.set(is_missing.into());
    }
}

/// What is counted for services with OAuth.
#[derive(Debug)]
pub struct AllTokenMetrics {
    requests: Family<TokenCall, Counter>,
    missing: Family<TokenLabels, Gauge>,
    names: ServiceNames,
    services: Mutex<HashMap<Arc<str>, Arc<TokenMetrics>>>,
}

impl AllTokenMetrics {
    pub(super) fn register(registry: &mut Registry, names: ServiceNames) -> Self {
        let (requests, missing) = (Family::default(), Family::default());
        registry.register(
            "oauth_token_requests",
            "Requests of an OAuth access token, by service and result",
            requests.clone(),
        );
        registry.register(
            "oauth_token_missing",
            "1 if there is no OAuth access token for the service, so its tasks wait; otherwise 0",
            missing.clone(),
        );
        let all = Self { requests, missing, names, services: Mutex::default() };
        all.labelled(OTHER.into());
        all
    }

    /// The metrics of a service.
    pub fn of(&self, service: &str) -> Arc<TokenMetrics> {
        self.labelled(self.names.label(service).unwrap_or_else(|| OTHER.into()))
    }

    fn labelled(&self, name: Arc<str>) -> Arc<TokenMetrics> {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        let request = |&result: &TokenResult| {
            let request = TokenCall { service: name.clone(), result };
            self.requests.get_or_create_owned(&request)
        };
        let new = || {
            let service = TokenLabels { service: name.clone() };
            Arc::new(TokenMetrics {
                requests: TokenResult::ALL.iter().map(request).collect(),
                missing: self.missing.get_or_create_owned(&service),
            })
        };
        services.entry(name.clone()).or_insert_with(new).clone()
    }
}
