//! `[services."name"]`: the services that tasks name in `sn`.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use serde::{Deserialize, Deserializer};

use super::callback::MOST_CALLS;
use super::check::Wrong;
use super::error::{Error, dotted};
use super::service_headers::ServiceHeaders;
use super::success;
use super::tls::ClientTls;
use super::value::{Parsed, rate, unless_empty};
use crate::callback::{Credentials, Fallback, OAuthParams, Secret, SuccessRule};
use crate::model::task::Destination;
use delayd_wire::Rate;

/// The maximum number of secrets of a service. Each call has a signature per secret.
const MOST_SECRETS: usize = 8;

/// The section of one service.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Base addresses, used in turn; one or more.
    pub endpoints: Vec<BaseUrl>,
    /// The maximum number of concurrent calls; 0 means `callback.concurrency_per_service`.
    #[serde(default)]
    pub concurrency: usize,
    /// The rate limit of calls; an empty text means no limit.
    #[serde(default, deserialize_with = "rate")]
    pub rate: Option<Rate>,
    /// Which answers count as success.
    #[serde(default, deserialize_with = "success::read")]
    pub success: SuccessRule,
    /// Headers of each call.
    #[serde(default)]
    pub headers: ServiceHeaders,
    /// Secrets. Calls are signed with each of them.
    #[serde(default)]
    pub secrets: Vec<Parsed<Secret>>,
    /// TLS of its own, for `https` endpoints.
    #[serde(default)]
    pub tls: ClientTls,
    /// How it gets access tokens.
    #[serde(default)]
    pub oauth: Option<OAuthParams>,
}

/// The section `[services_fallback]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServicesFallback {
    /// The address template for services that are not listed; an empty text means none.
    #[serde(deserialize_with = "unless_empty")]
    pub dns: Option<Fallback>,
}

/// A base address: absolute http or https, optionally with a path; without query, fragment, user or
/// trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// The address. A path that begins with `/` can be appended.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BaseUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let Ok(url) = Url::parse(text) else {
            return Err("must be an absolute address, such as \"http://10.0.0.5:8080\"");
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must begin with http:// or https://");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must have no query (?…) and no fragment (#…)");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must hold no user and no password");
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Service {
    /// How delayd identifies itself to its receivers.
    pub fn credentials(&self) -> Credentials {
        Credentials {
            headers: self.headers.headers(),
            tls: self.tls.some_key().map(|_| self.tls.files()),
            oauth: self.oauth.clone(),
        }
    }

    /// Takes secrets from environment variables. Validates those that are not in files.
    pub(super) fn take_variables<'a>(
        &mut self,
        name: &str,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<(), Error> {
        self.headers.take_variables(name, &value_of)?;
        let Some(oauth) = &mut self.oauth else { return Ok(()) };
        oauth.client_secret.take_variable(value_of).map_err(|wrong| Error::Unexpected {
            key: dotted(&["services", name, "oauth", "client_secret"]),
            expected: wrong.expected,
            got: wrong.got,
        })
    }

    /// Validates the section of the service `name`.
    pub(super) fn check(&self, name: &str) -> Result<(), Wrong> {
        let ensure = |key: &[&str], right: bool, reason: &str| {
            let path = || [&["services", name], key].concat().into_iter().map(str::to_owned);
            if right {
                Ok(())
            } else {
                Err(Wrong { path: path().collect(), reason: reason.into() })
            }
        };
        let destination = name.parse::<Destination>();
        ensure(
            &[],
            destination.is_ok_and(|destination| destination.is_service()),
            "has a name that cannot be used: it must be 1 to 128 characters out of A-Z a-z 0-9 . \
             _ -",
        )?;
        ensure(&["endpoints"], !self.endpoints.is_empty(), "must hold at least one address")?;
        let calls = self.concurrency <= MOST_CALLS;
        ensure(&["concurrency"], calls, &format!("must be from 0 to {MOST_CALLS}"))?;
        let secrets = self.secrets.len() <= MOST_SECRETS;
        ensure(&["secrets"], secrets, &format!("must hold at most {MOST_SECRETS}"))?;
        self.tls.check(&["services", name, "tls"])?;
        let is_tls = |endpoint: &BaseUrl| endpoint.as_str().starts_with("https://");
        let reason = format!("must begin with https://, because services.{name:?}.tls is set");
        let is_plain = self.tls.some_key().is_none();
        ensure(&["endpoints"], is_plain || self.endpoints.iter().all(is_tls), &reason)
    }
}
