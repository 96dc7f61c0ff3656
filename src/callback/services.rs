//! The services: endpoints for each `sn`, and the hosts that may also be called.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};
use tokio::time::Instant;

use super::SuccessRule;
use super::credentials::{Credentials, Identified};
use super::endpoint::{Endpoint, sendable};
use super::guard::Reach;
use super::known_secrets::KnownSecrets;
use super::oauth::OAuth;
use super::own_tls::ServiceTls;
use super::service_headers::ServiceHeader;
use super::signature::Secret;
use super::target::{CallersUrl, InvalidUrl};
use super::unlisted::Unlisted;
use crate::limits::Allowance;
use crate::metrics::{CallbackMetrics, ServiceMetrics};
use crate::model::task::{Destination, is_same_header};

/// One service, as the configuration describes it.
#[derive(Clone, Debug)]
pub struct ServiceParams {
    /// Its `sn`.
    pub name: String,
    /// `http://host:port`, with an optional path that comes before every `url`. At least one.
    pub endpoints: Vec<String>,
    /// Its limits.
    pub allowance: Allowance,
    /// Which responses are a success.
    pub success: SuccessRule,
    /// Each of them signs the calls. Without secrets, calls are not signed.
    pub secrets: Vec<Secret>,
    /// How delayd identifies itself to its receivers.
    pub credentials: Credentials,
}

/// A service that cannot be called as configured. The text names the key and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("services.\"{name}\"{what}")]
pub struct InvalidService {
    name: String,
    what: String,
}

/// All services by name, and what else may be called.
#[derive(Debug)]
pub struct Services {
    by_name: RwLock<HashMap<String, Arc<Service>>>,
    unlisted: RwLock<Unlisted>,
}

impl Services {
    /// Checks the list.
    ///
    /// # Errors
    /// Names the first service that is invalid or occurs twice.
    pub fn new(list: Vec<ServiceParams>) -> Result<Self, InvalidService> {
        let by_name = Self::index(list, &HashMap::new())?;
        Ok(Self { by_name: RwLock::new(by_name), unlisted: RwLock::default() })
    }

    /// The service of that name: a listed one, or a host or name that may be called without a
    /// section.
    pub fn get(&self, name: &str) -> Option<Arc<Service>> {
        let listed = self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        listed.or_else(|| self.unlisted(name).map(Arc::new))
    }

    /// The own limits of what may be called, without building a service: of thousands of hosts that
    /// callers name, each may be asked for every second.
    pub fn allowance_of(&self, name: &Destination) -> Option<Allowance> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(service) = by_name.get(name.as_str()) {
            return Some(service.allowance());
        }
        drop(by_name);
        let unlisted = self.unlisted.read().unwrap_or_else(PoisonError::into_inner);
        let may_be_called = match name.is_host() {
            true => unlisted.host(name).is_some(),
            false => !name.is_pull() && unlisted.endpoint(name).is_some(),
        };
        may_be_called.then(Allowance::default)
    }

    fn unlisted(&self, name: &str) -> Option<Service> {
        let name: Destination = name.parse().ok().filter(|name: &Destination| !name.is_pull())?;
        let unlisted = self.unlisted.read().unwrap_or_else(PoisonError::into_inner);
        if name.is_host() {
            let reach = unlisted.host(&name)?;
            return Some(Service::unlisted(name, Vec::new(), reach));
        }
        let endpoint = unlisted.endpoint(&name)?;
        Some(Service::unlisted(name, vec![endpoint], Reach::Network))
    }

    /// The host of an absolute URL; `None` if it is not allowed.
    ///
    /// # Errors
    /// Says why the URL cannot be called although its host is allowed.
    pub fn host_of(&self, url: &str) -> Result<Option<Destination>, InvalidUrl> {
        let Some(read) = CallersUrl::read(url) else { return Ok(None) };
        match self.get(read.host.as_str()) {
            Some(service) => service.aim(url).map(|_| Some(read.host)),
            None => Ok(None),
        }
    }

    /// The first of these headers that the operator sets for the destination.
    pub fn header_of_operator<'a>(
        &self,
        destination: &Destination,
        mut names: impl Iterator<Item = &'a str>,
    ) -> Option<&'a str> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let service = by_name.get(destination.as_str())?;
        names.find(|name| service.sets_header(name))
    }

    /// Replaces what may be called without a section. Running calls go on.
    pub fn allow(&self, unlisted: Unlisted) {
        *self.unlisted.write().unwrap_or_else(PoisonError::into_inner) = unlisted;
    }

    /// The listed services, ordered by name.
    pub fn all(&self) -> Vec<Arc<Service>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name.values().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Replaces the list. Running calls keep their service. Connections and tokens stay where their
    /// settings are the same.
    ///
    /// # Errors
    /// As [`Services::new`]; the old list stays then.
    pub fn replace(&self, list: Vec<ServiceParams>) -> Result<(), InvalidService> {
        let old = self.by_name.read().unwrap_or_else(PoisonError::into_inner).clone();
        let by_name = Self::index(list, &old)?;
        *self.by_name.write().unwrap_or_else(PoisonError::into_inner) = by_name;
        Ok(())
    }

    fn index(
        list: Vec<ServiceParams>,
        old: &HashMap<String, Arc<Service>>,
    ) -> Result<HashMap<String, Arc<Service>>, InvalidService> {
        let mut by_name = HashMap::with_capacity(list.len());
        for params in list {
            let old = old.get(&params.name).map(|service| &**service);
            let service = Service::new(params, old)?;
            let name = service.name.as_str().to_owned();
            if by_name.insert(name.clone(), Arc::new(service)).is_some() {
                return Err(InvalidService { name, what: " is there twice".into() });
            }
        }
        Ok(by_name)
    }
}

/// One service, and which endpoint is next.
#[derive(Debug)]
pub struct Service {
    name: Destination,
    endpoints: Vec<Endpoint>,
    allowance: Allowance,
    success: SuccessRule,
    secrets: Vec<Secret>,
    own: Identified,
    reach: Reach,
    next: AtomicUsize,
    metrics: OnceLock<Arc<ServiceMetrics>>,
}

impl Service {
    /// Takes connections and tokens over from `old`, where their settings are the same.
    fn new(params: ServiceParams, old: Option<&Self>) -> Result<Self, InvalidService> {
        let invalid = |what: String| InvalidService { name: params.name.clone(), what };
        let name: Destination =
            params.name.parse().map_err(|error| invalid(format!(": a service's name {error}")))?;
        if name.is_pull() {
            return Err(invalid(": that name stands for the consumers that pull".into()));
        }
        if name.is_host() {
            return Err(invalid(
                ": a service's name has no colon; hosts are allowed by callback.allow_hosts".into(),
            ));
        }
        if params.endpoints.is_empty() {
            return Err(invalid(
                ".endpoints must name at least one, such as \"http://127.0.0.1:9000\"".into(),
            ));
        }
        let endpoints =
            params.endpoints.iter().map(|text| Endpoint::new(text)).collect::<Result<_, _>>();
        let endpoints: Vec<Endpoint> =
            endpoints.map_err(|what| invalid(format!(".endpoints {what}")))?;
        let own = Identified::new(params.credentials, &endpoints, old.map(|old| &old.own));
        let own = own.map_err(invalid)?;
        let ServiceParams { allowance, success, secrets, .. } = params;
        let (reach, next) = (Reach::Anywhere, AtomicUsize::new(0));
        let metrics = OnceLock::new();
        Ok(Self { name, endpoints, allowance, success, secrets, own, reach, next, metrics })
    }

    /// A service without a section. Without endpoints it is a host, and each call has the whole
    /// URL.
    fn unlisted(name: Destination, endpoints: Vec<Endpoint>, reach: Reach) -> Self {
        let (allowance, success) = (Allowance::default(), SuccessRule::default());
        Self {
            name,
            endpoints,
            allowance,
            success,
            secrets: Vec::new(),
            own: Identified::default(),
            reach,
            next: AtomicUsize::new(0),
            metrics: OnceLock::new(),
        }
    }

    /// Its `sn`, or the host.
    pub fn name(&self) -> &Destination {
        &self.name
    }

    /// The limits for [`crate::limits::DestinationLimits`].
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// The metrics of its calls. A service of the configuration looks them up once.
    pub fn metrics(&self, all: &CallbackMetrics) -> &ServiceMetrics {
        self.metrics.get_or_init(|| all.service(self.name.as_str()))
    }

    /// Which responses are a success.
    pub fn success(&self) -> &SuccessRule {
        &self.success
    }

    /// The secrets that sign its calls.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// The headers that its calls have in any case.
    pub(super) fn headers(&self) -> &[ServiceHeader] {
        &self.own.headers
    }

    /// Whether the operator sets a header that a receiver may take for the one of this name.
    pub(super) fn sets_header(&self, name: &str) -> bool {
        let is_set = |set: &str| is_same_header(name, set);
        self.headers().iter().any(|header| is_set(header.name().as_str()))
            || self.oauth().is_some() && is_set(AUTHORIZATION.as_str())
    }

    /// What its answers must not show.
    pub(super) fn known_secrets(&self) -> &KnownSecrets {
        &self.own.known_secrets
    }

    /// Its own connections; `None` if it uses those of all services.
    pub fn tls(&self) -> Option<&ServiceTls> {
        self.own.tls.as_deref()
    }

    /// Its tokens, if its calls carry some.
    pub fn oauth(&self) -> Option<&Arc<OAuth>> {
        self.own.oauth.as_ref()
    }

    /// Which addresses its calls may reach.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    /// The address of a call.
    ///
    /// # Errors
    /// If the call would leave the service.
    pub(super) fn aim(&self, url: &str) -> Result<Aim<'_>, InvalidUrl> {
        let denied = match self.reach {
            Reach::Private => InvalidUrl(
                "must not name the address of a cloud's metadata; only a service in [services] \
                 may be there",
            ),
            _ => {
                InvalidUrl("must name a host on the public Internet (callback.deny_private_hosts)")
            }
        };
        if !self.name.is_host() {
            let endpoint = self.pick();
            let url = endpoint.url(url)?;
            let may_go = self.reach.allows_literal(&endpoint.parsed);
            return if may_go { Ok(Aim { url, endpoint: Some(endpoint) }) } else { Err(denied) };
        }
        let read = CallersUrl::read(url).filter(|read| read.host == self.name);
        let read =
            read.ok_or(InvalidUrl("must be an absolute URL on the host that it was added for"))?;
        read.check(url)?;
        let may_go = self.reach.allows_literal(&read.url);
        if may_go {
            Ok(Aim { url: sendable(read.url.into())?, endpoint: None })
        } else {
            Err(denied)
        }
    }

    /// The next endpoint that did not refuse a connection recently. If all did, the next one.
    pub(super) fn pick(&self) -> &Endpoint {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn =
            |offset: usize| &self.endpoints[turn.wrapping_add(offset) % self.endpoints.len()];
        let now = Instant::now();
        (0..self.endpoints.len())
            .map(in_turn)
            .find(|endpoint| !endpoint.is_avoided(now))
            .unwrap_or(in_turn(0))
    }
}

/// The address of a call.
#[derive(Debug)]
pub(super) struct Aim<'a> {
    /// The whole URL.
    pub(super) url: Uri,
    /// `None` for a host.
    pub(super) endpoint: Option<&'a Endpoint>,
}

impl Aim<'_> {
    /// The header for the user and password of the endpoint's address, if it has any.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.endpoint?.authorization.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::AVOIDED;
    use super::*;

    fn params(name: &str, endpoints: &[&str]) -> ServiceParams {
        let endpoints = endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect();
        let (allowance, success) = (Allowance::default(), SuccessRule::DmError);
        ServiceParams {
            name: name.into(),
            endpoints,
            allowance,
            success,
            secrets: Vec::new(),
            credentials: Credentials::default(),
        }
    }

    #[test]
    fn a_service_that_cannot_be_called_is_refused_by_name() {
        let check = |list: Vec<ServiceParams>, says: &str| {
            let error = Services::new(list).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        check(
            vec![params("a b", &["http://h"])],
            "services.\"a b\": a service's name must be 1 to 128",
        );
        check(vec![params("@pull", &["http://h"])], "consumers that pull");
        check(vec![params("h:80", &["http://h"])], "has no colon");
        check(vec![params("a", &[])], "services.\"a\".endpoints must name at least one");
        check(vec![params("a", &["127.0.0.1:9000"])], "must be written like");
        check(vec![params("a", &["ftp://h"])], "must be written like");
        check(vec![params("a", &["http://h/?x"])], "must be written like");
        check(vec![params("a", &["http://"])], "must be written like");
        check(vec![params("a", &["http://h"]), params("a", &["http://i"])], "twice");
    }

    #[test]
    fn a_bad_replacement_leaves_the_old_services() {
        let services = Services::new(vec![params("old", &["http://h"])]).unwrap();
        assert!(services.replace(vec![params("new", &[])]).is_err());
        assert!(services.get("old").is_some());
        services.replace(vec![params("new", &["http://h"])]).unwrap();
        assert!(services.get("old").is_none() && services.get("new").is_some());
    }

    fn services_that_allow(hosts: &[&str], deny_private: bool, fallback: &str) -> Services {
        let services = Services::new(vec![params("listed", &["http://127.0.0.1:9000"])]).unwrap();
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        services.allow(Unlisted { hosts, deny_private, fallback: fallback.parse().ok() });
        services
    }

    #[test]
    fn an_absolute_url_goes_to_an_allowed_host_alone() {
        let services =
            services_that_allow(&["*.example.com", "127.0.0.1", "93.184.216.34:80"], true, "");
        let check = |url: &str, expected: Result<Option<&str>, &str>| match (
            services.host_of(url),
            expected,
        ) {
            (Ok(host), Ok(expected)) => {
                assert_eq!(host.as_ref().map(Destination::as_str), expected, "{url}")
            }
            (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{url}: {error}"),
            (found, _) => panic!("{url}: {found:?}"),
        };
        check("https://a.example.com/x", Ok(Some("a.example.com:443")));
        check("http://a.example.com:8080/x", Ok(Some("a.example.com:8080")));
        check("http://93.184.216.34/x", Ok(Some("93.184.216.34:80")));
        check("http://93.184.216.34:81/x", Ok(None));
        check("https://example.com/x", Ok(None));
        check("https://a.example.com.evil/x", Ok(None));
        check("https://a.example.com@evil/x", Ok(None));
        check("https://evil\\.example.com/", Ok(None));
        check("https://me@a.example.com/x", Err("neither user nor password"));
        check("https://a.example.com/#x", Err("no #"));
        check("http://127.0.0.1/x", Err("public Internet"));
        check("http://0177.1/x", Err("public Internet"));
        let open = services_that_allow(&["127.0.0.1"], false, "");
        assert!(open.host_of("http://127.0.0.1:9000/x").unwrap().is_some());
        assert_eq!(open.get("127.0.0.1:9000").unwrap().reach(), Reach::Private);
        let open = services_that_allow(&["*"], false, "");
        let refused = open.host_of("http://169.254.169.254/latest").unwrap_err().to_string();
        assert!(refused.contains("metadata"), "{refused}");
    }

    #[test]
    fn a_host_is_called_by_its_own_urls_and_a_service_by_paths() {
        let services = services_that_allow(&["*"], true, "http://{sn}.internal:8080");
        let check = |name: &str, url: &str, expected: Option<&str>| {
            let service = services.get(name).unwrap();
            let aimed = service.aim(url).ok().map(|aim| aim.url.to_string());
            assert_eq!(aimed.as_deref(), expected, "{name} {url}");
        };
        check("h.example:80", "http://h.example/x?y", Some("http://h.example/x?y"));
        check("h.example:80", "https://h.example/x", None);
        check("h.example:80", "http://other.example/x", None);
        check("h.example:80", "/x", None);
        check("127.0.0.1:80", "http://127.0.0.1/x", None);
        check("listed", "/x", Some("http://127.0.0.1:9000/x"));
        check("listed", "http://h.example/x", None);
        check("billing", "/x", Some("http://billing.internal:8080/x"));
        check("billing", "//evil/x", None);
        assert_eq!(services.get("billing").unwrap().reach(), Reach::Network);
        assert!(services.get("Billing").is_none() && services.get("@pull").is_none());
        services.allow(Unlisted::default());
        assert!(services.get("h.example:80").is_none() && services.get("billing").is_none());
        assert!(services.get("listed").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_take_turns_and_one_that_refused_rests_for_a_second() {
        let services =
            Services::new(vec![params("s", &["http://a", "http://b", "http://c"])]).unwrap();
        let service = services.get("s").unwrap();
        let picks = |count: usize| {
            (0..count).map(|_| service.pick().parsed.host_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(picks(4), ["a", "b", "c", "a"]);
        service.endpoints[1].has_refused();
        assert_eq!(picks(3), ["c", "c", "a"]);
        service.endpoints[0].has_refused();
        service.endpoints[2].has_refused();
        assert_eq!(picks(3), ["b", "c", "a"], "all refused, so all take turns");
        tokio::time::advance(AVOIDED).await;
        assert_eq!(picks(2), ["b", "c"]);
    }
}
