//! The names of services as labels, capped.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The most services with series of their own.
const MOST: usize = 40;
/// The label of all others.
pub(super) const OTHER: &str = "other";

/// The services that have a label of their own: the first 40 that are named. Callers can name any
/// number of hosts, and each label makes `/metrics` longer until the next start.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceNames(Arc<Mutex<HashSet<Arc<str>>>>);

impl ServiceNames {
    /// The label of a service; `None` if it counts as [`OTHER`].
    pub(super) fn label(&self, service: &str) -> Option<Arc<str>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(service) {
            return Some(name.clone());
        }
        if names.len() >= MOST {
            return None;
        }
        let name: Arc<str> = service.into();
        names.insert(name.clone());
        Some(name)
    }

    /// The services that have a label of their own, by name.
    pub(super) fn all(&self) -> Vec<Arc<str>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Arc<str>> = names.iter().cloned().collect();
        drop(names);
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_forty_services_have_a_label_of_their_own() {
        let names = ServiceNames::default();
        for i in 0..MOST {
            let name = format!("service-{i}");
            assert_eq!(names.label(&name).as_deref(), Some(name.as_str()));
        }
        assert_eq!(names.label("one.more"), None);
        assert_eq!(names.label("service-0").as_deref(), Some("service-0"));
    }
}
