//! Places of costly work: how much of it runs at a time, in all and for one token.
//!
//! ```text
//! caller ─▶ queue of its token ─▶ turn of its token ─▶ place
//!                │ full                    │ too long
//!                └──────────▶ 503 ◀────────┘
//! ```
//!
//! A token takes its turn before it waits for a place. So at most as many of its calls as it has
//! turns are among those that wait for a place, and the tokens get places by turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::auth::Caller;
use crate::api::wire::error::Error;

/// The bounds of some kind of work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaceBounds {
    /// The places.
    pub(crate) total: usize,
    /// The most places of one token. Callers without a token may take all.
    pub(crate) each: usize,
    /// The calls of one token that may wait.
    pub(crate) waiting: usize,
    /// The longest wait.
    pub(crate) wait: Duration,
    /// Why a call gets no place, and what to do.
    pub(crate) refusal: &'static str,
}

/// The places for some kind of work.
#[derive(Debug)]
pub(crate) struct Places {
    bounds: PlaceBounds,
    free: Arc<Semaphore>,
    /// By the name of the token.
    tokens: Mutex<HashMap<Option<String>, TokenShare>>,
}

/// What one token may take.
#[derive(Clone, Debug)]
struct TokenShare {
    /// Its calls that run or wait.
    queue: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

/// A place. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    _queued: OwnedSemaphorePermit,
    _turn: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Places {
    pub(crate) fn new(bounds: PlaceBounds) -> Self {
        let free = Arc::new(Semaphore::new(bounds.total));
        Self { bounds, free, tokens: Mutex::default() }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too many calls of the token wait, or if the wait is too long.
    pub(crate) async fn place(&self, caller: &Caller) -> Result<Place, Error> {
        let TokenShare { queue, turns } = self.share(caller.name());
        let place = async {
            let _queued = queue.try_acquire_owned().ok()?;
            let _turn = acquired(turns).await?;
            let _place = acquired(self.free.clone()).await?;
            Some(Place { _queued, _turn, _place })
        };
        let place = tokio::time::timeout(self.bounds.wait, place).await.ok().flatten();
        place.ok_or(Error::Unavailable(self.bounds.refusal))
    }

    fn share(&self, token: Option<&str>) -> TokenShare {
        let PlaceBounds { total, each, waiting, .. } = self.bounds;
        let each = if token.is_some() { each } else { total };
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        // Names of tokens that a reload removed do not pile up. Each permit holds a clone.
        tokens.retain(|_, share| Arc::strong_count(&share.queue) > 1);
        let share = || TokenShare {
            queue: Arc::new(Semaphore::new(each + waiting)),
            turns: Arc::new(Semaphore::new(each)),
        };
        tokens.entry(token.map(str::to_owned)).or_insert_with(share).clone()
    }
}

/// A permit; without a wait if one is free. In a task that has done much since it last yielded,
/// tokio lets each wait yield first, and a wait of no length would be over then.
async fn acquired(permits: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    match permits.clone().try_acquire_owned() {
        Ok(permit) => Some(permit),
        Err(_) => permits.acquire_owned().await.ok(),
    }
}

#[cfg(test)]
impl Places {
    /// Takes all places.
    pub(crate) fn take_all(&self) -> OwnedSemaphorePermit {
        let all = self.bounds.total as u32;
        self.free.clone().try_acquire_many_owned(all).expect("no place is taken")
    }

    /// Whether a call of the token runs or waits.
    pub(crate) fn is_asked_by(&self, token: &str) -> bool {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let share = tokens.get(&Some(token.to_owned()));
        share.is_some_and(|share| Arc::strong_count(&share.queue) > 1)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::{BoxFuture, join_all};
    use tokio::sync::mpsc;

    use super::*;
    use crate::model::token::Scope;

    const BOUNDS: PlaceBounds = PlaceBounds {
        total: 2,
        each: 1,
        waiting: 2,
        wait: Duration::from_secs(5),
        refusal: "full",
    };

    fn asked<'a>(places: &'a Places, caller: &'a Caller) -> BoxFuture<'a, Result<Place, Error>> {
        places.place(caller).boxed()
    }

    fn caller(name: &str) -> Caller {
        Caller::named(name, &[Scope::View])
    }

    /// Four calls of one token once took all places, and those of others failed.
    #[tokio::test]
    async fn a_token_leaves_places_to_others_and_its_own_calls_wait() {
        let (places, greedy, other) = (Places::new(BOUNDS), caller("greedy"), caller("other"));
        let first = asked(&places, &greedy).await.expect("a place");
        let mut second = asked(&places, &greedy);
        let mut third = asked(&places, &greedy);
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        assert!(asked(&places, &greedy).await.is_err(), "more of its calls wait");
        let place = asked(&places, &other).await.expect("a place");
        drop(first);
        let second = second.await.expect("the place of the first");
        assert!((&mut third).now_or_never().is_none());
        drop((place, second));
        assert!(third.await.is_ok());
    }

    #[tokio::test]
    async fn the_tokens_get_places_by_turns() {
        let places = Places::new(PlaceBounds { total: 1, waiting: 9, ..BOUNDS });
        let (many, one) = (caller("many"), caller("one"));
        let running = asked(&places, &many).await.expect("a place");
        let mut waiting: Vec<_> = (0..5).map(|_| asked(&places, &many)).collect();
        assert!(waiting.iter_mut().all(|waits| waits.now_or_never().is_none()));
        let mut fair = asked(&places, &one);
        assert!((&mut fair).now_or_never().is_none());
        drop(running);
        let _place = fair.now_or_never().expect("the next place");
        assert!(waiting.iter_mut().all(|waits| waits.now_or_never().is_none()));
    }

    /// One task asks for all places.
    #[tokio::test]
    async fn a_free_place_is_found_in_a_busy_task() {
        const MANY: usize = 500;
        let wait = Duration::ZERO;
        let places =
            Places::new(PlaceBounds { total: MANY, each: MANY, waiting: 0, wait, ..BOUNDS });
        let anyone = Caller::anyone();
        // An odd part of what the task may do before it yields: a call then waits for its place in
        // the middle of its two waits.
        let (message, mut messages) = mpsc::unbounded_channel();
        message.send(()).unwrap();
        messages.recv().await;
        let found = join_all((0..MANY).map(|_| asked(&places, &anyone))).await;
        assert!(found.iter().all(Result::is_ok));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_and_unused_shares_are_forgotten() {
        let (places, anyone) = (Places::new(BOUNDS), Caller::anyone());
        let held: Vec<_> = [asked(&places, &anyone).await, asked(&places, &anyone).await].into();
        assert!(held.iter().all(Result::is_ok), "callers without a token share all places");
        assert!(asked(&places, &caller("a")).await.is_err());
        drop(held);
        for name in ["a", "b", "c"] {
            assert!(asked(&places, &caller(name)).await.is_ok());
        }
        assert_eq!(places.tokens.lock().unwrap().len(), 1);
    }
}
