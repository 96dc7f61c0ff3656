//! The instances that share the store, as their heartbeats show them.
//!
//! Each instance says once a second what it is and how it does. A heartbeat decides only what is
//! shown and which instance counts what all of them see. It never decides which instance may claim:
//! one that is cut off still works.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::time::Instant;

use crate::metrics::{Usage, usage};
use crate::model::clock::UnixMillis;
use crate::store::Instance;

/// What an instance says of itself that does not change.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// Where it listens.
    pub address: String,
    /// When it started.
    pub started: UnixMillis,
    /// Whether it makes callbacks.
    pub has_workers: bool,
}

/// This instance, and all that are alive.
#[derive(Debug)]
pub struct Instances {
    own: Instance,
    /// What the process had used at the last heartbeat.
    used: Mutex<Option<(Instant, Usage)>>,
    living: RwLock<Arc<[Instance]>>,
}

impl Default for Instances {
    fn default() -> Self {
        Self::new(Params::default())
    }
}

impl Instances {
    /// An instance with a new id, which knows no others yet.
    pub fn new(Params { address, started, has_workers }: Params) -> Self {
        let own = Instance {
            id: format!("{:016x}", rand::random::<u64>()),
            name: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            address,
            has_workers,
            ..Instance::default()
        };
        Self { own, used: Mutex::default(), living: RwLock::default() }
    }

    /// The id of this instance.
    pub fn id(&self) -> &str {
        &self.own.id
    }

    /// What this instance says of itself now. The share of the processor is that since the last
    /// call.
    pub fn heartbeat(&self, calls: usize) -> Instance {
        let (now, usage) = (Instant::now(), usage().unwrap_or_default());
        let before = self.used.lock().unwrap_or_else(PoisonError::into_inner).replace((now, usage));
        let cpu = before.map_or(0.0, |(then, before)| {
            let passed = now.duration_since(then).as_secs_f64().max(0.001);
            ((usage.cpu_seconds - before.cpu_seconds) / passed).max(0.0)
        });
        Instance { cpu, memory: usage.memory, calls: calls as u64, ..self.own.clone() }
    }

    /// What this instance said of itself last.
    pub fn own(&self) -> Instance {
        let living = self.living();
        living.iter().find(|one| one.id == self.own.id).unwrap_or(&self.own).clone()
    }

    /// Learns which instances are alive.
    pub fn take_in(&self, living: Vec<Instance>) {
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = living.into();
    }

    /// The instances that were alive at the last poll, sorted by name. Empty before the first one.
    pub fn living(&self) -> Arc<[Instance]> {
        self.living.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this instance counts what all of them see: the first of those with workers.
    pub fn is_first(&self) -> bool {
        let living = self.living();
        let mut workers = living.iter().filter(|instance| instance.has_workers);
        workers.next().is_some_and(|first| first.id == self.own.id)
    }
}

/// The name of the host; empty if the system does not say.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_living_instance_with_workers_counts_for_all() {
        let instances = Instances::new(Params { has_workers: true, ..Params::default() });
        assert!(!instances.is_first(), "nothing is known yet");
        let own = instances.heartbeat(3);
        assert_eq!(own.calls, 3);
        let other =
            |id: &str, has_workers| Instance { id: id.into(), has_workers, ..Instance::default() };
        instances.take_in(vec![other("api", false), own.clone(), other("later", true)]);
        assert!(instances.is_first());
        instances.take_in(vec![other("earlier", true), own]);
        assert!(!instances.is_first());
    }
}
