//! OAuth of a service: calls carry an access token of the client credentials grant (RFC 6749,
//! §4.4).
//!
//! ```text
//! keeper ─▶ token endpoint ─▶ OAuth (the token) ◀── calls
//!    ▲                              │
//!    └──── a call was refused ◀─────┘
//! ```
//!
//! - [`OAuth`] has the token of one service. It outlives reloads that do not change its settings.
//! - [`keep`] requests a token, and a new one before it expires. It runs once for each service, so
//!   there is one request at a time.
//! - A call that is answered with 401 asks for another token, and is repeated once with it.
//!
//! # Invariants
//!
//! - No text shows a token or a secret, and none repeats what a token endpoint wrote.
//! - A service without a token is not called. Its tasks wait, and no attempt is spent.
//! - A call that is refused while there is no other token is given back, without an attempt; but a
//!   replacement that is refused counts if the next one does not come in time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use delayd_wire::Rate;
use http::HeaderValue;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};

use super::known_secrets::KnownSecrets;
use super::secret_text::Unexpected;
use crate::limits::TokenBucket;

mod calls;
mod fetch;
mod keeper;
mod params;
#[cfg(test)]
mod tests;

use fetch::TokenGrant;
pub use keeper::keep;
pub use params::OAuthParams;

/// How many secrets and tokens are remembered for [`OAuth::known_secrets`]. A receiver may repeat
/// the previous token a little later.
const REMEMBERED: usize = 8;
/// How often refused calls may ask for another token, and the time whose requests they may make at
/// once.
const REPEATS: &str = "1/s";
const BURST: Duration = Duration::from_secs(5);

/// The tokens of one service. `Debug` shows none.
pub struct OAuth {
    params: OAuthParams,
    state: watch::Sender<KnownToken>,
    /// Notified when a call was refused.
    refused: Notify,
    /// Limits the tokens that refused calls ask for.
    repeats: Mutex<TokenBucket>,
    remembered: Mutex<Remembered>,
}

/// The last secrets and tokens, the newest first.
#[derive(Default)]
struct Remembered {
    texts: VecDeque<String>,
    known: KnownSecrets,
}

/// The current token, or why there is none.
#[derive(Clone)]
struct KnownToken {
    token: Result<Arc<AccessToken>, String>,
    /// The number of the last token.
    number: u64,
    /// How many requests failed.
    failures: u64,
    /// Whether the last request failed, so that the next one waits.
    is_failing: bool,
    /// Why the last request failed.
    why: Option<String>,
}

/// An access token.
pub(super) struct AccessToken {
    pub(super) header: HeaderValue,
    number: u64,
    expires: Instant,
    /// Whether it was requested because the one before it was refused.
    is_replacement: bool,
    /// Whether a call was answered otherwise than by 401 since it was refused last.
    is_taken: AtomicBool,
    is_refused: AtomicBool,
}

/// What a refused call does next.
enum AfterRefusal {
    /// It is repeated with this token.
    Repeat(Arc<AccessToken>),
    /// The refusal counts.
    Count,
    /// It is given back.
    GiveBack,
}

impl OAuth {
    pub(super) fn new(params: OAuthParams) -> Result<Self, Unexpected> {
        params.client_secret.read()?;
        let rate: Rate = REPEATS.parse().expect("a constant");
        let state = KnownToken {
            token: Err("the token endpoint was not asked yet".into()),
            number: 0,
            failures: 0,
            is_failing: false,
            why: None,
        };
        Ok(Self {
            params,
            state: watch::Sender::new(state),
            refused: Notify::new(),
            repeats: Mutex::new(TokenBucket::saving(rate, BURST, Instant::now())),
            remembered: Mutex::default(),
        })
    }

    pub(super) fn params(&self) -> &OAuthParams {
        &self.params
    }

    /// Why there is no token; `None` if there is one.
    pub fn no_token(&self) -> Option<String> {
        self.state.borrow().token.as_ref().err().cloned()
    }

    /// Returns when [`OAuth::no_token`] or [`OAuth::failure`] may have changed.
    pub fn changes(&self) -> Changes {
        Changes(self.state.subscribe())
    }

    /// Why the last request failed; `None` if it did not.
    pub fn failure(&self) -> Option<String> {
        self.state.borrow().why.clone()
    }

    /// What an answer must not show: the current secrets and tokens, and the last ones.
    pub(super) fn known_secrets(&self) -> KnownSecrets {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).known.clone()
    }

    /// The token for a call that begins now.
    fn token(&self) -> Option<Arc<AccessToken>> {
        let token = self.state.borrow().token.clone().ok()?;
        (token.expires > Instant::now()).then_some(token)
    }

    /// What a call does that was refused with this token. It waits for another one until
    /// `deadline`.
    async fn refused_until(&self, token: &AccessToken, deadline: Instant) -> AfterRefusal {
        match timeout_at(deadline, self.refused(token)).await {
            Ok(next) => next,
            // The keeper is slower than the call, and the last token was refused, too. If the task
            // is refused with every token, it would be called for ever.
            Err(_) if token.is_replacement => AfterRefusal::Count,
            Err(_) => AfterRefusal::GiveBack,
        }
    }

    /// What a call does that was refused with this token. It may wait for a request of another.
    async fn refused(&self, token: &AccessToken) -> AfterRefusal {
        let mut state = self.state.subscribe();
        let failures = {
            let now = state.borrow_and_update();
            match &now.token {
                Ok(other) if other.number != token.number => {
                    return AfterRefusal::Repeat(other.clone());
                }
                Ok(_) => now.failures,
                Err(_) => return AfterRefusal::GiveBack,
            }
        };
        let was_taken = token.is_taken.swap(false, Ordering::AcqRel);
        if state.borrow().is_failing {
            // The endpoint was asked a moment ago. The first refusal may be the task's alone.
            if was_taken {
                return AfterRefusal::Count;
            }
            self.drop_refused(token.number);
            return AfterRefusal::GiveBack;
        }
        if !token.is_refused.load(Ordering::Acquire) {
            let (now, mut repeats) =
                (Instant::now(), self.repeats.lock().unwrap_or_else(PoisonError::into_inner));
            if repeats.available(now) == 0 {
                return AfterRefusal::Count;
            }
            if !token.is_refused.swap(true, Ordering::AcqRel) {
                repeats.take(1, now);
            }
            self.refused.notify_one();
        }
        loop {
            // The sender is in `self`.
            let _ = state.changed().await;
            let now = state.borrow_and_update();
            match &now.token {
                Ok(other) if other.number != token.number => {
                    return AfterRefusal::Repeat(other.clone());
                }
                // Other calls succeeded with it meanwhile.
                Ok(_) if now.failures != failures => return AfterRefusal::Count,
                Ok(_) => {}
                Err(_) => return AfterRefusal::GiveBack,
            }
        }
    }

    /// Whether the current token was refused, so that another one is requested.
    fn wants_another(&self) -> bool {
        let state = self.state.borrow();
        state.token.as_ref().is_ok_and(|token| token.is_refused.load(Ordering::Acquire))
    }

    fn granted(&self, grant: TokenGrant, asked: Instant) {
        self.remember(grant.token);
        self.state.send_modify(|state| {
            state.number += 1;
            let before = state.token.as_ref();
            let is_replacement =
                before.is_ok_and(|before| before.is_refused.load(Ordering::Acquire));
            state.token = Ok(Arc::new(AccessToken {
                header: grant.header,
                number: state.number,
                expires: asked + grant.lifetime,
                is_replacement,
                is_taken: AtomicBool::new(false),
                is_refused: AtomicBool::new(false),
            }));
            (state.is_failing, state.why) = (false, None);
        });
    }

    /// A request failed. A token that was refused, and with which no other call succeeded since,
    /// is given up.
    fn failed(&self, why: &str) {
        self.state.send_modify(|state| {
            state.failures += 1;
            (state.is_failing, state.why) = (true, Some(why.to_owned()));
            let is_good = match &state.token {
                Ok(token) => {
                    let was_refused = token.is_refused.swap(false, Ordering::AcqRel);
                    token.expires > Instant::now()
                        && (!was_refused || token.is_taken.load(Ordering::Acquire))
                }
                Err(_) => false,
            };
            if !is_good {
                state.token = Err(why.to_owned());
            }
        });
    }

    /// Gives up the token of this number.
    fn drop_refused(&self, number: u64) {
        self.state.send_if_modified(|state| {
            let is_it = state.token.as_ref().is_ok_and(|token| token.number == number);
            if is_it {
                let why = state.why.clone();
                state.token = Err(why.unwrap_or_else(|| "the receiver refused it".into()));
            }
            is_it
        });
    }

    /// Gives up a token that has expired.
    fn drop_expired(&self) {
        self.state.send_if_modified(|state| {
            let has_expired =
                state.token.as_ref().is_ok_and(|token| token.expires <= Instant::now());
            if has_expired {
                let why = state.why.clone();
                state.token = Err(why.unwrap_or_else(|| "it has expired".into()));
            }
            has_expired
        });
    }

    /// When the current token expires.
    fn expires(&self) -> Option<Instant> {
        self.state.borrow().token.as_ref().ok().map(|token| token.expires)
    }

    fn remember(&self, text: String) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let Remembered { texts, known } = &mut *remembered;
        if let Some(place) = texts.iter().position(|known| *known == text) {
            texts.remove(place);
        }
        texts.push_front(text);
        texts.truncate(REMEMBERED);
        *known = KnownSecrets::new(texts.iter().map(String::as_str));
    }
}

impl AccessToken {
    /// A call with it was answered otherwise than by 401.
    fn was_taken(&self) {
        self.is_taken.store(true, Ordering::Release);
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("params", &self.params).finish_non_exhaustive()
    }
}

/// Waits for changes of a token.
#[derive(Clone)]
pub struct Changes(watch::Receiver<KnownToken>);

impl Changes {
    /// Returns at the next change; at once, if there was one since the last call.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The service is gone. Its tasks are ended by others.
            std::future::pending().await
        }
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").finish_non_exhaustive()
    }
}
