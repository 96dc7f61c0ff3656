//! Chance, from a seed.
//!
//! Every decision has a name: what is decided, for which object, and how many times before. It is
//! drawn from the seed and this name alone. So a decision does not depend on earlier draws, and a
//! small change of the program changes a schedule little.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

/// The source of all decisions of one schedule.
#[derive(Debug)]
pub(crate) struct Dice {
    seed: u64,
    /// The number of draws for each name.
    draws: Mutex<HashMap<u64, u64>>,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, draws: Mutex::default() }
    }

    /// The random numbers for the next decision of this name.
    pub(crate) fn throw(&self, name: impl Hash) -> Throw {
        // The keys of `DefaultHasher::new` are fixed, so the hashes are the same in every process.
        let mut hasher = DefaultHasher::new();
        (self.seed, name).hash(&mut hasher);
        let name = hasher.finish();
        let mut draws = self.draws.lock().unwrap();
        let nth = draws.entry(name).or_default();
        *nth += 1;
        Throw(name ^ nth.wrapping_mul(0xA076_1D64_78BD_642F))
    }
}

/// A sequence of numbers (SplitMix64) for one decision.
#[derive(Clone, Debug)]
pub(crate) struct Throw(u64);

impl Throw {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.number() % (most - least + 1)
    }

    pub(crate) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    /// True with a probability of `share` in a thousand.
    pub(crate) fn per_mille(&mut self, share: u64) -> bool {
        self.number() % 1_000 < share
    }

    /// From an exponential distribution with mean 1: the time to the next of independent events.
    pub(crate) fn exponential(&mut self) -> f64 {
        let share = (self.number() >> 11) as f64 / (1_u64 << 53) as f64;
        -(1.0 - share).ln()
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.number() as usize % choices.len()]
    }
}
