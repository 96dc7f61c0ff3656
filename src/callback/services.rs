//! Where the services are: `sn` → endpoints.
//!
//! An endpoint is the operator's and trusted; the `url` that is appended to it is the caller's and is not. The two are
//! joined as text, never by `Url::join` (for which `//evil` and `/\evil` name another host), and what comes out
//! must still point at the endpoint.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use super::target::{InvalidUrl, check_url};
use super::{Allowance, SuccessRule};
use crate::task::Destination;

/// How long an endpoint that refused a connection is passed over.
const AVOIDED: Duration = Duration::from_secs(1);

/// One service as the configuration names it.
#[derive(Clone, Debug)]
pub struct ServiceParams {
    /// Its `sn`.
    pub name: String,
    /// `http://host:port`, perhaps with a path to which every `url` is appended. At least one.
    pub endpoints: Vec<String>,
    /// How much of it there may be.
    pub allowance: Allowance,
    /// When an answer is a success.
    pub success: SuccessRule,
}

/// A service that cannot be called as configured; the text names the key and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("services.\"{name}\"{what}")]
pub struct InvalidService {
    name: String,
    what: String,
}

/// All services, by name.
#[derive(Debug)]
pub struct Services {
    by_name: RwLock<HashMap<String, Arc<Service>>>,
}

impl Services {
    /// Checks the list and holds it.
    ///
    /// # Errors
    /// Names the first service that cannot be called, or that stands there twice.
    pub fn new(list: Vec<ServiceParams>) -> Result<Self, InvalidService> {
        Ok(Self { by_name: RwLock::new(Self::index(list)?) })
    }

    /// The service of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Service>> {
        self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Service>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_name.values().cloned().collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Puts another list in the place of this one. Calls that run keep the service they have.
    ///
    /// # Errors
    /// As [`Services::new`]; the old list then stays.
    pub fn replace(&self, list: Vec<ServiceParams>) -> Result<(), InvalidService> {
        let by_name = Self::index(list)?;
        *self.by_name.write().unwrap_or_else(PoisonError::into_inner) = by_name;
        Ok(())
    }

    fn index(list: Vec<ServiceParams>) -> Result<HashMap<String, Arc<Service>>, InvalidService> {
        let mut by_name = HashMap::with_capacity(list.len());
        for params in list {
            let service = Service::new(params)?;
            let name = service.name.as_str().to_owned();
            if by_name.insert(name.clone(), Arc::new(service)).is_some() {
                return Err(InvalidService { name, what: " is there twice".into() });
            }
        }
        Ok(by_name)
    }
}

/// One service: its endpoints, and who is next.
#[derive(Debug)]
pub struct Service {
    name: Destination,
    endpoints: Vec<Endpoint>,
    allowance: Allowance,
    success: SuccessRule,
    next: AtomicUsize,
}

impl Service {
    fn new(params: ServiceParams) -> Result<Self, InvalidService> {
        let invalid = |what: String| InvalidService { name: params.name.clone(), what };
        let name: Destination = params.name.parse().map_err(|error| invalid(format!(": a service's name {error}")))?;
        if name.is_pull() {
            return Err(invalid(": that name stands for the consumers that pull".into()));
        }
        if params.endpoints.is_empty() {
            return Err(invalid(".endpoints must name at least one, such as \"http://127.0.0.1:9000\"".into()));
        }
        let endpoints = params.endpoints.iter().map(|text| Endpoint::new(text)).collect::<Result<_, _>>();
        let endpoints = endpoints.map_err(|what| invalid(format!(".endpoints {what}")))?;
        Ok(Self { name, endpoints, allowance: params.allowance, success: params.success, next: AtomicUsize::new(0) })
    }

    /// Its name.
    pub fn name(&self) -> &Destination {
        &self.name
    }

    /// What [`super::Limits`] may grant it.
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// When an answer is a success.
    pub fn success(&self) -> SuccessRule {
        self.success
    }

    /// The next endpoint in turn that did not just refuse a connection; if all did, the next in turn.
    pub(super) fn pick(&self) -> &Endpoint {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| &self.endpoints[turn.wrapping_add(offset) % self.endpoints.len()];
        let now = Instant::now();
        (0..self.endpoints.len()).map(in_turn).find(|endpoint| !endpoint.is_avoided(now)).unwrap_or(in_turn(0))
    }
}

/// One place where a service listens.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Without a slash at its end.
    base: String,
    parsed: Url,
    refused: Mutex<Option<Instant>>,
}

impl Endpoint {
    fn new(text: &str) -> Result<Self, String> {
        let wrong = || format!("holds {text:?}, which must be written like \"http://host:port\" or \"https://host\"");
        let base = text.trim_end_matches('/');
        if base.bytes().any(|byte| matches!(byte, b'?' | b'#' | b'\\') || !byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let parsed = Url::parse(base).map_err(|_| wrong())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(wrong());
        }
        Ok(Self { base: base.to_owned(), parsed, refused: Mutex::default() })
    }

    /// The whole URL of a call.
    pub(super) fn url(&self, path: &str) -> Result<Url, InvalidUrl> {
        check_url(path)?;
        let url = Url::parse(&format!("{}{path}", self.base)).map_err(|_| InvalidUrl("must be a path"))?;
        let origin =
            |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
        let folder = self.parsed.path().trim_end_matches('/');
        let stays = url.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        if origin(&url) != origin(&self.parsed) || !stays {
            return Err(InvalidUrl("must stay within the service's endpoint"));
        }
        Ok(url)
    }

    /// Remembers that nobody listens there at the moment.
    pub(super) fn has_refused(&self) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_avoided(&self, now: Instant) -> bool {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_some_and(|at| now.duration_since(at) < AVOIDED)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(name: &str, endpoints: &[&str]) -> ServiceParams {
        let endpoints = endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect();
        ServiceParams { name: name.into(), endpoints, allowance: Allowance::default(), success: SuccessRule::DmError }
    }

    #[test]
    fn a_service_that_cannot_be_called_is_refused_by_name() {
        let check = |list: Vec<ServiceParams>, says: &str| {
            let error = Services::new(list).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        check(vec![params("a b", &["http://h"])], "services.\"a b\": a service's name must be 1 to 128");
        check(vec![params("@pull", &["http://h"])], "consumers that pull");
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

    #[test]
    fn a_url_is_appended_and_stays_on_its_endpoint() {
        let check = |endpoint: &str, path: &str, expected: Option<&str>| {
            let url = Endpoint::new(endpoint).unwrap().url(path).ok();
            assert_eq!(url.as_ref().map(Url::as_str), expected, "{endpoint} {path}");
        };
        check("http://127.0.0.1:9000", "/call?a=b", Some("http://127.0.0.1:9000/call?a=b"));
        check("http://127.0.0.1:9000/", "/call", Some("http://127.0.0.1:9000/call"));
        check("https://h/api", "/call", Some("https://h/api/call"));
        check("https://h/api/", "/call/../other", Some("https://h/api/other"));
        check("https://h/api", "/../admin", None);
        check("https://h/api", "/%2e%2e/admin", None);
        check("http://h", "/@evil/", Some("http://h/@evil/"));
        check("http://h", "@evil/", None);
        check("http://h", ":1/", None);
        check("http://h", ".evil/", None);
        check("http://h", "//evil/", None);
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_take_turns_and_one_that_refused_rests_for_a_second() {
        let services = Services::new(vec![params("s", &["http://a", "http://b", "http://c"])]).unwrap();
        let service = services.get("s").unwrap();
        let picks = |count: usize| (0..count).map(|_| service.pick().base.as_str()).collect::<Vec<_>>();
        assert_eq!(picks(4), ["http://a", "http://b", "http://c", "http://a"]);
        service.endpoints[1].has_refused();
        assert_eq!(picks(3), ["http://c", "http://c", "http://a"]);
        service.endpoints[0].has_refused();
        service.endpoints[2].has_refused();
        assert_eq!(picks(3), ["http://b", "http://c", "http://a"], "all refused, so all take turns");
        tokio::time::advance(AVOIDED).await;
        assert_eq!(picks(2), ["http://b", "http://c"]);
    }

    proptest! {
        #[test]
        fn whatever_is_allowed_can_be_sent_and_stays_on_the_host(path in "/[ -~]{0,40}") {
            let endpoint = Endpoint::new("http://host:9000").unwrap();
            if check_url(&path).is_ok() {
                let url = endpoint.url(&path).unwrap();
                prop_assert_eq!((url.host_str(), url.port(), url.username()), (Some("host"), Some(9000), ""));
                let sent: http::Uri = url.as_str().parse().unwrap();
                prop_assert_eq!(sent.authority().unwrap().as_str(), "host:9000");
            }
        }
    }
}
