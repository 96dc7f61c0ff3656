//! Helpers of several tests.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use delayd_wire::Backoff;
use serde_json::Value;
use tokio::sync::watch;
use tower::Service;

use super::{Api, Params, Parts, Tokens};
use crate::audit::AuditLog;
use crate::callback::{LONGEST_RETRY_AFTER, ServiceParams, Services, SuccessRule};
use crate::limits::{DestinationLimits, LimitParams};
use crate::metrics::Metrics;
use crate::model::clock::Clock;
use crate::outcome::Policy;
use crate::store::AnyStore;
use crate::store::embedded::{self, Embedded};
use crate::store::redis::{self, Redis};
use crate::topic::{self, Registry};

/// Sends a request to a service.
pub(crate) trait Ask {
    fn answer(self, request: Request) -> impl Future<Output = Response> + Send;
}

impl<S> Ask for S
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send> + Send,
{
    async fn answer(mut self, request: Request) -> Response {
        let Ok(response) = self.call(request).await;
        response
    }
}

/// The JSON of an answer.
pub(crate) async fn json_of(response: Response) -> Value {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("no JSON: {bytes:?}"))
}

/// Services with only `message.call`.
pub(crate) fn services() -> Services {
    let service = ServiceParams {
        name: "message.call".into(),
        endpoints: vec!["http://127.0.0.1:9000".into()],
        allowance: Default::default(),
        success: SuccessRule::default(),
        secrets: Vec::new(),
        credentials: Default::default(),
    };
    Services::new(vec![service]).unwrap()
}

/// An API whose store refuses every connection, and the switch for draining.
pub(crate) async fn edge_without_store() -> (Api, watch::Sender<bool>) {
    // Nothing listens on port 1.
    let clock = Clock::system();
    let params = redis::Params {
        key_prefix: "test".into(),
        clock: clock.clone(),
        ..redis::Params::standalone("redis://127.0.0.1:1/")
    };
    edge_over(AnyStore::Redis(Redis::connect(params).await.unwrap()), clock)
}

/// An API with an embedded store, and the folder with its file.
pub(crate) fn edge_with_store() -> (Api, watch::Sender<bool>, tempfile::TempDir) {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Clock::system());
    let params = embedded::Params {
        path: folder.path().join("delayd.db"),
        reserve: 0,
        clock: clock.clone(),
    };
    let (api, draining) = edge_over(AnyStore::Embedded(Embedded::open(params).unwrap()), clock);
    (api, draining, folder)
}

fn edge_over(store: AnyStore, clock: Clock) -> (Api, watch::Sender<bool>) {
    let store = Arc::new(store);
    let topics = Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 }));
    let draining = watch::Sender::new(false);
    let breaker = crate::model::breaker::Params::default();
    let limits = DestinationLimits::new(LimitParams {
        concurrency: 64,
        concurrency_per_service: 64,
        breaker,
        retry_after_max: LONGEST_RETRY_AFTER,
    });
    let draining_seen = draining.subscribe();
    let tokens = Arc::new(Tokens::default());
    let metrics = Metrics::new([]);
    let parts = Parts {
        audit: AuditLog::start(store.clone(), metrics.clone(), clock.clone()),
        store,
        topics,
        services: Arc::new(services()),
        limits,
        instances: Arc::default(),
        sampled: crate::sampler::Sampled::default(),
        tokens,
        clock,
        metrics,
        tracer: Default::default(),
        draining: draining_seen,
    };
    let params = Params {
        body_limit: 1000,
        batch_limit: 3,
        batch_body_limit: 4000,
        ..Params::new(Policy { max_attempts: 3, backoff: Backoff::default() })
    };
    (Api::new(parts, params), draining)
}
