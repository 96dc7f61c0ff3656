//! The HTTP client that all client commands share.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use delayd_wire::ErrorCode;
use reqwest::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use reqwest::{Certificate, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::secret::SecretArg;
use super::{output, time};

/// How long to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Which service is called, and how its answers are shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerArgs {
    #[command(flatten)]
    server: ServiceAddress,
    /// Print the answers of the service as JSON, one per line
    #[arg(long)]
    json: bool,
    /// Show times in UTC instead of the time zone of this machine
    #[arg(long)]
    utc: bool,
}

/// Which service is called, and with which token.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServiceAddress {
    /// The service
    #[arg(
        long,
        value_name = "URL",
        env = "DELAYD_SERVER",
        default_value = "http://127.0.0.1:7799"
    )]
    server: ServerUrl,
    /// The access token, if the service requires one; prefer the variable: other users of this
    /// machine can see command lines
    #[arg(long, value_name = "TOKEN", env = "DELAYD_TOKEN", hide_env_values = true)]
    token: Option<SecretArg>,
    #[command(flatten)]
    authority: Authority,
    /// The variable and the option that give the token.
    #[arg(skip = TOKEN)]
    given_by: GivenBy,
}

/// Who may have signed the certificate of a service.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Authority {
    /// For https: the PEM file of the authorities that may have signed the certificate of the
    /// service, instead of those of the system
    #[arg(long, value_name = "FILE", env = "DELAYD_CA")]
    ca: Option<PathBuf>,
}

impl Authority {
    pub(super) fn trust(&self) -> Trust {
        self.ca.clone().map_or(Trust::System, Trust::File)
    }
}

/// Which certificates of servers are accepted.
#[derive(Clone, Debug)]
pub(super) enum Trust {
    /// Those of the system's authorities.
    System,
    /// Those of the authorities in a PEM file.
    File(PathBuf),
    /// Any. Only for requests that hold no secret.
    Anyone,
}

/// The variable and the option that give an access token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GivenBy {
    pub(super) variable: &'static str,
    pub(super) option: &'static str,
}

const TOKEN: GivenBy = GivenBy { variable: "DELAYD_TOKEN", option: "--token" };

impl ServerArgs {
    /// Posts `body` and prints the answer: as JSON if asked for, else as `table` shows it.
    ///
    /// # Errors
    /// No answer, or a failure.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        table: impl FnOnce(A) -> String,
    ) -> anyhow::Result<()> {
        let client = self.client()?;
        let answer = client.call(path, body).await?;
        if !client.json {
            output::line(&table(answer))?;
        }
        Ok(())
    }

    /// A connection for a command with several calls. With --json, their answers are printed as
    /// they come.
    pub(super) fn client(&self) -> anyhow::Result<ApiClient> {
        time::show_in_utc(self.utc);
        Ok(ApiClient { json: self.json, ..self.server.client()? })
    }
}

impl ServiceAddress {
    /// Another service, with the names of its token options.
    pub(super) fn at(server: ServerUrl, token: Option<SecretArg>, given_by: GivenBy) -> Self {
        Self { server, token, authority: Authority::default(), given_by }
    }

    /// This service, whose certificate the authority of another may have signed.
    pub(super) fn trusting(self, other: &Self) -> Self {
        Self { authority: other.authority.clone(), ..self }
    }

    /// Its address.
    pub(super) fn url(&self) -> &ServerUrl {
        &self.server
    }

    /// A connection for a command that does not print the answers.
    pub(super) fn client(&self) -> anyhow::Result<ApiClient> {
        let (server, given_by) = (self.server.clone(), self.given_by);
        let token = SecretArg::unless_empty(self.token.clone())
            .map(|token| bearer(&token, given_by))
            .transpose()?;
        let http = http(TIMEOUT, &self.authority.trust())?;
        Ok(ApiClient { http, server, token, given_by, json: false })
    }
}

/// A connection for several calls.
pub(super) struct ApiClient {
    http: reqwest::Client,
    server: ServerUrl,
    /// The value of the `Authorization` header.
    token: Option<HeaderValue>,
    given_by: GivenBy,
    json: bool,
}

impl ApiClient {
    /// Posts `body`. With --json, the answer is printed.
    ///
    /// # Errors
    /// No answer, or one that says what is wrong.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<A> {
        let answer = self.post(path, body).await?;
        if self.json {
            output::line(&answer.text)?;
        }
        answer.checked()
    }

    /// Posts `body`.
    ///
    /// # Errors
    /// No answer.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<ServiceAnswer> {
        let mut answer = post(&self.http, &self.server, self.token.as_ref(), path, body).await?;
        if answer.code() == ErrorCode::Unauthenticated {
            answer.advice = Some(self.advice());
        }
        Ok(answer)
    }

    /// What the user can do about a token that the service refuses.
    fn advice(&self) -> String {
        let (server, GivenBy { variable, option }) = (&self.server, self.given_by);
        match self.token {
            None => format!(
                "{server} expects an access token, got none: set {variable} or give {option}"
            ),
            Some(_) => {
                format!("{server} does not know this access token: check {variable} or {option}")
            }
        }
    }

    /// Whether answers are printed as JSON, and nothing else.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }
}

/// The JSON of each item, for a list of a request.
pub(super) fn raw<T: Serialize>(items: impl IntoIterator<Item = T>) -> Vec<Box<RawValue>> {
    let json = |item| to_raw_value(&item).expect("items are plain data");
    items.into_iter().map(json).collect()
}

/// The body of a request, without the fields that are `None`.
pub(super) fn fields<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The base address of a service: http or https, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerUrl(String);

impl FromStr for ServerUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_right = |url: &Url| {
            matches!(url.scheme(), "http" | "https")
                && url.query().is_none()
                && url.fragment().is_none()
        };
        match Url::parse(text) {
            Ok(url) if is_right(&url) => Ok(Self(url.as_str().trim_end_matches('/').to_owned())),
            _ => Err("must be an address such as http://127.0.0.1:7799"),
        }
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The service refused a call.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{sentence} (dm_error {number})")]
pub(super) struct RefusedByService {
    pub(super) code: ErrorCode,
    /// The number from the answer: a later version may know more codes.
    number: u64,
    pub(super) sentence: String,
}

impl RefusedByService {
    /// Whether an error is a refusal with this code.
    pub(super) fn is(error: &anyhow::Error, code: ErrorCode) -> bool {
        error.downcast_ref::<Self>().is_some_and(|refused| refused.code == code)
    }
}

/// A service's answer.
#[derive(Debug)]
pub(super) struct ServiceAnswer {
    /// The answer, unparsed.
    pub(super) text: String,
    head: Head,
    /// The `Retry-After` of a refused call.
    pub(super) retry_after: Option<Duration>,
    /// What the user can do. Replaces the error message of the service.
    advice: Option<String>,
}

/// The code and message of an answer.
#[derive(Debug, Deserialize)]
struct Head {
    dm_error: u64,
    error_msg: Option<String>,
}

impl ServiceAnswer {
    /// The fields that every answer may have.
    #[cfg(test)]
    pub(super) fn of(value: &Value) -> Self {
        let text = value.to_string();
        let head = serde_json::from_str(&text).unwrap();
        Self { text, head, retry_after: None, advice: None }
    }

    /// The error, if the call failed.
    pub(super) fn code(&self) -> ErrorCode {
        ErrorCode::of(self.head.dm_error)
    }

    /// Returns the fields of a successful answer.
    ///
    /// # Errors
    /// A failed call is a [`RefusedByService`].
    pub(super) fn checked<A: DeserializeOwned>(self) -> anyhow::Result<A> {
        let (code, number) = (self.code(), self.head.dm_error);
        if code == ErrorCode::Ok {
            return serde_json::from_str(&self.text)
                .context("this version does not understand the answer of the service");
        }
        let sentence =
            self.advice.or(self.head.error_msg).unwrap_or_else(|| "no error_msg".to_owned());
        Err(RefusedByService { code, number, sentence }.into())
    }

    /// Returns the results of a batch. If every item failed, the answer is a failure and has them
    /// as well.
    ///
    /// # Errors
    /// A failure without results is a [`RefusedByService`].
    pub(super) fn batch<B: DeserializeOwned>(self) -> anyhow::Result<B> {
        match serde_json::from_str(&self.text) {
            Ok(batch) => Ok(batch),
            Err(_) => self.checked(),
        }
    }
}

/// An HTTP client with this timeout, which ignores proxy settings.
pub(super) fn http(timeout: Duration, trust: &Trust) -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder()
        .timeout(timeout)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none());
    let client = match trust {
        Trust::System => client,
        Trust::File(path) => {
            let shown = path.display();
            let pem = std::fs::read(path).with_context(|| format!("--ca: cannot read {shown}"))?;
            let certificates = Certificate::from_pem_bundle(&pem).unwrap_or_default();
            anyhow::ensure!(
                !certificates.is_empty(),
                "--ca: {shown}: expected PEM with a certificate (-----BEGIN CERTIFICATE-----)"
            );
            client.tls_certs_only(certificates)
        }
        Trust::Anyone => client.tls_danger_accept_invalid_certs(true),
    };
    client.build().map_err(|e| anyhow::anyhow!("cannot build an HTTP client: {}", cause(&e)))
}

/// Posts `body` to a path.
pub(super) async fn post(
    http: &reqwest::Client,
    server: &ServerUrl,
    token: Option<&HeaderValue>,
    path: &str,
    body: &impl Serialize,
) -> anyhow::Result<ServiceAnswer> {
    let post = http.post(format!("{server}{path}")).json(body);
    let post = match token {
        Some(token) => post.header(AUTHORIZATION, token),
        None => post,
    };
    let sent = post.send().await;
    let answer = sent.map_err(|e| {
        anyhow::anyhow!("{server} does not answer: {}; is `delayd serve` running?", cause(&e))
    })?;
    let status = answer.status();
    let retry_after =
        answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let text =
        answer.text().await.with_context(|| format!("the answer of {server} is incomplete"))?;
    match serde_json::from_str(&text) {
        Ok(head) => Ok(ServiceAnswer {
            text,
            head,
            retry_after: retry_after.map(Duration::from_secs),
            advice: None,
        }),
        Err(_) => {
            bail!("{server} answered {status}, but is not a delayd; is the address right?")
        }
    }
}

fn bearer(token: &SecretArg, given_by: GivenBy) -> anyhow::Result<HeaderValue> {
    let text = token.expose().trim();
    let GivenBy { variable, option } = given_by;
    let is_token = text.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(
        is_token,
        "{variable}, {option}: must be visible ASCII characters, without spaces"
    );
    let mut value = HeaderValue::try_from(format!("Bearer {text}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The innermost cause of an error: the text of reqwest itself does not name it.
pub(super) fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timed out".into();
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use delayd_wire::Nothing;

    use super::*;

    #[test]
    fn a_server_is_an_http_address() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                text.parse::<ServerUrl>().ok().map(|url| url.to_string()).as_deref(),
                expected
            );
        };
        check("http://127.0.0.1:7799", Some("http://127.0.0.1:7799"));
        check("https://delay.example/base/", Some("https://delay.example/base"));
        check("127.0.0.1:7799", None);
        check("http://a?b", None);
        check("", None);
    }

    #[test]
    fn an_error_tells_its_sentence_and_number() {
        let refused =
            ServiceAnswer::of(&serde_json::json!({"dm_error": 1004, "error_msg": "no such task"}));
        assert_eq!(
            refused.checked::<Nothing>().unwrap_err().to_string(),
            "no such task (dm_error 1004)"
        );
        assert!(
            ServiceAnswer::of(&serde_json::json!({"dm_error": 0})).checked::<Nothing>().is_ok()
        );
    }

    /// The message about a missing token did not name the option, and `move` has two services.
    #[test]
    fn a_refused_token_is_told_by_the_variable_and_the_option_that_give_it() {
        let check = |token: Option<&str>, given_by: GivenBy, says: &str| {
            let token = token.map(|token| token.parse::<SecretArg>().unwrap());
            let server = ServiceAddress::at("http://a:1".parse().unwrap(), token, given_by);
            let advice =
                server.client().map_or_else(|error| error.to_string(), |client| client.advice());
            assert_eq!(advice, says);
        };
        crate::install_crypto();
        let other = GivenBy { variable: "DELAYD_TO_TOKEN", option: "--to-token" };
        let none = "http://a:1 expects an access token, got none: set DELAYD_TOKEN or give --token";
        check(None, TOKEN, none);
        check(Some(""), TOKEN, none);
        check(Some("\n"), TOKEN, none);
        check(
            None,
            other,
            "http://a:1 expects an access token, got none: set DELAYD_TO_TOKEN or give --to-token",
        );
        check(
            Some("x"),
            other,
            "http://a:1 does not know this access token: check DELAYD_TO_TOKEN or --to-token",
        );
        check(
            Some("a b"),
            TOKEN,
            "DELAYD_TOKEN, --token: must be visible ASCII characters, without spaces",
        );
    }
}
