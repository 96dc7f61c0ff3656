//! Who may call what: bearer tokens, and browsers kept out that act for somebody else's page.
//!
//! ```text
//! route ─▶ foreign Origin? 403 ─▶ token known? 401 ─▶ scope? 403 ─▶ rate? 429 ─▶ body ─▶ topic? 403 ─▶ handler
//! ```
//!
//! The table in `routes` is the whole access matrix. Without any token configured everything is
//! open: on loopback, or by `http.auth.anonymous`.
//!
//! # Invariants
//!
//! - A route asks for `admin` unless its row says otherwise, so that a route that somebody adds is
//!   closed until it is thought about.
//! - A token that covers only some topics reaches nothing that is about others: a body is searched
//!   for its topic before its handler sees it, by the same reader, and one that cannot be read goes
//!   no further.
//! - Neither a token nor its hash is in an answer, a log or `Debug`; a token goes by its name.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderMap, Uri, header};
use serde::Deserialize;
use tokio::time::Instant;

use crate::api::wire::error::Error;
use crate::api::wire::fields::Name;
use crate::api::wire::json::{self, required};
use crate::limits::TokenBucket;
use crate::model::glob::Glob;
use crate::model::task::Topic;
use crate::model::token::{Scope, TokenHash};
use delayd_wire::Rate;

/// So much of its rate a token may save up: callers come in bursts.
const BURST: Duration = Duration::from_secs(1);

/// Which topics a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The one that `topic` names.
    Topic,
    /// Several; the handler asks [`Caller::may_use`] for each.
    EachOfThem,
    /// All of them.
    All,
    /// None.
    Nothing,
}

/// What a route asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// A token with one of the scopes, that covers what the call is about.
    Token(&'static [Scope], About),
}

/// One token as the configuration names it.
#[derive(Clone, Debug)]
pub struct TokenParams {
    /// What it goes by.
    pub name: String,
    /// What is kept of it.
    pub hash: TokenHash,
    /// What it is for.
    pub scopes: Vec<Scope>,
    /// The topics that it covers.
    pub topics: Vec<Glob>,
    /// How many calls it may make in a time.
    pub rate: Option<Rate>,
}

/// The tokens that are known. Without any, everyone may do everything.
#[derive(Debug, Default)]
pub struct Tokens(RwLock<Arc<[Arc<Token>]>>);

#[derive(Debug)]
struct Token {
    params: TokenParams,
    bucket: Option<Mutex<TokenBucket>>,
}

impl Tokens {
    /// Holds these.
    pub fn new(list: Vec<TokenParams>) -> Self {
        let tokens = Self::default();
        tokens.replace(list);
        tokens
    }

    /// Puts others in their place: from the next request on.
    pub fn replace(&self, list: Vec<TokenParams>) {
        let now = Instant::now();
        let token = |params: TokenParams| {
            let bucket = params.rate.map(|rate| Mutex::new(TokenBucket::saving(rate, BURST, now)));
            Arc::new(Token { params, bucket })
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            list.into_iter().map(token).collect();
    }

    fn all(&self) -> Arc<[Arc<Token>]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who calls, if he may call the path. Nobody in particular where everyone may: a handler that
    /// asks who calls gets no answer there.
    pub(crate) fn admit(
        &self,
        access: Access,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, Error> {
        let Access::Token(scopes, _) = access else { return Ok(None) };
        let caller = self.caller(scopes, uri, headers)?;
        let (name, path) = (caller.name(), uri.path());
        tracing::debug!(token = name, path, "Admitted {} to {path}", name.unwrap_or("anyone"));
        Ok(Some(caller))
    }

    /// Who calls, if he has one of the scopes.
    fn caller(&self, scopes: &[Scope], uri: &Uri, headers: &HeaderMap) -> Result<Caller, Error> {
        let known = self.all();
        check_origin(uri, headers, known.is_empty())?;
        if known.is_empty() {
            return Ok(Caller(None));
        }
        let presented = TokenHash::of(bearer(headers)?);
        // All are looked at, so that the time does not tell which was near.
        let matching =
            known.iter().fold(None, |found, token| match token.params.hash.is(&presented) {
                true => Some(token),
                false => found,
            });
        let token = matching
            .ok_or(Error::Unauthenticated("Authorization: this token is not known here"))?;
        let Token { params, .. } = &**token;
        if !scopes.iter().any(|scope| params.scopes.contains(scope)) {
            let named = |scopes: &[Scope], between: &str| {
                scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(between)
            };
            return Err(Error::Forbidden(format!(
                "Authorization: must be a token with the scope {}; {:?} has {}",
                named(scopes, " or "),
                params.name,
                named(&params.scopes, " and ")
            )));
        }
        token.take_one()?;
        Ok(Caller(Some(token.clone())))
    }
}

impl Token {
    fn covers(&self, topic: &Topic) -> bool {
        self.params.topics.iter().any(|glob| glob.matches(topic.as_str()))
    }

    fn covers_all(&self) -> bool {
        self.params.topics.iter().any(Glob::is_all)
    }

    /// One call of its rate.
    fn take_one(&self) -> Result<(), Error> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match bucket.wait(now) {
            None => {
                bucket.take(1, now);
                Ok(())
            }
            Some(wait) => Err(Error::TooFast { rate: bucket.rate(), wait }),
        }
    }
}

/// Who calls: the holder of a token, or anyone where there are none.
#[derive(Clone, Debug)]
pub(crate) struct Caller(Option<Arc<Token>>);

impl Caller {
    fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|token| token.params.name.as_str())
    }

    /// Refuses a topic that the token does not cover.
    pub(crate) fn may_use(&self, topic: &Topic) -> Result<(), Error> {
        match &self.0 {
            Some(token) if !token.covers(topic) => Err(Error::Forbidden(format!(
                "topic: the token does not cover {:?}",
                topic.as_str()
            ))),
            _ => Ok(()),
        }
    }

    /// Behind the reading of the body: refuses a call about a topic that the token does not cover.
    pub(crate) fn check_topic(&self, access: Access, body: &[u8]) -> Result<(), Error> {
        match access {
            Access::Token(_, About::Topic) if self.is_limited() => self.may_use(&topic_of(body)?),
            Access::Token(_, About::All) => self.may_use_all(),
            Access::Open | Access::Token(..) => Ok(()),
        }
    }

    fn may_use_all(&self) -> Result<(), Error> {
        match &self.0 {
            Some(token) if !token.covers_all() => Err(Error::Forbidden(
                "this call is about all topics, and the token covers only some".into(),
            )),
            _ => Ok(()),
        }
    }

    /// Whether he is shown what only those who run the service need to see.
    pub(crate) fn sees_secrets(&self) -> bool {
        self.0.as_ref().is_none_or(|token| token.params.scopes.contains(&Scope::Admin))
    }

    fn is_limited(&self) -> bool {
        self.0.as_ref().is_some_and(|token| !token.covers_all())
    }
}

fn topic_of(body: &[u8]) -> Result<Topic, Error> {
    /// The other fields are their handler's business. Twice the same field is an error here as
    /// there.
    #[derive(Deserialize)]
    struct Request {
        topic: Option<Name<Topic>>,
    }

    let request: Request = json::read(body)?;
    required(request.topic, "topic").map(|Name(topic)| topic)
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Error> {
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (given.next(), given.next()) {
        (Some(value), None) => value,
        (None, _) => {
            return Err(Error::Unauthenticated(
                "Authorization: is missing; must be \"Bearer <token>\"",
            ));
        }
        _ => {
            return Err(Error::Unauthenticated(
                "Authorization: must be given once, as \"Bearer <token>\"",
            ));
        }
    };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim())
            .filter(|token| !token.is_empty())
    });
    token.ok_or(Error::Unauthenticated("Authorization: must be \"Bearer <token>\""))
}

/// Refuses what a browser sends for a page that is not ours. `Origin` is the page's; only browsers
/// send it, and cannot leave it out.
///
/// A page can have its own name lead to our address ("DNS rebinding"), and is then of our origin
/// for all that a browser knows. Where everyone may call, a browser is therefore taken only if it
/// knows us by an address or as localhost, which no page can make its own.
fn check_origin(uri: &Uri, headers: &HeaderMap, is_open: bool) -> Result<(), Error> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let foreign = || Error::Forbidden("Origin: pages of another site may not call".into());
    let origin: Uri =
        origin.to_str().ok().and_then(|origin| origin.parse().ok()).ok_or_else(foreign)?;
    let (Some(scheme), Some(page)) = (origin.scheme(), origin.authority()) else {
        return Err(foreign());
    };
    // HTTP/2 names the host in the request line.
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .and_then(|host| host.parse().ok());
    let host: Authority = uri.authority().cloned().or(host).ok_or_else(foreign)?;
    let port = |authority: &Authority| {
        authority.port_u16().unwrap_or(if *scheme == Scheme::HTTPS { 443 } else { 80 })
    };
    if !page.host().eq_ignore_ascii_case(host.host()) || port(page) != port(&host) {
        return Err(foreign());
    }
    if is_open && !is_unmistakable(host.host()) {
        return Err(Error::Forbidden(
            "Origin: while no tokens are configured, browsers must call by an IP address or localhost".into(),
        ));
    }
    Ok(())
}

fn is_unmistakable(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
