//! How delayd identifies itself to the receivers of one service.

use std::sync::Arc;

use super::endpoint::Endpoint;
use super::known_secrets::KnownSecrets;
use super::oauth::{OAuth, OAuthParams};
use super::own_tls::ServiceTls;
use super::service_headers::{ServiceHeader, secrets_in};
use crate::tls::ClientFiles;

/// How delayd identifies itself to the receivers of one service, and what it trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The headers of its calls, each name once.
    pub headers: Vec<ServiceHeader>,
    /// Its own authority, client certificate and server name. All endpoints are then `https`.
    pub tls: Option<ClientFiles>,
    /// How it gets tokens.
    pub oauth: Option<OAuthParams>,
}

/// What a service has for its credentials.
#[derive(Debug, Default)]
pub(super) struct Identified {
    pub(super) headers: Vec<ServiceHeader>,
    /// What its answers must not show.
    pub(super) known_secrets: KnownSecrets,
    pub(super) tls: Option<Arc<ServiceTls>>,
    pub(super) oauth: Option<Arc<OAuth>>,
}

impl Identified {
    /// Takes connections and tokens over from `old`, where their settings are the same.
    ///
    /// # Errors
    /// Names the key of the service, and says what is expected.
    pub(super) fn new(
        credentials: Credentials,
        endpoints: &[Endpoint],
        old: Option<&Self>,
    ) -> Result<Self, String> {
        let Credentials { headers, tls, oauth } = credentials;
        if tls.is_some() && endpoints.iter().any(|one| one.parsed.scheme() != "https") {
            return Err(".endpoints must begin with https://, because tls is set".into());
        }
        if oauth.is_some() && endpoints.iter().any(|one| one.authorization.is_some()) {
            return Err(".endpoints must hold no user, because oauth is set".into());
        }
        if oauth.is_some() && headers.iter().any(|header| header.name() == "authorization") {
            return Err(".headers must not name authorization, because oauth is set".into());
        }
        let of_headers = headers.iter().map(ServiceHeader::value);
        let of_endpoints = endpoints.iter().filter_map(|endpoint| endpoint.authorization.as_ref());
        let secrets: Vec<_> = of_headers.chain(of_endpoints).flat_map(secrets_in).collect();
        let known_secrets = KnownSecrets::new(secrets.iter().map(String::as_str));
        let tls = tls.map(|files| {
            let same = old.and_then(|old| old.tls.clone()).filter(|same| *same.files() == files);
            same.map_or_else(|| ServiceTls::new(files).map(Arc::new), Ok)
        });
        let oauth = oauth.map(|params| {
            let same = old.and_then(|old| old.oauth.clone());
            let same = same.filter(|same| *same.params() == params);
            same.map_or_else(|| OAuth::new(params).map(Arc::new), Ok)
        });
        Ok(Self {
            headers,
            known_secrets,
            tls: tls.transpose().map_err(|error| format!(".tls: {error}"))?,
            oauth: oauth.transpose().map_err(|error| format!(".oauth.client_secret: {error}"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SecretText, ServiceParams, Services, SuccessRule};
    use super::*;

    fn with_oauth(endpoint: &str, scope: &str) -> ServiceParams {
        let oauth = OAuthParams {
            token_url: "http://127.0.0.1:1/token".parse().unwrap(),
            client_id: "me".into(),
            client_secret: SecretText::literal("hush"),
            scope: Some(scope.into()),
        };
        ServiceParams {
            name: "a".into(),
            endpoints: vec![endpoint.into()],
            allowance: Default::default(),
            success: SuccessRule::DmError,
            secrets: Vec::new(),
            credentials: Credentials { oauth: Some(oauth), ..Credentials::default() },
        }
    }

    #[test]
    fn a_replacement_keeps_the_tokens_whose_settings_are_the_same() {
        let services = Services::new(vec![with_oauth("http://h", "x")]).unwrap();
        let oauth = || services.get("a").unwrap().oauth().cloned();
        let first = oauth().unwrap();
        services.replace(vec![with_oauth("http://i", "x")]).unwrap();
        assert!(Arc::ptr_eq(&first, &oauth().unwrap()));
        services.replace(vec![with_oauth("http://i", "y")]).unwrap();
        assert!(!Arc::ptr_eq(&first, &oauth().unwrap()));
        let plain =
            ServiceParams { credentials: Credentials::default(), ..with_oauth("http://i", "") };
        services.replace(vec![plain]).unwrap();
        assert!(oauth().is_none());
        let error = Services::new(vec![with_oauth("http://me:pw@h", "x")]).unwrap_err();
        assert!(error.to_string().contains("must hold no user, because oauth is set"), "{error}");
    }
}
