//! The figures of all destinations, for metrics.

use std::collections::HashSet;

use tokio::time::Instant;

use super::entry::LimitEntry;
use super::params::{Detail, Limited};
use super::{Allowance, DestinationLimits};
use crate::model::breaker::State;
use crate::model::task::Destination;

/// The most other destinations that one survey looks at, because it holds the lock: for a
/// millisecond or two with so many.
const MOST_OTHERS: usize = 10_000;

/// The figures of one destination, or the sums over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotFigures {
    /// Taken slots.
    pub in_flight: usize,
    /// The most slots that may be taken now.
    pub window: usize,
    /// The number of destinations with each state of the breaker, in the order of [`State::ALL`].
    pub breakers: [usize; State::ALL.len()],
}

/// The figures of all destinations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Taken slots in total.
    pub in_flight: usize,
    /// The most slots in total.
    pub limit: usize,
    /// The figures of each destination of the request, in order.
    pub named: Vec<SlotFigures>,
    /// The sums over all others that are in use; window and breakers of at most 10,000 of them.
    pub others: SlotFigures,
}

impl SlotFigures {
    fn add(&mut self, entry: &mut LimitEntry, now: Instant) {
        self.in_flight += entry.bulkhead.in_flight();
        self.window += entry.gate.slow_start(now).min(entry.bulkhead.limit());
        self.breakers[entry.gate.breaker(now) as usize] += 1;
    }
}

impl DestinationLimits {
    /// The figures of these destinations, and the sums over all others.
    pub fn survey(&self, named: &[(Destination, Allowance)]) -> Survey {
        let (now, params) = (Instant::now(), self.0.params());
        let mut table = self.0.table();
        let (in_flight, limit) = (table.in_flight, table.concurrency);
        let mut survey = Survey { in_flight, limit, ..Survey::default() };
        for (destination, allowance) in named {
            let allowance = params.resolved(*allowance);
            let mut figures = SlotFigures::default();
            match table.entries.get_mut(destination) {
                Some(entry) => {
                    // A hold may have created the entry before its allowance was known.
                    entry.allow(allowance, now);
                    figures.add(entry, now);
                }
                None => figures
                    .add(&mut LimitEntry::new(allowance, Destination::breaker(&params), now), now),
            }
            survey.named.push(figures);
        }
        let in_flight = in_flight - survey.named.iter().map(|named| named.in_flight).sum::<usize>();
        let named: HashSet<&Destination> = named.iter().map(|(name, _)| name).collect();
        for (name, entry) in table.entries.iter_mut().take(MOST_OTHERS + named.len()) {
            if !named.contains(name) {
                survey.others.add(entry, now);
            }
        }
        survey.others.in_flight = in_flight;
        survey
    }

    /// The destinations in use, the worst first: at most `most`, out of 10,000.
    pub fn worst(&self, most: usize) -> Vec<(Destination, Detail)> {
        let now = Instant::now();
        let mut ranked: Vec<_> = {
            let mut table = self.0.table();
            let entries = table.entries.iter_mut().take(MOST_OTHERS);
            entries.map(|(name, entry)| (entry.badness(now), name.clone())).collect()
        };
        ranked.sort_unstable_by(|one, other| other.cmp(one));
        ranked.truncate(most);
        let mut table = self.0.table();
        let mut detail = |name: Destination| {
            let detail = table.entries.get_mut(&name)?.detail(now);
            Some((name, detail))
        };
        ranked.into_iter().filter_map(|(_, name)| detail(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use crate::limits::LimitParams;
    use crate::model::breaker;

    fn limits() -> DestinationLimits {
        DestinationLimits::new(LimitParams {
            concurrency: 1_000,
            concurrency_per_service: 100,
            breaker: breaker::Params::default(),
            retry_after_max: Duration::from_secs(60),
        })
    }

    fn name(name: &str) -> Destination {
        name.parse().unwrap()
    }

    fn fail(limits: &DestinationLimits, destination: &Destination) {
        let mut permits = limits.reserve(destination, Allowance::default(), 1);
        let mut permit = permits.split_one().expect("there is a slot");
        permit.begin(Duration::from_secs(15));
        permit.failed("503");
    }

    #[test]
    fn named_destinations_stand_alone_and_the_others_are_summed() {
        let limits = limits();
        let named = [(name("a"), Allowance::default()), (name("new"), Allowance::default())];
        let _held = ["a", "b", "c"].map(|n| limits.reserve(&name(n), Allowance::default(), 2));
        (0..5).for_each(|_| fail(&limits, &name("c")));
        let survey = limits.survey(&named);
        let figures = |in_flight, window, breakers| SlotFigures { in_flight, window, breakers };
        assert_eq!(survey.named, [figures(2, 16, [1, 0, 0]), figures(0, 16, [1, 0, 0])]);
        assert_eq!(survey.others, figures(4, 32, [1, 0, 1]));
        assert_eq!((survey.in_flight, survey.limit), (6, 1_000));
    }

    #[test]
    fn each_change_of_a_breaker_is_told_once() {
        let limits = limits();
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = told.clone();
        limits.observe_breakers(move |destination, to| {
            listener.lock().unwrap().push((destination.clone(), to));
        });
        (0..5).for_each(|_| fail(&limits, &name("a")));
        assert_eq!(limits.reserve(&name("a"), Allowance::default(), 1).len(), 0);
        assert_eq!(*told.lock().unwrap(), [(name("a"), State::Open)]);
    }
}
