//! Who kept calls from beginning last.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::culprit::Culprit;

/// The sampler asks once a second.
const LATELY: Duration = Duration::from_secs(1);

/// When the last permit was taken, and who kept further calls from beginning.
///
/// Slots become free one by one, and the next claim takes them. So at most moments of a backlog,
/// some slots are free, though only their receivers delay it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastBlock(Option<(Instant, Culprit)>);

impl LastBlock {
    pub(super) fn note(&mut self, by: Option<Culprit>, now: Instant) {
        self.0 = by.map(|by| (now, by)).or(self.0);
    }

    pub(super) fn lately(self, now: Instant) -> Option<Culprit> {
        self.0.filter(|(at, _)| now.duration_since(*at) <= LATELY).map(|(_, by)| by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tasks of a backlog were shown as late because of delayd, whenever a slot was free.
    #[test]
    fn slots_that_were_all_taken_a_moment_ago_are_the_receivers() {
        let (mut last, began) = (LastBlock::default(), Instant::now());
        assert_eq!(last.lately(began), None);
        last.note(Some(Culprit::Receiver), began);
        last.note(None, began + LATELY);
        assert_eq!(last.lately(began + LATELY), Some(Culprit::Receiver));
        assert_eq!(last.lately(began + 2 * LATELY), None);
    }
}
