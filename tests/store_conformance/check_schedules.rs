//! Each flaw of recurring schedules: made in the data of both stores, found, and repaired.

use delayd::model::task::ScheduleName;
use delayd::store::{Error, Flaw, Look, Maintenance, Pause, Schedules, Topics};

use crate::bench::{at, lane, topic, topic_of};
use crate::check_embedded::broken as broken_file;
use crate::check_redis::{Broken as BrokenRedis, broken as broken_redis};
use crate::redis_alone::raw;
use crate::schedules::{name, new, plan, plan_for, read, set};

impl BrokenRedis {
    fn recurring(&self) -> String {
        self.of("DELAY_RECURRING_TOPIC_TASK")
    }

    fn plans(&self) -> String {
        self.of("DELAY_PLANS_TOPIC_TASK")
    }

    fn marks(&self) -> String {
        let registry = self.key("DELAY_TOPIC_LIST");
        self.key(&format!("DELAY_TOPIC_SCHEDULED-{{{registry}}}"))
    }
}

#[tokio::test]
async fn a_schedule_that_no_planner_looks_at_is_looked_at_now() {
    let redis = broken_redis().await;
    set(&redis.bench, "a", "1").await;
    plan(&redis.bench, "a", 1_000).await;
    redis.bench.advance(5);
    raw::<i64>(&["ZREM", &redis.plans(), "a"]);
    redis.mends(&[(Flaw::ScheduleWithoutPlan, "a")]).await;
    assert_eq!(read(&redis.bench, "a").await.look, Some(at(5)));

    let file = broken_file();
    set(&file.bench, "a", "1").await;
    plan(&file.bench, "a", 1_000).await;
    file.bench.advance(5);
    file.change("UPDATE recurring SET look = NULL");
    file.mends(&[(Flaw::ScheduleWithoutPlan, "a")]).await;
    assert_eq!(read(&file.bench, "a").await.look, Some(at(5)));
}

#[tokio::test]
async fn a_look_at_a_schedule_that_is_paused_or_gone_is_removed() {
    let redis = broken_redis().await;
    set(&redis.bench, "a", "1").await;
    let pause = Some(Pause::Operator);
    redis.bench.store.pause_schedule(&lane(), &name("a"), pause).await.unwrap();
    raw::<i64>(&["ZADD", &redis.plans(), "5", "a", "6", "gone"]);
    let flaw = Flaw::PlanWithoutSchedule;
    redis.mends(&[(flaw, "a"), (flaw, "gone")]).await;

    let file = broken_file();
    set(&file.bench, "a", "1").await;
    file.bench.store.pause_schedule(&lane(), &name("a"), pause).await.unwrap();
    file.change("UPDATE recurring SET look = 5");
    file.mends(&[(flaw, "a")]).await;
    assert_eq!(file.bench.store.due_schedules(&lane(), 0).await.unwrap().names, []);
}

/// Neither stops the others, and it can be deleted.
#[tokio::test]
async fn a_schedule_that_cannot_be_read_is_reported_and_left_alone() {
    let flaw = [(Flaw::UnreadableSchedule, "a")];
    let redis = broken_redis().await;
    set(&redis.bench, "a", "1").await;
    set(&redis.bench, "b", "1").await;
    raw::<i64>(&["HSET", &redis.recurring(), "a", "2 of a later version"]);
    redis.leaves_alone(&flaw).await;
    plan(&redis.bench, "b", 1_000).await;
    assert!(redis.bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    redis.mends(&[]).await;

    let file = broken_file();
    set(&file.bench, "a", "1").await;
    set(&file.bench, "b", "1").await;
    file.change("UPDATE recurring SET state = '{' WHERE name = 'a'");
    file.leaves_alone(&flaw).await;
    plan(&file.bench, "b", 1_000).await;
    assert!(file.bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    file.mends(&[]).await;
}

#[tokio::test]
async fn a_schedule_in_another_lane_than_its_name_leads_to_is_reported() {
    let entry = topic_of("sharded", 4);
    let elsewhere = |name: &ScheduleName| name.lane_in(&entry.topic, 4).shard != 0;
    let stray: ScheduleName =
        (0..).map(|n| name(&format!("s{n}"))).find(elsewhere).expect("there are many names");
    let home = stray.lane_in(&entry.topic, 4);
    let flaw = [(Flaw::ScheduleMisplaced, stray.as_str())];

    let redis = broken_redis().await;
    redis.bench.store.set_schedule(&entry, new(stray.as_str(), "1")).await.unwrap();
    for role in ["RECURRING", "PLANS"] {
        let key = |lane: &str| redis.key(&format!("DELAY_{role}_TOPIC_TASK-{{{lane}}}"));
        raw::<()>(&["RENAME", &key(&home.to_string()), &key("sharded:0")]);
    }
    redis.leaves_alone(&flaw).await;

    let file = broken_file();
    file.bench.store.set_schedule(&entry, new(stray.as_str(), "1")).await.unwrap();
    file.change("UPDATE recurring SET shard = 0");
    file.leaves_alone(&flaw).await;
}

#[tokio::test]
async fn a_topic_that_is_not_marked_is_marked_again() {
    let redis = broken_redis().await;
    set(&redis.bench, "a", "1").await;
    let is_marked =
        async || redis.bench.store.topic(&topic().topic).await.unwrap().unwrap().has_schedules;
    raw::<i64>(&["DEL", &redis.marks()]);
    assert!(!is_marked().await);
    redis.mends(&[(Flaw::SchedulesUnmarked, "orders")]).await;
    assert!(is_marked().await);
    // The search of the janitor does it, too.
    raw::<i64>(&["DEL", &redis.marks()]);
    redis.bench.store.recover_topics().await.unwrap();
    assert!(is_marked().await);
}

/// A failover lost the topic, whose only schedule is paused: there is no task.
#[tokio::test]
async fn a_topic_that_has_only_schedules_is_registered_again() {
    let redis = broken_redis().await;
    let entry = topic_of("sharded", 8);
    redis.bench.store.set_schedule(&entry, new("a", "1")).await.unwrap();
    let home = name("a").lane_in(&entry.topic, 8);
    let pause = Some(Pause::Operator);
    redis.bench.store.pause_schedule(&home, &name("a"), pause).await.unwrap();
    let lose = || {
        raw::<i64>(&["DEL", &redis.key("DELAY_TOPIC_LIST"), &redis.marks()]);
    };
    let registered = async || redis.bench.store.topic(&entry.topic).await.unwrap().unwrap();
    lose();
    redis
        .mends(&[(Flaw::UnregisteredTopic, "sharded"), (Flaw::SchedulesUnmarked, "sharded")])
        .await;
    assert_eq!((registered().await.entry, registered().await.has_schedules), (entry.clone(), true));
    lose();
    assert_eq!(redis.bench.store.recover_topics().await.unwrap(), std::slice::from_ref(&entry));
    assert_eq!((registered().await.entry, registered().await.has_schedules), (entry.clone(), true));

    let file = broken_file();
    let single = topic_of("single", 1);
    let home = name("a").lane_in(&single.topic, 1);
    file.bench.store.set_schedule(&single, new("a", "1")).await.unwrap();
    file.bench.store.pause_schedule(&home, &name("a"), pause).await.unwrap();
    file.change("DELETE FROM topic WHERE name = 'single'");
    file.mends(&[(Flaw::UnregisteredTopic, "single")]).await;
}

/// The plan of a schedule that has ended wakes no planner.
#[tokio::test]
async fn a_schedule_that_has_ended_is_never_due() {
    let redis = broken_redis().await;
    set(&redis.bench, "a", "1").await;
    raw::<i64>(&["ZADD", &redis.plans(), "9007199254740991", "a"]);
    let look = async || {
        let look = Look { planners: vec![lane()], ..Look::default() };
        delayd::store::Delivery::look(&redis.bench.store, look).await.plans.unwrap().unwrap().lanes
    };
    assert_eq!(look().await, [None]);
    assert_eq!(read(&redis.bench, "a").await.look, None);
}

/// A full Redis refuses plans. What is stored is called, and a schedule can be paused and deleted.
#[tokio::test]
async fn a_full_redis_plans_nothing_and_its_schedules_can_be_paused() {
    let server = crate::redis_server::Server::start();
    let clock = delayd::model::clock::Clock::manual(crate::bench::START);
    let store = crate::redis_alone::connect_to(&server, &clock).await;
    let bench = crate::bench::Bench::around(store, clock);
    set(&bench, "a", "1").await;
    let first = plan(&bench, "a", 0).await;
    assert_eq!(crate::bench::ids(&bench.claim(&[("message.call", 9)]).await), [first]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = bench.store.set_schedule(&topic(), new("b", "1")).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    let next = plan_for(&read(&bench, "a").await, 100);
    let refused = bench.store.plan(next.clone()).await;
    assert!(matches!(refused, Err(Error::Full(_))), "{refused:?}");
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    bench.store.plan(next).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    bench.advance(100);
    assert_eq!(bench.claim(&[("message.call", 9)]).await.tasks.len(), 1);
    let pause = Some(Pause::Operator);
    let paused = bench.store.pause_schedule(&lane(), &name("a"), pause).await.unwrap();
    assert!(paused.unwrap().paused.is_some());
    assert!(bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
}
