use std::future::Future;

use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;
use crate::maintenance::Planner;
use crate::model::clock::{Clock, UnixMillis};
use crate::model::task::{Topic, TopicPolicy};
use crate::store::embedded::{self, Embedded};
use crate::store::{
    Counts, Creator, DueSchedules, ListQuery, Listed, Misfired, NewSchedule, Pause, Plan,
    Registered, Schedule, ScheduleSet, TopicEntry,
};
use crate::topic;

/// A schedule of each second, which is due at once.
const EACH_SECOND: &str = r#"{"every_ms":1000,"zone":"UTC","misfire":"once","overlap":"allow",
    "destination":"@pull","content":"{}"}"#;

fn embedded() -> (Embedded, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let params = embedded::Params {
        path: folder.path().join("delayd.db"),
        reserve: 0,
        clock: Clock::system(),
    };
    (Embedded::open(params).unwrap(), folder)
}

fn new(name: &str, definition: &str) -> NewSchedule {
    let (name, definition) = (name.parse().unwrap(), definition.to_owned());
    NewSchedule { name, definition, revision: 1, moved: None }
}

/// A later version may set what this one cannot read. The other schedules go on.
#[tokio::test]
async fn an_unreadable_schedule_is_counted_and_the_others_are_planned() {
    let (store, _folder) = embedded();
    let store = Arc::new(AnyStore::Embedded(store));
    let topics = Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 }));
    let metrics = Metrics::new([]);
    let topic: Topic = "t".parse().unwrap();
    let entry = topics.ensure(&topic).await.unwrap().entry;
    let mut lanes = Vec::new();
    for (name, definition) in [("later", r#"{"rule":7}"#), ("mine", EACH_SECOND)] {
        let new = new(name, definition);
        lanes.push(new.name.lane_in(&topic, entry.shards));
        store.set_schedule(&entry, new).await.unwrap();
    }
    let _planner = Planner::start(store.clone(), topics.clone(), metrics.clone());
    topics.due_lanes().add(lanes);
    let says = |line: &str| metrics.encode().lines().any(|found| found == line);
    let counted = async {
        while !says("delayd_schedules_unreadable 1") || !says("delayd_schedule_occurrences_total 1")
        {
            tokio::task::yield_now().await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(60), counted).await;
    assert!(counted.is_ok(), "{}", metrics.encode());
    assert!(says("delayd_schedule_plan_failures_total 0"));
}

/// A store in which one topic is on a server that answers late.
#[derive(Debug)]
struct OneIsSlow {
    store: Embedded,
    slow: Topic,
    asked: Notify,
    gate: Semaphore,
}

impl Schedules for OneIsSlow {
    fn set_schedule(
        &self,
        topic: &TopicEntry,
        new: NewSchedule,
    ) -> impl Future<Output = Result<ScheduleSet>> + Send {
        self.store.set_schedule(topic, new)
    }

    fn schedules(
        &self,
        reader: Reader,
        lane: &Lane,
        names: Vec<ScheduleName>,
    ) -> impl Future<Output = Result<Vec<Option<Schedule>>>> + Send {
        self.store.schedules(reader, lane, names)
    }

    fn schedule_names(
        &self,
        lane: &Lane,
        after: Option<ScheduleName>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ScheduleName>>> + Send {
        self.store.schedule_names(lane, after, limit)
    }

    fn pause_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        pause: Option<Pause>,
    ) -> impl Future<Output = Result<Option<Schedule>>> + Send {
        self.store.pause_schedule(lane, name, pause)
    }

    fn delete_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.store.delete_schedule(lane, name)
    }

    fn forget_schedule(
        &self,
        lane: &Lane,
        name: &ScheduleName,
        revision: u64,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.store.forget_schedule(lane, name, revision)
    }

    fn plan(&self, plan: Plan) -> impl Future<Output = Result<Planned>> + Send {
        self.store.plan(plan)
    }

    async fn due_schedules(&self, lane: &Lane, skip: usize) -> Result<DueSchedules> {
        if lane.topic == self.slow {
            self.asked.notify_one();
            self.gate.acquire().await.expect("the gate is never closed").forget();
        }
        self.store.due_schedules(lane, skip).await
    }
}

impl Topics for OneIsSlow {
    fn create(
        &self,
        entry: TopicEntry,
        creator: Option<Creator>,
    ) -> impl Future<Output = Result<TopicEntry>> + Send {
        self.store.create(entry, creator)
    }

    fn topic(&self, topic: &Topic) -> impl Future<Output = Result<Option<Registered>>> + Send {
        self.store.topic(topic)
    }

    fn topics(&self) -> impl Future<Output = Result<Vec<Registered>>> + Send {
        self.store.topics()
    }

    fn set_policy(
        &self,
        topic: &Topic,
        policy: &TopicPolicy,
    ) -> impl Future<Output = Result<bool>> + Send {
        self.store.set_policy(topic, policy)
    }

    fn pause(&self, topic: &Topic) -> impl Future<Output = Result<Option<UnixMillis>>> + Send {
        self.store.pause(topic)
    }

    fn resume(
        &self,
        topic: &Topic,
        becomes: Option<Misfired>,
    ) -> impl Future<Output = Result<Option<bool>>> + Send {
        self.store.resume(topic, becomes)
    }

    fn unregister(&self, entry: &TopicEntry) -> impl Future<Output = Result<bool>> + Send {
        self.store.unregister(entry)
    }

    fn stats(&self, lane: &Lane) -> impl Future<Output = Result<Counts>> + Send {
        self.store.stats(lane)
    }

    fn list(&self, query: ListQuery) -> impl Future<Output = Result<Vec<Listed>>> + Send {
        self.store.list(query)
    }

    fn list_latest(&self, query: ListQuery) -> impl Future<Output = Result<Vec<Listed>>> + Send {
        self.store.list_latest(query)
    }
}

/// One lane after the other: a server that answers late, or a lane with a long backlog, delayed
/// the moments of all others.
#[tokio::test]
async fn a_lane_that_takes_long_delays_no_other() {
    let (store, _folder) = embedded();
    let (asked, gate) = (Notify::new(), Semaphore::new(0));
    let slow: Topic = "a-slow".parse().unwrap();
    let store = Arc::new(OneIsSlow { store, slow: slow.clone(), asked, gate });
    let topics = Arc::new(Registry::new(store.clone(), topic::Params { max_topics: 10 }));
    let lane_of = async |topic: &str| {
        let entry = topics.ensure(&topic.parse().unwrap()).await.unwrap().entry;
        store.set_schedule(&entry, new("s", EACH_SECOND)).await.unwrap();
        entry.lanes().next().unwrap()
    };
    let slow_lane = lane_of(slow.as_str()).await;
    let (same_turn, later) = (lane_of("b").await, lane_of("c").await);
    let planned = async |lane: &Lane| {
        let is_planned = async {
            loop {
                let names = vec!["s".parse().unwrap()];
                let found = store.schedules(Reader::Worker, lane, names).await.unwrap().remove(0);
                if !found.unwrap().recent.is_empty() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), is_planned).await;
        assert!(waited.is_ok(), "{lane} was not planned");
    };
    let _planner = Planner::start(store.clone(), topics.clone(), Metrics::new([]));
    topics.due_lanes().add([slow_lane.clone(), same_turn.clone()]);
    store.asked.notified().await;
    planned(&same_turn).await;
    topics.due_lanes().add([later.clone()]);
    planned(&later).await;
    store.gate.add_permits(1);
    planned(&slow_lane).await;
}
