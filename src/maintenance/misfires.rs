//! Forgets past pauses that have a misfire policy, once no waiting task fell due in them. Until
//! then, each claim of the topic looks for such tasks.
//!
//! No fixed time would be long enough: a task of a held destination, or a task that no consumer
//! pulls, may wait for years. So two conditions are checked once a minute, with two short lists per
//! lane and pause; the second only if the first holds:
//!
//! 1. No lease of the lane ends within the pause or before it. Only an expired lease puts a task
//!    back on its schedule at a moment in the past, its deadline. Tasks that are added, moved,
//!    retried, released or replayed fall due from now on.
//! 2. No task of the lane is scheduled within the pause. This is checked second, so that it sees a
//!    task whose lease was swept in between.
//!
//! Both conditions are monotonic, so lanes can be checked one after the other. Other instances'
//! claims may use the pause for one more second; they find nothing.

use std::time::Duration;

use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State};
use crate::store::{ListQuery, Maintenance, Misfire, Registered, Result, Topics};

/// A pause is kept for this time after its end. It is longer than the clocks of a store's servers
/// may differ, or than a clock is set back unnoticed.
const GRACE: Duration = Duration::from_secs(3_600);

/// Forgets the topic's pauses in which no task can fall due. `now` is the store's.
pub(super) async fn forget(
    store: &(impl Topics + Maintenance),
    topic: &Registered,
    now: UnixMillis,
) -> Result<()> {
    for misfire in topic.misfires.iter().filter(|misfire| misfire.to + GRACE < now) {
        if is_outlived(store, topic, misfire).await? {
            store.forget_misfire(&topic.entry.topic, *misfire).await?;
            tracing::debug!(
                topic = %topic.entry.topic,
                "A pause of topic {} is forgotten: no waiting task fell due in it",
                topic.entry.topic
            );
        }
    }
    Ok(())
}

async fn is_outlived(store: &impl Topics, topic: &Registered, misfire: &Misfire) -> Result<bool> {
    for lane in topic.entry.lanes() {
        let begin = UnixMillis(i64::MIN);
        if has_any(store, &lane, State::Leased, begin, misfire.to).await?
            || has_any(store, &lane, State::Scheduled, misfire.from, misfire.to).await?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn has_any(
    store: &impl Topics,
    lane: &Lane,
    state: State,
    from: UnixMillis,
    to: UnixMillis,
) -> Result<bool> {
    let query = ListQuery { lane: lane.clone(), state, from, to, after: None, limit: 1 };
    Ok(!store.list(query).await?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::Clock;
    use crate::model::task::Options;
    use crate::store::{Claim, Misfired, Moment, NewTask, TopicEntry, Want, embedded};

    const MINUTE: Duration = Duration::from_secs(60);

    struct Bench {
        store: embedded::Embedded,
        clock: Clock,
        topic: TopicEntry,
        _folder: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let clock = Clock::manual(UnixMillis(1_800_000_000_000));
            let params = embedded::Params {
                path: folder.path().join("delayd.db"),
                reserve: 0,
                clock: clock.clone(),
            };
            let topic = TopicEntry { topic: "orders".parse().unwrap(), shards: 2 };
            Self { store: embedded::Embedded::open(params).unwrap(), clock, topic, _folder: folder }
        }

        async fn add(&self, after: Duration) {
            let task = NewTask {
                topic: self.topic.clone(),
                destination: "a".parse().unwrap(),
                moment: Moment::After(after),
                options: Options::default(),
                content: "{}".into(),
                idempotency: None,
                quota: None,
            };
            self.store.add(vec![task]).await.remove(0).unwrap();
        }

        /// A pause of ten minutes, which has ended.
        async fn pause(&self) {
            self.store.create(self.topic.clone(), None).await.unwrap();
            self.store.pause(&self.topic.topic).await.unwrap();
            self.clock.advance(10 * MINUTE);
            self.store.resume(&self.topic.topic, Some(Misfired::Expired)).await.unwrap();
        }

        /// Claims what is due in all lanes, with these misfires. Returns the number of tasks.
        async fn claim(&self, misfires: &[Misfire], lease: Duration) -> usize {
            let mut taken = 0;
            for lane in self.topic.lanes() {
                let wants = vec![Want { destination: "a".parse().unwrap(), slots: 9 }];
                let misfires = misfires.to_vec();
                let claim = Claim {
                    lane,
                    wants,
                    lease,
                    holder: None,
                    more: false,
                    after: None,
                    in_hand: 0,
                    misfires,
                };
                let crate::store::Claimed::Granted(grant) = self.store.claim(claim).await.unwrap()
                else {
                    panic!("refused")
                };
                taken += grant.tasks.len();
            }
            taken
        }

        /// Does a round, and returns the pauses that stay.
        async fn left(&self) -> Vec<Misfire> {
            let read = async || self.store.topics().await.unwrap().remove(0);
            forget(&self.store, &read().await, self.clock.now()).await.unwrap();
            read().await.misfires
        }
    }

    #[tokio::test]
    async fn a_pause_is_forgotten_when_its_tasks_are_gone_however_long_that_takes() {
        let bench = Bench::new();
        bench.add(MINUTE).await;
        bench.pause().await;
        // No worker claims for its destination.
        bench.clock.advance(100 * 24 * 60 * MINUTE);
        let misfires = bench.left().await;
        assert_eq!(misfires.len(), 1);
        assert_eq!(bench.claim(&misfires, MINUTE).await, 0);
        assert_eq!(bench.left().await, []);
    }

    #[tokio::test]
    async fn a_pause_is_kept_while_a_lease_may_put_a_task_back_into_it() {
        let bench = Bench::new();
        bench.add(Duration::ZERO).await;
        assert_eq!(bench.claim(&[], 5 * MINUTE).await, 1);
        bench.pause().await;
        bench.clock.advance(120 * MINUTE);
        let misfires = bench.left().await;
        assert_eq!(misfires.len(), 1, "the lease ended in the pause, and has not been swept");
        assert_eq!(bench.claim(&misfires, MINUTE).await, 0);
        assert_eq!(bench.left().await, []);
    }

    #[tokio::test]
    async fn a_pause_that_has_just_ended_is_kept() {
        let bench = Bench::new();
        bench.pause().await;
        bench.clock.advance(59 * MINUTE);
        assert_eq!(bench.left().await.len(), 1);
        bench.clock.advance(2 * MINUTE);
        assert_eq!(bench.left().await, []);
    }
}
