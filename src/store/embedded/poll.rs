//! What workers poll: the next moments of lanes, and the state of each second.

use super::disk::space::Meter;
use super::query::next_due_from;
use super::{Embedded, schedules, topics};
use crate::model::task::Lane;
use crate::store::{Instance, Look, Looked, NextDue, Result, Revision};

impl Embedded {
    pub(crate) async fn look(&self, look: Look) -> Looked {
        // This store counts no revisions: the registry is read each time.
        let Look { seen: _, workers, consumers, planners, heartbeat } = look;
        let next =
            if workers.is_empty() { Ok(None) } else { self.next_due(workers).await.map(Some) };
        let pulls =
            if consumers.is_empty() { Ok(None) } else { self.next_pull(consumers).await.map(Some) };
        let plans = match planners.is_empty() {
            true => Ok(None),
            false => {
                let clock = self.clock.clone();
                let next = self.polls.run(move |db| schedules::next(db, &planners, clock.now()));
                next.await.map(Some)
            }
        };
        let holds = self.holds().await;
        let meter = self.meter.clone();
        // Last: a pause that has been read must not wait for the others.
        let registry = self.polls.run(move |db| {
            // A thread that reads may wait for the disk.
            meter.iter().for_each(Meter::measure);
            topics::topics_from(db)
        });
        let registry =
            registry.await.map(|topics| Some((Revision::default(), self.with_schedules(topics))));
        let now = self.clock.now();
        let instances = heartbeat.map(|own| Instance { seen: now, ..own }).into_iter().collect();
        let (unknown, unanswered, instances) = (Vec::new(), Vec::new(), Ok(instances));
        Looked { registry, holds, next, pulls, plans, unknown, unanswered, instances }
    }

    pub(crate) async fn next_due(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.polls.run(move |db| next_due_from(db, &lanes, true, clock.now())).await
    }

    pub(crate) async fn next_pull(&self, lanes: Vec<Lane>) -> Result<NextDue> {
        let clock = self.clock.clone();
        self.polls.run(move |db| next_due_from(db, &lanes, false, clock.now())).await
    }
}
