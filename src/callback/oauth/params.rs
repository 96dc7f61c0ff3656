//! The settings of OAuth: the section `oauth` of a service.

use std::fmt;

use http::Uri;
use reqwest::Url;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::callback::secret_text::SecretText;

/// The longest id and the longest scope, in bytes.
const LONGEST: usize = 1024;

/// How a service gets its tokens.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuthParams {
    /// The token endpoint: absolute http or https, without user and fragment.
    #[serde(deserialize_with = "token_url")]
    pub token_url: Uri,
    /// The id of this client.
    #[serde(deserialize_with = "client_id")]
    pub client_id: String,
    /// Its secret. A file is read for each request of a token.
    pub client_secret: SecretText,
    /// The scope to ask for: a list, separated by spaces. An empty text means none.
    #[serde(default, deserialize_with = "scope")]
    pub scope: Option<String>,
}

impl OAuthParams {
    /// The token endpoint without the query, which may hold a key.
    pub fn shown_url(&self) -> String {
        self.token_url.to_string().split('?').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Debug for OAuthParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthParams")
            .field("token_url", &self.shown_url())
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

fn token_url<'de, D: Deserializer<'de>>(from: D) -> Result<Uri, D::Error> {
    let Ok(url) = Url::parse(&String::deserialize(from)?) else {
        return Err(D::Error::custom(
            "must be an absolute address, such as \"https://login.example.com/token\"",
        ));
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(D::Error::custom("must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(D::Error::custom("must hold no user and no password"));
    }
    if url.fragment().is_some() {
        return Err(D::Error::custom("must have no fragment (#…)"));
    }
    Uri::try_from(url.as_str()).map_err(|_| D::Error::custom("must be an address that can be sent"))
}

fn client_id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let id = String::deserialize(from)?;
    let is_right = (1..=LONGEST).contains(&id.len()) && !id.chars().any(char::is_control);
    let wrong = || D::Error::custom("must be 1 to 1024 bytes, without control characters");
    is_right.then_some(id).ok_or_else(wrong)
}

fn scope<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let scope = String::deserialize(from)?;
    let is_right = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if scope.len() > LONGEST || !scope.bytes().all(is_right) {
        return Err(D::Error::custom(
            "must be scopes of visible ASCII, separated by spaces; at most 1024 bytes",
        ));
    }
    Ok(Some(scope).filter(|scope| !scope.is_empty()))
}
