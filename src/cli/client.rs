//! The client of a running service: what `add`, `pull`, `get` and `demo` share.

use std::error::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use serde_json::{Map, Value};

use super::hidden::Hidden;
use super::out;

/// The longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(40);

/// Which service, and how its answer is shown.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// The service
    #[arg(long, value_name = "URL", env = "DELAYD_SERVER", default_value = "http://127.0.0.1:7799")]
    server: ServerUrl,
    /// The access token, if the service asks for one; other users of this machine can see what stands here, unlike the variable
    #[arg(long, value_name = "TOKEN", env = "DELAYD_TOKEN", hide_env_values = true)]
    token: Option<Hidden>,
    /// Print the service's answer as it is
    #[arg(long)]
    json: bool,
}

impl ServerArgs {
    /// Posts `body` and prints the answer: as it is, or as `table` makes it.
    ///
    /// # Errors
    /// No answer, or one that says what is wrong.
    pub(super) async fn ask(
        &self,
        path: &str,
        body: &Map<String, Value>,
        table: impl FnOnce(&Value) -> String,
    ) -> anyhow::Result<()> {
        let answer = post(&http(TIMEOUT)?, &self.server, self.token.as_ref(), path, body).await?;
        if self.json {
            out::line(&answer.text)?;
        }
        let value = answer.checked()?;
        if !self.json {
            out::line(&table(&value))?;
        }
        Ok(())
    }
}

/// The base address of a service: http or https, without trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerUrl(String);

impl FromStr for ServerUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_right =
            |url: &Url| matches!(url.scheme(), "http" | "https") && url.query().is_none() && url.fragment().is_none();
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

/// A service's answer.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    value: Value,
}

impl Answer {
    /// The answer, if it is a success.
    pub(super) fn checked(self) -> anyhow::Result<Value> {
        if self.value["dm_error"] == 0 {
            return Ok(self.value);
        }
        bail!("{} (dm_error {})", self.value["error_msg"].as_str().unwrap_or("no error_msg"), self.value["dm_error"])
    }
}

/// A client that waits no longer than `timeout` and goes past proxies, which have no place before one's own service.
pub(super) fn http(timeout: Duration) -> anyhow::Result<reqwest::Client> {
    let client = reqwest::Client::builder().timeout(timeout).no_proxy().redirect(reqwest::redirect::Policy::none());
    client.build().map_err(|e| anyhow::anyhow!("cannot build an HTTP client: {}", cause(&e)))
}

/// Posts `body` to a verb.
pub(super) async fn post(
    http: &reqwest::Client,
    server: &ServerUrl,
    token: Option<&Hidden>,
    path: &str,
    body: &Map<String, Value>,
) -> anyhow::Result<Answer> {
    let post = http.post(format!("{server}{path}")).json(body);
    let post = match token {
        Some(token) => post.header(AUTHORIZATION, bearer(token)?),
        None => post,
    };
    let sent = post.send().await;
    let answer =
        sent.map_err(|e| anyhow::anyhow!("{server} does not answer: {}; is `delayd serve` running?", cause(&e)))?;
    let status = answer.status();
    let text = answer.text().await.with_context(|| format!("the answer of {server} broke off"))?;
    match serde_json::from_str::<Value>(&text) {
        Ok(value) if value["dm_error"].is_i64() => Ok(Answer { text, value }),
        _ => bail!("{server} answered {status}, but not as delayd does; is the address right?"),
    }
}

fn bearer(token: &Hidden) -> anyhow::Result<HeaderValue> {
    let text = token.expose().trim();
    let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    anyhow::ensure!(is_token, "the token (--token or DELAYD_TOKEN) must be visible characters, without spaces");
    let mut value = HeaderValue::try_from(format!("Bearer {text}"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The innermost cause of an error: reqwest's own texts only say that something went wrong.
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

/// A value of an answer as a cell of a table.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => out::plain(text, 200),
        other => out::plain(&other.to_string(), 200),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_http_address() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(text.parse::<ServerUrl>().ok().map(|url| url.to_string()).as_deref(), expected);
        };
        check("http://127.0.0.1:7799", Some("http://127.0.0.1:7799"));
        check("https://delay.example/base/", Some("https://delay.example/base"));
        check("127.0.0.1:7799", None);
        check("http://a?b", None);
        check("", None);
    }

    #[test]
    fn an_error_tells_its_sentence_and_number() {
        let answer = |value: Value| Answer { text: String::new(), value };
        let refused = answer(serde_json::json!({"dm_error": 1004, "error_msg": "no such task"}));
        assert_eq!(refused.checked().unwrap_err().to_string(), "no such task (dm_error 1004)");
        assert!(answer(serde_json::json!({"dm_error": 0})).checked().is_ok());
    }
}
