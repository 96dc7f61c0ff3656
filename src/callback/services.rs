//! Where the services are: `sn` → endpoints, and which hosts may be called besides.
//!
//! An endpoint is the operator's and trusted; the `url` that is appended to it is the caller's and is not. The two are
//! joined as text, never by `Url::join` (for which `//evil` and `/\evil` name another host), and what comes out
//! must still point at the endpoint.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use url::Url;

use super::guard::Reach;
use super::signature::Secret;
use super::target::{CallersUrl, InvalidUrl, check_url};
use super::unlisted::Unlisted;
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
    /// With each of them its calls are signed; without any they are not.
    pub secrets: Vec<Secret>,
}

/// A service that cannot be called as configured; the text names the key and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("services.\"{name}\"{what}")]
pub struct InvalidService {
    name: String,
    what: String,
}

/// All services, by name, and who else may be called.
#[derive(Debug)]
pub struct Services {
    by_name: RwLock<HashMap<String, Arc<Service>>>,
    unlisted: RwLock<Unlisted>,
}

impl Services {
    /// Checks the list and holds it.
    ///
    /// # Errors
    /// Names the first service that cannot be called, or that stands there twice.
    pub fn new(list: Vec<ServiceParams>) -> Result<Self, InvalidService> {
        Ok(Self { by_name: RwLock::new(Self::index(list)?), unlisted: RwLock::default() })
    }

    /// The service of that name: one that is listed, or a host or a name that may be called without.
    pub fn get(&self, name: &str) -> Option<Arc<Service>> {
        let listed = self.by_name.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        listed.or_else(|| self.unlisted(name).map(Arc::new))
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

    /// The host of an absolute URL; `None` if calls of it are not allowed.
    ///
    /// # Errors
    /// Says why it cannot be called although its host is allowed.
    pub fn host_of(&self, url: &str) -> Result<Option<Destination>, InvalidUrl> {
        let Some(read) = CallersUrl::read(url) else { return Ok(None) };
        match self.get(read.host.as_str()) {
            Some(service) => service.aim(url).map(|_| Some(read.host)),
            None => Ok(None),
        }
    }

    /// Says anew who may be called without being listed. Calls that run go on.
    pub fn allow(&self, unlisted: Unlisted) {
        *self.unlisted.write().unwrap_or_else(PoisonError::into_inner) = unlisted;
    }

    /// All that are listed, by name.
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
    secrets: Vec<Secret>,
    reach: Reach,
    next: AtomicUsize,
}

impl Service {
    fn new(params: ServiceParams) -> Result<Self, InvalidService> {
        let invalid = |what: String| InvalidService { name: params.name.clone(), what };
        let name: Destination = params.name.parse().map_err(|error| invalid(format!(": a service's name {error}")))?;
        if name.is_pull() {
            return Err(invalid(": that name stands for the consumers that pull".into()));
        }
        if name.is_host() {
            return Err(invalid(": a service's name has no colon; hosts are allowed by callback.allow_hosts".into()));
        }
        if params.endpoints.is_empty() {
            return Err(invalid(".endpoints must name at least one, such as \"http://127.0.0.1:9000\"".into()));
        }
        let endpoints = params.endpoints.iter().map(|text| Endpoint::new(text)).collect::<Result<_, _>>();
        let endpoints = endpoints.map_err(|what| invalid(format!(".endpoints {what}")))?;
        let ServiceParams { allowance, success, secrets, .. } = params;
        let (reach, next) = (Reach::Anywhere, AtomicUsize::new(0));
        Ok(Self { name, endpoints, allowance, success, secrets, reach, next })
    }

    /// One without a section of its own; without endpoints it is a host, and each URL says all.
    fn unlisted(name: Destination, endpoints: Vec<Endpoint>, reach: Reach) -> Self {
        let (allowance, success) = (Allowance::default(), SuccessRule::default());
        Self { name, endpoints, allowance, success, secrets: Vec::new(), reach, next: AtomicUsize::new(0) }
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

    /// With what its calls are signed.
    pub(super) fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// How far its calls may reach.
    pub(super) fn reach(&self) -> Reach {
        self.reach
    }

    /// Where a call goes.
    ///
    /// # Errors
    /// If it would go elsewhere.
    pub(super) fn aim(&self, url: &str) -> Result<Aim<'_>, InvalidUrl> {
        const PRIVATE: InvalidUrl = InvalidUrl("must name a host on the public Internet (callback.deny_private_hosts)");
        if !self.name.is_host() {
            let endpoint = self.pick();
            let url = endpoint.url(url)?;
            let may_go = self.reach.allows_literal(&endpoint.parsed);
            return if may_go { Ok(Aim { url, endpoint: Some(endpoint) }) } else { Err(PRIVATE) };
        }
        let read = CallersUrl::read(url).filter(|read| read.host == self.name);
        let read = read.ok_or(InvalidUrl("must be an absolute URL on the host that it was added for"))?;
        read.check(url)?;
        let may_go = self.reach.allows_literal(&read.url);
        if may_go { Ok(Aim { url: sendable(read.url.into())?, endpoint: None }) } else { Err(PRIVATE) }
    }

    /// The next endpoint in turn that did not just refuse a connection; if all did, the next in turn.
    pub(super) fn pick(&self) -> &Endpoint {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let in_turn = |offset: usize| &self.endpoints[turn.wrapping_add(offset) % self.endpoints.len()];
        let now = Instant::now();
        (0..self.endpoints.len()).map(in_turn).find(|endpoint| !endpoint.is_avoided(now)).unwrap_or(in_turn(0))
    }
}

/// Where a call goes.
#[derive(Debug)]
pub(super) struct Aim<'a> {
    /// The whole URL.
    pub(super) url: Uri,
    /// A host has none.
    pub(super) endpoint: Option<&'a Endpoint>,
}

impl Aim<'_> {
    /// What the endpoint asks for, if its address names a user.
    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.endpoint?.authorization.as_ref()
    }
}

/// The URL as it is sent.
fn sendable(url: String) -> Result<Uri, InvalidUrl> {
    Uri::try_from(url).map_err(|_| InvalidUrl("must be a URL that can be sent"))
}

/// Whether reading such a path changes nothing of it: no dots that might lead to another folder, nothing that is percent-encoded or would be.
fn is_plain(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_~?=&:,;+".contains(&byte);
    path.bytes().all(is_plain)
}

/// One place where a service listens.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// As URLs are sent, without user and password, and without a slash at its end.
    base: String,
    parsed: Url,
    authorization: Option<HeaderValue>,
    refused: Mutex<Option<Instant>>,
}

impl Endpoint {
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let wrong = || format!("holds {text:?}, which must be written like \"http://host:port\" or \"https://host\"");
        let base = text.trim_end_matches('/');
        if base.bytes().any(|byte| matches!(byte, b'?' | b'#' | b'\\') || !byte.is_ascii_graphic()) {
            return Err(wrong());
        }
        let mut parsed = Url::parse(base).map_err(|_| wrong())?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(wrong());
        }
        let authorization = authorization(&parsed);
        parsed.set_username("").and(parsed.set_password(None)).map_err(|()| wrong())?;
        let base = parsed.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, parsed, authorization, refused: Mutex::default() })
    }

    /// Whether its host is a name, rather than an address.
    pub(super) fn has_name(&self) -> bool {
        matches!(self.parsed.host(), Some(url::Host::Domain(_)))
    }

    /// The whole URL of a call.
    pub(super) fn url(&self, path: &str) -> Result<Uri, InvalidUrl> {
        check_url(path)?;
        let url = format!("{}{path}", self.base);
        sendable(if is_plain(path) { url } else { self.read(&url)? })
    }

    /// The URL as it is meant, if it is one of this endpoint.
    fn read(&self, url: &str) -> Result<String, InvalidUrl> {
        let url = Url::parse(url).map_err(|_| InvalidUrl("must be a path"))?;
        let origin =
            |url: &Url| (url.scheme().to_owned(), url.host_str().map(str::to_owned), url.port_or_known_default());
        let folder = self.parsed.path().trim_end_matches('/');
        let stays = url.path().strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        if origin(&url) != origin(&self.parsed) || !stays {
            return Err(InvalidUrl("must stay within the service's endpoint"));
        }
        Ok(url.into())
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

/// What an address says with a user in it: `http://user:password@host`.
fn authorization(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let said: Vec<u8> = percent_decode_str(url.username())
        .chain([b':'])
        .chain(percent_decode_str(url.password().unwrap_or_default()))
        .collect();
    let mut header = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(said))).ok()?;
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params(name: &str, endpoints: &[&str]) -> ServiceParams {
        let endpoints = endpoints.iter().map(|&endpoint| endpoint.to_owned()).collect();
        let (allowance, success) = (Allowance::default(), SuccessRule::DmError);
        ServiceParams { name: name.into(), endpoints, allowance, success, secrets: Vec::new() }
    }

    #[test]
    fn a_service_that_cannot_be_called_is_refused_by_name() {
        let check = |list: Vec<ServiceParams>, says: &str| {
            let error = Services::new(list).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        check(vec![params("a b", &["http://h"])], "services.\"a b\": a service's name must be 1 to 128");
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

    #[test]
    fn a_url_is_appended_and_stays_on_its_endpoint() {
        let check = |endpoint: &str, path: &str, expected: Option<&str>| {
            let url = Endpoint::new(endpoint).unwrap().url(path).ok();
            assert_eq!(url.map(|url| url.to_string()).as_deref(), expected, "{endpoint} {path}");
        };
        check("http://127.0.0.1:9000", "/call?a=b", Some("http://127.0.0.1:9000/call?a=b"));
        check("http://127.0.0.1:9000/", "/call", Some("http://127.0.0.1:9000/call"));
        check("HTTP://me:pw@H:80/", "/call", Some("http://h/call"));
        check("http://127.1:9000", "/{a}.b", Some("http://127.0.0.1:9000/%7Ba%7D.b"));
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

    fn services_that_allow(hosts: &[&str], deny_private: bool, fallback: &str) -> Services {
        let services = Services::new(vec![params("listed", &["http://127.0.0.1:9000"])]).unwrap();
        let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
        services.allow(Unlisted { hosts, deny_private, fallback: fallback.parse().ok() });
        services
    }

    #[test]
    fn an_absolute_url_goes_to_an_allowed_host_alone() {
        let services = services_that_allow(&["*.example.com", "127.0.0.1", "93.184.216.34:80"], true, "");
        let check = |url: &str, expected: Result<Option<&str>, &str>| match (services.host_of(url), expected) {
            (Ok(host), Ok(expected)) => assert_eq!(host.as_ref().map(Destination::as_str), expected, "{url}"),
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
        assert_eq!(open.get("127.0.0.1:9000").unwrap().reach(), Reach::Anywhere);
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

    #[test]
    fn a_user_in_an_endpoints_address_is_said_in_a_header() {
        let check = |endpoint: &str, expected: Option<&str>| {
            let endpoint = Endpoint::new(endpoint).unwrap();
            let said = endpoint.authorization.map(|header| header.to_str().unwrap().to_owned());
            assert_eq!(said.as_deref(), expected);
        };
        check("http://h", None);
        check("http://Aladdin:open%20sesame@h", Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="));
        check("http://me@h", Some("Basic bWU6"));
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
                prop_assert_eq!(url.authority().unwrap().as_str(), "host:9000");
                let meant = Url::parse(&format!("http://host:9000{path}")).unwrap();
                prop_assert_eq!(url.to_string(), meant.as_str());
            }
        }
    }
}
