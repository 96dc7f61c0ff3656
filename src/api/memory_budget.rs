//! The memory budget for bodies and answers.
//!
//! Each body is bounded, and so is the number of requests. But 4,096 batches of 16 MiB would take
//! 64 GiB, so all bodies share one budget, and all answers another. A request beyond the budget is
//! refused at once: a wait queue would hold the bytes that it waits for.
//!
//! ```text
//! the first 64 KiB of a body      ──▶ one quarter: small requests succeed beside big batches
//! the rest of it, and all batches ──▶ three quarters
//! ```
//!
//! Once a body is complete, the part beyond 64 KiB counts twice: the values that are parsed from it
//! take memory as well.
//!
//! A body takes its share as bytes arrive, not by its announced length. Otherwise sixteen callers
//! could announce 16 MiB each, send nothing, and hold the whole budget. The share is released when
//! the last reference to the bytes is dropped.
//!
//! One token takes at most half of each part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most bytes that a body takes from the small part.
const SMALL: usize = 64 << 10;
/// The first share of a body. Most bodies are smaller.
const FIRST: usize = 4 << 10;

/// The budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// A part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BudgetPart {
    Small,
    Large,
    Answers,
}

impl BudgetPart {
    /// Its bytes, of a budget of `total`.
    fn of(self, total: usize) -> usize {
        match self {
            Self::Small => total / 4,
            Self::Large => total - total / 4,
            Self::Answers => total,
        }
    }
}

/// What is left of each [`BudgetPart`].
type Left = [Arc<Semaphore>; 3];

fn left(total: usize) -> Left {
    [BudgetPart::Small, BudgetPart::Large, BudgetPart::Answers]
        .map(|part| Arc::new(Semaphore::new(part.of(total))))
}

/// The remaining budget. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    left: Left,
    /// What is left of the half of each part that a token may take, by its name. Otherwise one that
    /// sends or reads slowly would stop the calls of all.
    of_tokens: Arc<Mutex<HashMap<String, Left>>>,
    total: usize,
    is_of_batches: bool,
    refused: Counter,
}

impl MemoryBudget {
    /// A budget of `total` bytes for bodies, and the same for answers.
    pub(crate) fn new(total: usize) -> Self {
        let total = total.min(Semaphore::MAX_PERMITS);
        let (left, of_tokens, refused) = (left(total), Arc::default(), Counter::default());
        Self { left, of_tokens, total, is_of_batches: false, refused }
    }

    /// Counts on this counter what it refuses.
    pub(crate) fn counting(self, refused: Counter) -> Self {
        Self { refused, ..self }
    }

    /// The same budget for batches, which use only the large part: many slow ones would fill the
    /// small part.
    pub(crate) fn of_batches(&self) -> Self {
        Self { is_of_batches: true, ..self.clone() }
    }

    /// An empty body of at most `limit` bytes. Callers without a token may take the whole budget.
    pub(crate) fn body(&self, token: Option<&str>, limit: usize) -> Filling<'_> {
        let token = token.map(|token| self.of_token(token));
        let (bytes, first, rest) =
            (BytesMut::new(), BudgetShare::default(), BudgetShare::default());
        Filling { budget: self, token, limit, bytes, first, rest }
    }

    /// The share of an answer to the token. An answer longer than the budget takes all of it.
    pub(crate) fn answer(
        &self,
        token: Option<&str>,
        length: usize,
    ) -> Result<BudgetShare, Exhausted> {
        let (token, mut share) = (token.map(|token| self.of_token(token)), BudgetShare::default());
        share.grow(self, token.as_ref(), BudgetPart::Answers, length.min(self.total))?;
        Ok(share)
    }

    fn of_token(&self, token: &str) -> Left {
        let mut tokens = self.of_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tokens.get(token) {
            return known.clone();
        }
        // Names of tokens that a reload removed do not pile up. Each share holds a clone.
        tokens.retain(|_, left| left.iter().any(|part| Arc::strong_count(part) > 1));
        tokens.entry(token.to_owned()).or_insert_with(|| left(self.total / 2)).clone()
    }

    fn take(&self, from: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, Exhausted> {
        let refused = || {
            self.refused.inc();
            Exhausted
        };
        let bytes = u32::try_from(bytes).map_err(|_| refused())?;
        from.clone().try_acquire_many_owned(bytes).map_err(|_| refused())
    }
}

/// A share of one part.
#[derive(Debug, Default)]
pub(crate) struct BudgetShare {
    of_all: Option<OwnedSemaphorePermit>,
    /// What it takes of the half of its token, at most all of that.
    of_token: Option<OwnedSemaphorePermit>,
}

impl BudgetShare {
    fn grow(
        &mut self,
        budget: &MemoryBudget,
        token: Option<&Left>,
        part: BudgetPart,
        bytes: usize,
    ) -> Result<(), Exhausted> {
        let held = self.of_token.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let most = part.of(budget.total / 2) - held;
        let of_token = token.map(|left| budget.take(&left[part as usize], bytes.min(most)));
        let of_token = of_token.transpose()?;
        let of_all = budget.take(&budget.left[part as usize], bytes)?;
        for (held, more) in [(&mut self.of_all, Some(of_all)), (&mut self.of_token, of_token)] {
            match (held, more) {
                (Some(held), Some(more)) => held.merge(more),
                (held, more) => *held = more,
            }
        }
        Ok(())
    }

    /// Gives back what is more than this length.
    pub(crate) fn shorten(&mut self, length: usize) {
        for share in [&mut self.of_all, &mut self.of_token].into_iter().flatten() {
            drop(share.split(share.num_permits().saturating_sub(length)));
        }
    }
}

/// A body while it arrives. Its frames are copied together: kept as frames, a body of one-byte
/// chunks would take forty times its size.
#[derive(Debug)]
pub(crate) struct Filling<'a> {
    budget: &'a MemoryBudget,
    /// What is left to its token.
    token: Option<Left>,
    limit: usize,
    bytes: BytesMut,
    /// The share of the first bytes, and that of the rest.
    first: BudgetShare,
    rest: BudgetShare,
}

impl Filling<'_> {
    /// The number of bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a frame, which must not exceed the limit. After the last frame the buffer gets no
    /// spare capacity.
    pub(crate) fn push(&mut self, piece: &[u8], is_last: bool) -> Result<(), Exhausted> {
        let (held, needed) = (self.bytes.capacity(), self.bytes.len() + piece.len());
        if needed > held {
            let to = if is_last {
                needed
            } else {
                needed.max(2 * held).max(FIRST).min(self.limit.max(needed))
            };
            self.grow(held, to)?;
            // Allocated anew: `reserve` may take more than the share.
            let mut larger = BytesMut::with_capacity(to);
            larger.extend_from_slice(&self.bytes);
            self.bytes = larger;
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    /// The complete body. It holds its share, and the share of what is parsed from it, until it is
    /// dropped.
    pub(crate) fn whole(mut self) -> Result<Bytes, Exhausted> {
        let length = self.bytes.len();
        if length > SMALL {
            self.grow(SMALL, length)?;
        }
        Ok(held(self.bytes.freeze(), (self.first, self.rest)))
    }

    fn grow(&mut self, from: usize, to: usize) -> Result<(), Exhausted> {
        let small = if self.budget.is_of_batches { 0 } else { SMALL };
        let (first, rest) = (to.min(small) - from.min(small), to.max(small) - from.max(small));
        for (share, part, bytes) in
            [(&mut self.first, BudgetPart::Small, first), (&mut self.rest, BudgetPart::Large, rest)]
        {
            if bytes > 0 {
                share.grow(self.budget, self.token.as_ref(), part, bytes)?;
            }
        }
        Ok(())
    }
}

/// Bytes that keep `keeps` alive.
pub(crate) fn held<T: Send + Sync + 'static>(bytes: Bytes, keeps: T) -> Bytes {
    struct Holding<T>(Bytes, T);
    impl<T> AsRef<[u8]> for Holding<T> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Holding(bytes, keeps))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    impl MemoryBudget {
        fn free(&self, part: BudgetPart) -> usize {
            self.left[part as usize].available_permits()
        }
    }

    fn filled(budget: &MemoryBudget, length: usize) -> Result<Bytes, Exhausted> {
        filled_by(budget, None, length)
    }

    fn filled_by(
        budget: &MemoryBudget,
        token: Option<&str>,
        length: usize,
    ) -> Result<Bytes, Exhausted> {
        let mut body = budget.body(token, 16 * MIB);
        for piece in vec![b'x'; length].chunks(10_000) {
            body.push(piece, false)?;
        }
        body.whole()
    }

    #[test]
    fn a_body_comes_out_as_it_came_in() {
        let budget = MemoryBudget::new(MIB);
        let mut body = budget.body(None, 100);
        for piece in ["to", "", "gether"] {
            body.push(piece.as_bytes(), piece == "gether").unwrap();
        }
        assert_eq!((body.len(), &body.whole().unwrap()[..]), (8, &b"together"[..]));
    }

    #[test]
    fn small_bodies_find_room_beside_large_ones() {
        let budget = MemoryBudget::new(8 * MIB);
        let mut large = Vec::new();
        while let Ok(body) = filled(&budget, MIB) {
            large.push(body);
        }
        assert!((2..=3).contains(&large.len()), "{}", large.len());
        let small: Result<Vec<_>, _> = (0..100).map(|_| filled(&budget, 1_000)).collect();
        assert_eq!(small.map(|bodies| bodies.len()), Ok(100));
    }

    #[test]
    fn many_short_batches_leave_room_for_small_bodies() {
        let budget = MemoryBudget::new(8 * MIB);
        let batches = budget.of_batches();
        let mut held = Vec::new();
        while let Ok(body) = filled(&batches, 30_000) {
            held.push(body);
        }
        assert!(held.len() > 100, "{}", held.len());
        let small: Result<Vec<_>, _> = (0..100).map(|_| filled(&budget, 1_000)).collect();
        assert_eq!(small.map(|bodies| bodies.len()), Ok(100));
        drop(held);
        assert_eq!(budget.free(BudgetPart::Large), 6 * MIB);
    }

    #[test]
    fn a_share_goes_back_with_the_last_of_its_bytes() {
        let budget = MemoryBudget::new(8 * MIB);
        let body = filled(&budget, 2 * MIB).unwrap();
        let part = body.slice(5..6);
        drop(body);
        assert_eq!(filled(&budget, 2 * MIB), Err(Exhausted));
        drop(part);
        assert!(filled(&budget, 2 * MIB).is_ok());
        assert_eq!(budget.free(BudgetPart::Small) + budget.free(BudgetPart::Large), 8 * MIB);
    }

    #[test]
    fn a_large_body_counts_twice_once_it_is_whole() {
        let check = |length: usize, counted: usize| {
            let budget = MemoryBudget::new(8 * MIB);
            let mut body = budget.body(None, length);
            body.push(&vec![b'x'; length], true).unwrap();
            let _body = body.whole().unwrap();
            let left = budget.free(BudgetPart::Small) + budget.free(BudgetPart::Large);
            assert_eq!(8 * MIB - left, counted, "{length}");
        };
        check(1_000, 1_000);
        check(SMALL, SMALL);
        check(MIB, 2 * MIB - SMALL);
    }

    #[test]
    fn what_was_only_announced_takes_nothing() {
        let budget = MemoryBudget::new(MIB);
        let waiting: Vec<_> = (0..1_000).map(|_| budget.body(None, 16 * MIB)).collect();
        assert!(filled(&budget, 300_000).is_ok());
        drop(waiting);
    }

    #[test]
    fn an_answer_longer_than_the_budget_has_all_of_it() {
        let budget = MemoryBudget::new(MIB);
        let answer = budget.answer(None, 5 * MIB).unwrap();
        assert!(budget.answer(None, 1).is_err());
        drop(answer);
        assert!(budget.answer(None, 1).is_ok());
    }

    /// A token that read its answers slowly once stopped the batches of all others.
    #[test]
    fn a_token_leaves_half_of_the_answers_to_others() {
        let budget = MemoryBudget::new(MIB);
        let mut held = Vec::new();
        while let Ok(answer) = budget.answer(Some("greedy"), 1_000) {
            held.push(answer);
        }
        assert_eq!(held.len(), MIB / 2_000);
        assert!(budget.answer(Some("other"), MIB / 2).is_ok());
        held[0].shorten(500);
        assert!(budget.answer(Some("greedy"), 501).is_ok());
        drop(held);
        assert!(budget.answer(Some("greedy"), 5 * MIB).is_ok(), "its half");
        assert!(budget.answer(Some("third"), 1).is_ok());
        assert_eq!(budget.of_tokens.lock().unwrap().len(), 1);
        assert_eq!(budget.free(BudgetPart::Answers), MIB);
    }

    /// A token that sent its bodies slowly once stopped the adds and batches of all others.
    #[test]
    fn a_token_leaves_half_of_the_bodies_to_others() {
        let budget = MemoryBudget::new(8 * MIB);
        for (budget, length) in [(budget.clone(), 1_000), (budget.of_batches(), MIB)] {
            let mut held = Vec::new();
            while let Ok(body) = filled_by(&budget, Some("greedy"), length) {
                held.push(body);
            }
            let of_others: Result<Vec<_>, _> =
                held.iter().map(|_| filled_by(&budget, Some("other"), length)).collect();
            assert!(of_others.is_ok_and(|bodies| !bodies.is_empty()), "{length}");
        }
        for budget in [budget.clone(), budget.of_batches()] {
            assert!(filled_by(&budget, Some("greedy"), 2 * MIB).is_ok(), "more than its half");
        }
    }
}
