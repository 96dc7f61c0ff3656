//! One request of a token: the client credentials grant of RFC 6749, §4.4.
//!
//! The request goes over the connections of all services, without a client certificate. An operator
//! names the token endpoint, so it may have any address. Redirects are not followed.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::OAuthParams;
use crate::callback::Client;
use crate::callback::client::{DELAYD, IDENTITY, JSON};
use crate::callback::content::CallBody;
use crate::callback::encoding::decoded;
use crate::callback::secret_text::Unexpected;
use crate::callback::trouble::Trouble;

/// How much of an answer is read, in bytes.
const LONGEST_ANSWER: usize = 64 * 1024;
/// How long a token is used if the answer has no `expires_in`.
pub(super) const DEFAULT_LIFETIME: Duration = Duration::from_secs(300);
/// The lifetimes that are believed.
const SHORTEST_LIFETIME: f64 = 1.0;
const LONGEST_LIFETIME: f64 = 365.0 * 24.0 * 3600.0;

const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// The error codes that may be shown: those of RFC 6749, §5.2, and two of §4.1.2.1. Another text
/// could be a secret that the endpoint repeats.
const CODES: [&str; 9] = [
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
    "server_error",
    "temporarily_unavailable",
];

/// What the token endpoint granted.
pub(super) struct TokenGrant {
    /// The value of `Authorization`.
    pub(super) header: HeaderValue,
    /// The token alone.
    pub(super) token: String,
    pub(super) lifetime: Duration,
}

/// Why there is no token. The text holds no secret, no address and no text of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ungranted {
    #[error("client_secret: {0}")]
    Secret(#[from] Unexpected),
    #[error("the token endpoint: {0}")]
    NoAnswer(Trouble),
    #[error("the token endpoint answers {}{}", .0, Suffix(*.1))]
    Refused(StatusCode, Option<&'static str>),
    #[error("the token endpoint: expected {0}")]
    Unusable(&'static str),
}

/// The error code, in brackets.
struct Suffix(Option<&'static str>);

impl std::fmt::Display for Suffix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |code| write!(f, " ({code})"))
    }
}

/// Requests a token, within `timeout`.
pub(super) async fn fetch(
    client: &Client,
    params: &OAuthParams,
    secret: &str,
    timeout: Duration,
) -> Result<TokenGrant, Ungranted> {
    let asked = tokio::time::timeout(timeout, ask(client, params, secret)).await;
    asked.unwrap_or(Err(Ungranted::NoAnswer(Trouble::TimedOut(timeout))))
}

async fn ask(client: &Client, params: &OAuthParams, secret: &str) -> Result<TokenGrant, Ungranted> {
    let trouble = |error: &(dyn std::error::Error + 'static)| {
        Ungranted::NoAnswer(Trouble::of(error, client.connect_timeout()))
    };
    let sent = client.unpooled().request(request(params, secret)).await;
    let (head, body) = sent.map_err(|error| trouble(&error))?.into_parts();
    let body = match Limited::new(body, LONGEST_ANSWER).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(Ungranted::Unusable("an answer of at most 64 KiB"));
        }
        Err(error) => return Err(trouble(&*error)),
    };
    read(head.status, &decoded(&head.headers, &body, false, LONGEST_ANSWER).body)
}

fn request(params: &OAuthParams, secret: &str) -> Request<CallBody> {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = &params.scope {
        form.append_pair("scope", scope);
    }
    let mut request = Request::new(CallBody::new(Bytes::from(form.finish())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = params.token_url.clone();
    let headers = request.headers_mut();
    headers.extend([
        (CONTENT_TYPE, FORM),
        (ACCEPT, JSON),
        (ACCEPT_ENCODING, IDENTITY),
        (USER_AGENT, DELAYD),
    ]);
    headers.insert(AUTHORIZATION, basic(&params.client_id, secret));
    request
}

/// HTTP Basic of RFC 6749, §2.3.1: id and secret are form-urlencoded first.
fn basic(id: &str, secret: &str) -> HeaderValue {
    let mut header = HeaderValue::try_from(format!("Basic {}", basic_pair(id, secret)))
        .expect("base64 is visible ASCII");
    header.set_sensitive(true);
    header
}

/// The pair of HTTP Basic.
pub(super) fn basic_pair(id: &str, secret: &str) -> String {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    STANDARD.encode(format!("{}:{}", encoded(id), encoded(secret)))
}

/// What the answer grants.
fn read(status: StatusCode, body: &[u8]) -> Result<TokenGrant, Ungranted> {
    let answer = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
    if status != StatusCode::OK {
        let given = answer["error"].as_str();
        let code = CODES.into_iter().find(|code| given == Some(code));
        return Err(Ungranted::Refused(status, code));
    }
    let Some(token) = answer["access_token"].as_str().filter(|token| !token.is_empty()) else {
        return Err(Ungranted::Unusable("a JSON object with an access_token"));
    };
    // The type is required; the few servers that leave it out mean this one.
    let kind = answer["token_type"].as_str().unwrap_or("Bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(Ungranted::Unusable("the token_type \"Bearer\""));
    }
    let is_visible = token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_visible);
    let Some(mut header) = header else {
        return Err(Ungranted::Unusable("an access_token of visible ASCII"));
    };
    header.set_sensitive(true);
    Ok(TokenGrant { header, token: token.to_owned(), lifetime: lifetime(&answer["expires_in"]) })
}

/// `expires_in`: seconds, as a number or, of some servers, as a text.
fn lifetime(given: &Value) -> Duration {
    let seconds = given.as_f64().or_else(|| given.as_str()?.trim().parse().ok());
    match seconds.filter(|seconds: &f64| seconds.is_finite()) {
        Some(seconds) => {
            Duration::from_secs_f64(seconds.clamp(SHORTEST_LIFETIME, LONGEST_LIFETIME))
        }
        None => DEFAULT_LIFETIME,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_secret_are_form_urlencoded_before_base64() {
        // The characters that a colon or a plus would make ambiguous.
        let decoded = STANDARD.decode(basic_pair("a:b c", "s+p%é")).unwrap();
        assert_eq!(String::from_utf8(decoded).unwrap(), "a%3Ab+c:s%2Bp%25%C3%A9");
    }

    #[test]
    fn an_answer_grants_a_token_or_says_why_not() {
        let check = |status: u16, body: &str, expected: Result<(&str, u64), &str>| {
            let status = StatusCode::from_u16(status).unwrap();
            match (read(status, body.as_bytes()), expected) {
                (Ok(grant), Ok((header, seconds))) => {
                    assert_eq!(grant.header.to_str().unwrap(), header, "{body}");
                    assert_eq!(grant.lifetime, Duration::from_secs(seconds), "{body}");
                }
                (Err(error), Err(says)) => assert_eq!(error.to_string(), says, "{body}"),
                (read, expected) => {
                    panic!("{body}: {:?} instead of {expected:?}", read.map(|grant| grant.token))
                }
            }
        };
        let ok = |more: &str| format!(r#"{{"access_token":"t.1"{more}}}"#);
        check(200, &ok(r#","token_type":"bearer","expires_in":3600"#), Ok(("Bearer t.1", 3600)));
        check(200, &ok(r#","expires_in":"60""#), Ok(("Bearer t.1", 60)));
        check(200, &ok(""), Ok(("Bearer t.1", 300)));
        check(200, &ok(r#","expires_in":"soon""#), Ok(("Bearer t.1", 300)));
        check(200, &ok(r#","expires_in":-5"#), Ok(("Bearer t.1", 1)));
        check(200, &ok(r#","expires_in":1e300"#), Ok(("Bearer t.1", 31_536_000)));
        let unusable = |what: &str| format!("the token endpoint: expected {what}");
        let object = unusable("a JSON object with an access_token");
        check(200, "", Err(&object));
        check(200, r#"{"access_token":""}"#, Err(&object));
        check(200, r#"{"access_token":7}"#, Err(&object));
        check(200, &ok(r#","token_type":"mac""#), Err(&unusable("the token_type \"Bearer\"")));
        let visible = unusable("an access_token of visible ASCII");
        check(200, r#"{"access_token":"a b"}"#, Err(&visible));
        check(200, r#"{"access_token":"a\r\nx: y"}"#, Err(&visible));
        check(
            401,
            r#"{"error":"invalid_client","error_description":"hush"}"#,
            Err("the token endpoint answers 401 Unauthorized (invalid_client)"),
        );
        check(400, r#"{"error":"hush"}"#, Err("the token endpoint answers 400 Bad Request"));
        check(302, "", Err("the token endpoint answers 302 Found"));
    }
}
