//! Authorization: bearer tokens, and the checks of a browser's `Origin` and `Host`.
//!
//! ```text
//! foreign page? 403 ─▶ unknown token? 401 ─▶ scope? 403 ─▶ rate? 429 ─▶ body ─▶ topic? 403
//! ```
//!
//! The table in `routes` is the whole access matrix. If no token is configured, every call is
//! allowed. The configuration permits that only on loopback or with `http.auth.anonymous`.
//!
//! # Invariants
//!
//! - A route needs `admin` unless its row says otherwise, so a new route is closed by default.
//! - A token that covers only some topics reaches no other topic. The topic is read from the body
//!   before the handler runs, by the handler's own reader; a body that cannot be read is refused.
//! - A request that waits ends when a reload takes away what it needs ([`Tokens::refusal`]).
//! - Neither a token nor its hash is in an answer, a log line or `Debug`. Logs show the token's
//!   name.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use delayd_wire::Rate;
use http::{HeaderMap, Uri, header};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::wire::error::Error;
use crate::api::wire::json::{self, required};
use crate::limits::TokenBucket;
use crate::model::glob::Glob;
use crate::model::origin::Origin;
use crate::model::task::Topic;
use crate::model::token::{Scope, TokenHash};
use crate::store::Creator;

mod site;

use site::Site;

/// A token may save up the calls of this time, because calls come in bursts.
const BURST: Duration = Duration::from_secs(1);

const UNKNOWN: Error = Error::Unauthenticated("Authorization: this token is not known here");

/// Which topics a call is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// One: the field `topic`.
    Topic,
    /// One: the field `topic`. All of them, if the field is absent.
    TopicOrAll,
    /// Several: the handler calls [`Caller::may_use`] for each.
    EachOfThem,
    /// All of them.
    All,
}

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// A token that has one of the scopes and covers the topics of the call.
    Token(&'static [Scope], About),
}

/// A configured token.
#[derive(Clone, Debug)]
pub struct TokenParams {
    /// The name in logs.
    pub name: String,
    /// The hash of the token.
    pub hash: TokenHash,
    /// What it may call.
    pub scopes: Vec<Scope>,
    /// The topics that it covers.
    pub topics: Vec<Glob>,
    /// The limit of calls per unit of time.
    pub rate: Option<Rate>,
}

/// The configured tokens, and what counts as our own site. If there are no tokens, every call is
/// allowed.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Its receivers learn of each replacement.
    known: watch::Sender<Arc<[Arc<TokenEntry>]>>,
    site: RwLock<Site>,
}

#[derive(Debug)]
struct TokenEntry {
    params: TokenParams,
    bucket: Option<Mutex<TokenBucket>>,
}

impl Tokens {
    /// Tokens from this list.
    pub fn new(list: Vec<TokenParams>) -> Self {
        let tokens = Self::default();
        tokens.replace(list);
        tokens
    }

    /// Replaces all tokens, from the next request on. Long requests learn of it by
    /// `Tokens::refusal`.
    pub fn replace(&self, list: Vec<TokenParams>) {
        let now = Instant::now();
        let token = |params: TokenParams| {
            let bucket = params.rate.map(|rate| Mutex::new(TokenBucket::saving(rate, BURST, now)));
            Arc::new(TokenEntry { params, bucket })
        };
        self.known.send_replace(list.into_iter().map(token).collect());
    }

    /// Replaces what counts as our own site, from the next request on: the origins of our own
    /// pages, whatever a request's `Host` is; and whether everyone who reaches the port may call.
    pub fn set_site(&self, public: Vec<Origin>, is_anonymous: bool) {
        *self.site.write().unwrap_or_else(PoisonError::into_inner) = Site { public, is_anonymous };
    }

    fn all(&self) -> Arc<[Arc<TokenEntry>]> {
        self.known.borrow().clone()
    }

    /// Checks the `Origin` or `Host`, the token, its scopes and its rate. `None` if the route is
    /// open: its handler learns nothing about the caller.
    ///
    /// # Errors
    /// The first check that failed.
    pub(crate) fn admit(
        &self,
        access: Access,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, RefusedCall> {
        let Access::Token(scopes, about) = access else { return Ok(None) };
        let caller = self.caller(scopes, about, uri, headers)?;
        let (name, path) = (caller.name(), uri.path());
        tracing::debug!(token = name, path, "Admitted {} to {path}", name.unwrap_or("anyone"));
        Ok(Some(caller))
    }

    /// The caller, if the token has one of the scopes.
    fn caller(
        &self,
        scopes: &'static [Scope],
        about: About,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Caller, RefusedCall> {
        let known = self.all();
        let site = self.site.read().unwrap_or_else(PoisonError::into_inner);
        site.check(uri, headers, !known.is_empty())?;
        drop(site);
        let anyone = Caller { token: None, scopes, about };
        if known.is_empty() {
            return Ok(anyone);
        }
        let presented = TokenHash::of(bearer(headers)?);
        // Every token is compared, so that the time does not reveal a similar one.
        let matching =
            known.iter().fold(None, |found, token| match token.params.hash.is(&presented) {
                true => Some(token),
                false => found,
            });
        let token = matching.ok_or(UNKNOWN)?;
        let caller = Caller { token: Some(token.clone()), ..anyone };
        match token.check_scopes(scopes).and_then(|()| token.take_one()) {
            Ok(()) => Ok(caller),
            Err(error) => Err(RefusedCall { error, caller: Some(caller) }),
        }
    }

    /// An admitted caller, with the present scopes and topics of its token.
    ///
    /// # Errors
    /// 401 or 403 if the tokens were replaced since, and the caller may no longer call the route.
    pub(crate) fn renewed(&self, caller: &Caller) -> Result<Caller, Error> {
        let known = self.all();
        if known.is_empty() {
            return Ok(Caller { token: None, ..*caller });
        }
        let held = caller.token().ok_or(UNKNOWN)?;
        let token = known.iter().find(|token| token.params.hash.is(&held.hash)).ok_or(UNKNOWN)?;
        token.check_scopes(caller.scopes)?;
        Ok(Caller { token: Some(token.clone()), ..*caller })
    }

    /// Checks an admitted caller that has waited.
    ///
    /// # Errors
    /// As for [`Self::renewed`]; 503 if the token has other scopes or topics now.
    pub(crate) fn check_again(&self, caller: &Caller) -> Result<(), Error> {
        let renewed = self.renewed(caller)?;
        // Without tokens, every call is allowed.
        let Some(now) = renewed.token() else { return Ok(()) };
        let rights = |token: &TokenParams| (token.scopes.clone(), token.topics.clone());
        match caller.token().map(rights) == Some(rights(now)) {
            true => Ok(()),
            false => Err(Error::Unavailable("the rights of this token have changed: try again")),
        }
    }

    /// Waits until a reload takes from an admitted caller what its request needs: the token, the
    /// scope, or the topic (all topics, if `topic` is `None`). Returns why. Requests that last
    /// longer than their answer's store calls must end with it.
    pub(crate) async fn refusal(&self, caller: &Caller, topic: Option<&Topic>) -> Error {
        let mut known = self.known.subscribe();
        loop {
            let checked = self.renewed(caller).and_then(|caller| match topic {
                Some(topic) => caller.may_use(topic),
                None => caller.may_use_all(),
            });
            if let Err(error) = checked {
                return error;
            }
            // `self` holds the sender, so this is never an error.
            let _ = known.changed().await;
        }
    }
}

impl TokenEntry {
    fn covers(&self, topic: &Topic) -> bool {
        self.params.topics.iter().any(|glob| glob.matches(topic.as_str()))
    }

    fn covers_all(&self) -> bool {
        self.params.topics.iter().any(Glob::is_all)
    }

    fn check_scopes(&self, scopes: &[Scope]) -> Result<(), Error> {
        let Self { params, .. } = self;
        if scopes.iter().any(|scope| params.scopes.contains(scope)) {
            return Ok(());
        }
        let named = |scopes: &[Scope], between: &str| {
            scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(between)
        };
        Err(Error::Forbidden(format!(
            "Authorization: must be a token with the scope {}; {:?} has {}",
            named(scopes, " or "),
            params.name,
            named(&params.scopes, " and ")
        )))
    }

    /// Counts one call against the rate limit.
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

/// A call that is not admitted, and its caller if the token is known.
#[derive(Debug)]
pub(crate) struct RefusedCall {
    pub(crate) error: Error,
    pub(crate) caller: Option<Caller>,
}

impl From<Error> for RefusedCall {
    fn from(error: Error) -> Self {
        Self { error, caller: None }
    }
}

/// The caller: the holder of a token, or anyone if no token is configured.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    token: Option<Arc<TokenEntry>>,
    /// What its route requires: one of these scopes, for the topics of the call.
    scopes: &'static [Scope],
    about: About,
}

impl Caller {
    /// A caller with these scopes for all topics.
    #[cfg(test)]
    pub(crate) fn with(scopes: &[Scope]) -> Self {
        Self::named("test", scopes)
    }

    /// A caller without a token.
    #[cfg(test)]
    pub(crate) fn anyone() -> Self {
        Self { token: None, scopes: &Scope::ALL, about: About::EachOfThem }
    }

    /// A caller with a token of this name, and these scopes for all topics.
    #[cfg(test)]
    pub(crate) fn named(name: &str, scopes: &[Scope]) -> Self {
        let (name, hash) = (name.into(), TokenHash::of(name));
        let topics = vec!["*".parse().expect("a pattern")];
        let params = TokenParams { name, hash, scopes: scopes.to_vec(), topics, rate: None };
        Self { token: Some(Arc::new(TokenEntry { params, bucket: None })), ..Self::anyone() }
    }

    /// The name of the token.
    pub(crate) fn name(&self) -> Option<&str> {
        self.token.as_ref().map(|token| token.params.name.as_str())
    }

    /// The token as the creator of a topic. It may create no more than `share` topics, unless it
    /// has the scope `admin`.
    pub(crate) fn creator(&self, share: usize) -> Option<Creator> {
        let most = (!self.sees_secrets()).then_some(share);
        self.name().map(|token| Creator { token: token.into(), most })
    }

    /// Refuses a topic that the token does not cover.
    pub(crate) fn may_use(&self, topic: &Topic) -> Result<(), Error> {
        match &self.token {
            Some(token) if !token.covers(topic) => Err(Error::Forbidden(format!(
                "topic: the token does not cover {:?}",
                topic.as_str()
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses a call about a topic that the token does not cover. Needs the body.
    pub(crate) fn check_topic(&self, body: &[u8]) -> Result<(), Error> {
        match self.about {
            About::Topic if self.is_limited() => self.may_use(&required(topic_of(body)?, "topic")?),
            About::TopicOrAll if self.is_limited() => match topic_of(body)? {
                Some(topic) => self.may_use(&topic),
                None => self.may_use_all(),
            },
            About::All => self.may_use_all(),
            About::Topic | About::TopicOrAll | About::EachOfThem => Ok(()),
        }
    }

    /// The parameters of the token; `None` if no token is configured.
    pub(crate) fn token(&self) -> Option<&TokenParams> {
        self.token.as_deref().map(|token| &token.params)
    }

    /// Whether the caller may use all topics.
    pub(crate) fn covers_all(&self) -> bool {
        self.token.as_ref().is_none_or(|token| token.covers_all())
    }

    /// Whether the caller may call `/delay/destination/list`.
    pub(crate) fn lists_destinations(&self) -> bool {
        self.covers_all() && self.has(|scope| matches!(scope, Scope::View | Scope::Admin))
    }

    fn may_use_all(&self) -> Result<(), Error> {
        match self.covers_all() {
            true => Ok(()),
            false => Err(Error::Forbidden(
                "this request is about all topics, and the token covers only some".into(),
            )),
        }
    }

    /// Whether the caller may see secrets such as header values: needs the scope `admin`.
    pub(crate) fn sees_secrets(&self) -> bool {
        self.has(|scope| scope == Scope::Admin)
    }

    /// Whether the caller may see contents, headers, answers of receivers and texts of outcomes: a
    /// token that has only the scope `view` may not.
    pub(crate) fn sees_content(&self) -> bool {
        self.has(|scope| scope != Scope::View)
    }

    /// `text`, if the caller may see it.
    pub(crate) fn content<T>(&self, text: T) -> Option<T> {
        self.sees_content().then_some(text)
    }

    fn has(&self, is_one: impl Fn(Scope) -> bool) -> bool {
        self.token.as_ref().is_none_or(|token| token.params.scopes.iter().copied().any(is_one))
    }

    fn is_limited(&self) -> bool {
        self.token.as_ref().is_some_and(|token| !token.covers_all())
    }
}

/// The field `topic` of a body.
fn topic_of(body: &[u8]) -> Result<Option<Topic>, Error> {
    /// The handler reads the other fields. A duplicate `topic` is an error in both readers.
    #[derive(Deserialize)]
    struct Request {
        topic: Option<Topic>,
    }

    let request: Request = json::read(body)?;
    Ok(request.topic)
}

/// The bearer token of a request.
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

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
