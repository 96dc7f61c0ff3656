//! What callers and receivers were told, with the positions of the record.
//!
//! The history of a task (or of a setting) is a chain of steps. Each step has the position at which
//! its request was sent, and the position at which its first answer had arrived. A power cut at
//! position k may leave the task at any step from the last one that was promised by then to the
//! last one that was sent by then.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    pub sent: u64,
    /// `None`: never answered, or refused with 503. It may be stored or not.
    pub promised: Option<u64>,
    /// What the store may show after it: states of a task, or the value of a setting.
    pub shows: Vec<String>,
    /// The version in the content, if this step sets it.
    pub version: Option<u64>,
    /// The due moment or the end of the lease is not before this.
    pub from_ms: Option<i64>,
}

impl Step {
    pub fn new(sent: u64, promised: Option<u64>, shows: &[&str]) -> Self {
        let shows = shows.iter().map(|&shown| shown.to_owned()).collect();
        Self { sent, promised, shows, version: None, from_ms: None }
    }

    pub fn version(self, version: u64) -> Self {
        Self { version: Some(version), ..self }
    }

    pub fn from(self, from_ms: i64) -> Self {
        Self { from_ms: Some(from_ms), ..self }
    }
}

/// The steps of one task or setting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Chain {
    /// The topic of a task.
    pub topic: String,
    /// Whether the first step made the task. Otherwise the answer to the add was lost.
    is_whole: bool,
    pub steps: Vec<Step>,
}

impl Chain {
    /// The steps that may be the last one after a cut at this position, and whether the chain may
    /// be missing as a whole.
    pub fn possible(&self, position: u64) -> (Range<usize>, bool) {
        let is_kept = |step: &Step| step.promised.is_some_and(|promised| promised <= position);
        let kept = self.steps.iter().rposition(is_kept);
        let sent = self.steps.iter().rposition(|step| step.sent <= position);
        let end = kept.max(sent).map_or(0, |last| last + 1);
        (kept.unwrap_or(0)..end, kept.is_none())
    }

    /// The version of the content after a step.
    pub fn version(&self, step: usize) -> u64 {
        self.steps[..=step].iter().rev().find_map(|step| step.version).unwrap_or(0)
    }

    /// The positions at which something was sent or promised last before a position.
    pub fn last_event(&self, position: u64) -> u64 {
        let events = self.steps.iter().flat_map(|step| [Some(step.sent), step.promised]).flatten();
        events.filter(|at| *at <= position).max().unwrap_or(0)
    }
}

/// A callback as it arrived.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub id: u64,
    pub topic: String,
    pub at: u64,
    /// The version in its content.
    pub version: u64,
}

/// Everything that a load was told.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// When the load began, in Unix milliseconds. All leases end later than hours after it.
    pub began_ms: i64,
    pub tasks: BTreeMap<u64, Chain>,
    pub settings: BTreeMap<String, Chain>,
    /// Ids that this store drew, and the positions from which on somebody knew them.
    pub drawn: Vec<(u64, u64)>,
    pub calls: Vec<Call>,
}

impl History {
    /// Notes the step that makes a task. A consumer may have noted a later step already.
    pub fn added(&mut self, id: u64, topic: &str, step: Step) {
        let chain = self.tasks.entry(id).or_default();
        assert!(!chain.is_whole, "{id} was drawn twice");
        topic.clone_into(&mut chain.topic);
        chain.is_whole = true;
        chain.steps.insert(0, step);
    }

    pub fn step(&mut self, id: u64, topic: &str, step: Step) {
        let chain = self.tasks.entry(id).or_default();
        topic.clone_into(&mut chain.topic);
        chain.steps.push(step);
    }

    pub fn set(&mut self, setting: &str, step: Step) {
        self.settings.entry(setting.to_owned()).or_default().steps.push(step);
    }

    /// Adds what the callbacks promise: a task that was called is stored, with the content of the
    /// call or a later one.
    pub fn finish(&mut self) {
        for call in &self.calls {
            self.tasks.entry(call.id).or_default().topic.clone_from(&call.topic);
            self.drawn.push((call.at, call.id));
        }
        for chain in self.tasks.values_mut().filter(|chain| !chain.is_whole) {
            let shows = if chain.topic == "pushed" { PUSHED } else { &["scheduled", "leased"] };
            chain.steps.insert(0, Step::new(0, None, shows).version(0));
        }
        for call in &self.calls {
            let chain = self.tasks.get_mut(&call.id).expect("it was just made");
            let is_seen = |step: &&mut Step| step.version.is_some_and(|it| it <= call.version);
            let step = chain.steps.iter_mut().rev().find(is_seen).expect("the first has version 0");
            step.promised = Some(step.promised.map_or(call.at, |at| at.min(call.at)));
        }
        self.drawn.sort_unstable();
    }

    /// The highest id that somebody knew at a position.
    pub fn highest_id(&self, position: u64) -> u64 {
        let count = self.drawn.partition_point(|(at, _)| *at <= position);
        self.drawn[..count].iter().map(|(_, id)| *id).max().unwrap_or(0)
    }

    /// The positions of all promises.
    pub fn promises(&self) -> Vec<u64> {
        let chains = self.tasks.values().chain(self.settings.values());
        chains.flat_map(|chain| &chain.steps).filter_map(|step| step.promised).collect()
    }

    /// Moves each promise to where `earlier` says.
    pub fn promise_earlier(&mut self, earlier: impl Fn(u64) -> u64) {
        let chains = self.tasks.values_mut().chain(self.settings.values_mut());
        for step in chains.flat_map(|chain| &mut chain.steps) {
            step.promised = step.promised.map(&earlier);
        }
    }
}

/// The states of a task that is called: at any moment it may have been. (A start voids the leases
/// of workers, so only a receiver that acknowledges later has one.)
pub const PUSHED: &[&str] = &["scheduled", "leased", "delivered", "dead"];
