//! How long Redis' thread takes for each script.
//!
//! The figures are the medians of the times in Redis' `SLOWLOG`, which are those of the commands
//! alone: reading a command from the socket and writing its answer come on top. They are the
//! quietest of several runs on 2026-11-23, with Redis 7.0.15 on one of two processors (AMD EPYC)
//! and contents of 200 bytes. The other runs, beside other programs, took up to 1.5 times as long.
//! To measure again:
//!
//! ```sh
//! cargo test --release --bench capacity -- costs
//! ```
//!
//! `measure.rs` calls the scripts through the store and prints this table.

use std::time::Duration;

/// What Redis does in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Script {
    /// Stores the tasks of a batch of adds that belong to one lane.
    Add,
    /// A claim that hands out tasks.
    Claim,
    /// A claim that finds nothing due.
    EmptyClaim,
    /// A claim that finds the lane locked.
    RefusedClaim,
    /// Ends leases of one lane.
    Settle,
    /// The next due moments of lanes.
    Poll,
    /// What an instance reads each second beside the lanes: the registry's revision, the store's
    /// id, the holds, and the heartbeats of all instances.
    Look,
    /// The counts of lanes for the sampler.
    Sample,
    /// A message to the other instances.
    Publish,
}

impl Script {
    /// All of them, in the order of a report.
    pub(crate) const ALL: [Self; 9] = [
        Self::Add,
        Self::Claim,
        Self::EmptyClaim,
        Self::RefusedClaim,
        Self::Settle,
        Self::Poll,
        Self::Look,
        Self::Sample,
        Self::Publish,
    ];

    /// The time of one call, and of each task, lane or instance in it, in microseconds.
    const fn micros(self) -> (f64, f64) {
        match self {
            Self::Add => (33.0, 4.0),
            Self::Claim => (72.0, 5.8),
            Self::EmptyClaim => (48.0, 0.0),
            Self::RefusedClaim => (13.0, 0.0),
            Self::Settle => (30.0, 6.8),
            Self::Poll => (17.8, 4.6),
            // With four reads of a microsecond each.
            Self::Look => (21.0, 1.9),
            Self::Sample => (25.6, 16.3),
            // From `INFO commandstats`, with as many subscribers as instances.
            Self::Publish => (0.7, 0.2),
        }
    }
}

/// Some calls of one script, which Redis runs one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) script: Script,
    pub(crate) calls: usize,
    /// The tasks, lanes or instances in all calls.
    pub(crate) items: usize,
}

impl Job {
    /// One call.
    pub(crate) fn one(script: Script, items: usize) -> Self {
        Self { script, calls: 1, items }
    }

    /// How long Redis takes for it.
    pub(crate) fn time(self) -> Duration {
        let (fixed, each) = self.script.micros();
        let micros = fixed * self.calls as f64 + each * self.items as f64;
        Duration::from_nanos((micros * 1_000.0).round() as u64)
    }
}
