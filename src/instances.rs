//! The instances that share the store, as their heartbeats show them.
//!
//! Each instance sends a heartbeat to the store once a second. Heartbeats decide which instance
//! looks at which lane (`worker/ownership`), what is shown, how many instances share the forecast's
//! capacity, and whether an instance without workers reports overdue tasks. They never decide which
//! instance may claim: an instance whose heartbeats do not arrive still works (ADR 20, ADR 22).

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::time::Instant;

use crate::metrics::{Usage, usage};
use crate::model::clock::UnixMillis;
use crate::store::{FORMAT, Instance};

/// The fields of a heartbeat that do not change.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// The address that it listens on.
    pub address: String,
    /// When it started.
    pub started: UnixMillis,
    /// Whether it makes callbacks.
    pub has_workers: bool,
}

/// This instance, and all living instances.
#[derive(Debug)]
pub struct Instances {
    own: Instance,
    /// When the last heartbeat was made, and what the process had used by then.
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
    pub fn new(params: Params) -> Self {
        Self::with_id(rand::random(), params)
    }

    /// An instance with this id. No other start may have it.
    pub fn with_id(id: u64, Params { address, started, has_workers }: Params) -> Self {
        let own = Instance {
            id: format!("{id:016x}"),
            name: host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            address,
            has_workers,
            format: FORMAT,
            ..Instance::default()
        };
        Self { own, used: Mutex::default(), living: RwLock::default() }
    }

    /// The id of this instance.
    pub fn id(&self) -> &str {
        &self.own.id
    }

    /// The heartbeat of this instance now. `cpu` is the use since the last call.
    pub fn heartbeat(&self, calls: usize) -> Instance {
        let (now, usage) = (Instant::now(), usage().unwrap_or_default());
        let before = self.used.lock().unwrap_or_else(PoisonError::into_inner).replace((now, usage));
        let cpu = before.map_or(0.0, |(then, before)| {
            let passed = now.duration_since(then).as_secs_f64().max(0.001);
            ((usage.cpu_seconds - before.cpu_seconds) / passed).max(0.0)
        });
        Instance { cpu, memory: usage.memory, calls: calls as u64, ..self.own.clone() }
    }

    /// The last heartbeat of this instance that the store answered.
    pub fn own(&self) -> Instance {
        let living = self.living();
        living.iter().find(|one| one.id == self.own.id).unwrap_or(&self.own).clone()
    }

    /// Replaces the living instances.
    pub fn take_in(&self, living: Vec<Instance>) {
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = living.into();
    }

    /// The instances that were alive at the last poll, sorted by name. Empty before the first one.
    pub fn living(&self) -> Arc<[Instance]> {
        self.living.read().unwrap_or_else(PoisonError::into_inner).clone()
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
    fn an_instance_shows_its_last_heartbeat() {
        let instances = Instances::new(Params { has_workers: true, ..Params::default() });
        assert_eq!(instances.own().calls, 0);
        let own = instances.heartbeat(3);
        instances.take_in(vec![Instance::default(), own]);
        assert_eq!((instances.own().calls, instances.living().len()), (3, 2));
    }
}
