//! Planners of recurring schedules, over a real clock of their own: what they plan, and when.

use std::sync::Arc;

use delayd::maintenance::Planner;
use delayd::metrics::Metrics;
use delayd::model::schedule::{Definition, MisfireRule, Overlap};
use delayd::model::task::{Options, ScheduleName};
use delayd::planner;
use delayd::store::{
    Asker, Claimed, MAX_DUE_SCHEDULES, NewSchedule, Planned, Reader, Schedule, ScheduleSet, Settle,
    Store,
};
use delayd::topic::{Params, Registry};
use futures_util::future::join_all;

use crate::bench::{Bench, Held, at, claim_of, delivered, ids, lane, ms, topic};
use crate::poll;

fn name(text: &str) -> ScheduleName {
    text.parse().unwrap()
}

/// A schedule of every tenth second, whose content tells definitions apart.
fn definition(misfire: MisfireRule, content: &str) -> String {
    let definition = Definition {
        cron: Some("*/10 * * * * *".into()),
        every_ms: None,
        zone: "UTC".into(),
        start: None,
        end: None,
        misfire,
        overlap: Overlap::Allow,
        destination: "message.call".parse().unwrap(),
        options: Options::default(),
        content: content.into(),
    };
    definition.text()
}

async fn read(store: &impl Store, text: &str) -> Schedule {
    store.schedules(Reader::Worker, &lane(), vec![name(text)]).await.unwrap().remove(0).unwrap()
}

async fn set(store: &impl Store, text: &str, definition: String) {
    let new = NewSchedule { name: name(text), definition, revision: rand::random(), moved: None };
    let set = store.set_schedule(&topic(), new).await.unwrap();
    assert!(matches!(set, ScheduleSet::Created(_) | ScheduleSet::Changed(_)), "{set:?}");
}

async fn plan(store: &impl Store, text: &str) -> Planned {
    planner::plan(store, &topic(), &read(store, text).await).await.unwrap()
}

/// Without a plan before it, a change would continue after now: 20 s would have no occurrence.
pub(crate) async fn a_change_loses_no_moment_that_nobody_has_planned(bench: Bench<impl Store>) {
    set(&bench.store, "a", definition(MisfireRule::Once, "one")).await;
    plan(&bench.store, "a").await;
    bench.advance(10_000);
    bench.hold().await;
    bench.advance(15_000);
    let stored = read(&bench.store, "a").await;
    let new = NewSchedule {
        name: name("a"),
        definition: definition(MisfireRule::Once, "two"),
        revision: 9,
        moved: None,
    };
    let set = planner::set(&bench.store, &topic(), new, Some(&stored)).await.unwrap();
    assert!(matches!(set, ScheduleSet::Changed(_)), "{set:?}");
    plan(&bench.store, "a").await;
    let newest = read(&bench.store, "a").await.recent[0];
    let task = bench.get(newest.task).await;
    assert_eq!((newest.moment, task.content.as_str()), (at(20_000), "two"));
}

/// Ten planners look at once, again and again, and a worker takes what is due: each moment has one
/// occurrence.
pub(crate) async fn planners_that_race_plan_each_moment_once(bench: Bench<impl Store>) {
    set(&bench.store, "a", definition(MisfireRule::All, "one")).await;
    let (entry, mut moments) = (topic(), Vec::new());
    for _ in 0..30 {
        let stored = read(&bench.store, "a").await;
        let plans = (0..10).map(|_| planner::plan(&bench.store, &entry, &stored));
        let planned = join_all(plans).await;
        let added = planned.iter().filter(|one| matches!(one, Ok(Planned::Added { .. }))).count();
        assert!(added <= 1, "{planned:?}");
        bench.advance(3_000);
        let grant = bench.claim(&[("message.call", 9)]).await;
        for task in &grant.tasks {
            moments.push(task.options.schedule.as_ref().unwrap().moment);
            let held = Held { id: task.id, receipt: grant.receipt.clone() };
            bench.settle(&held, delivered()).await;
        }
    }
    let expected: Vec<_> = (1..=9).map(|n| at(n * 10_000)).collect();
    assert_eq!(moments[..8], expected[..8]);
}

/// More schedules than one look names cannot be read. The one behind them is planned all the same.
pub(crate) async fn unreadable_schedules_hold_up_no_others(bench: Bench<impl Store>) {
    let Bench { store, clock, kept } = bench;
    let store = Arc::new(store);
    for number in 0..MAX_DUE_SCHEDULES + 6 {
        set(&*store, &format!("a{number:02}"), "no definition".into()).await;
    }
    clock.advance(ms(1));
    set(&*store, "b", definition(MisfireRule::Once, "one")).await;
    let topics = Arc::new(Registry::new(store.clone(), Params { max_topics: 9 }));
    topics.ensure(&topic().topic).await.unwrap();
    let planner = Planner::start(store.clone(), topics.clone(), Metrics::new([]));
    topics.due_lanes().add([lane()]);
    let is_planned = async || !read(&*store, "b").await.recent.is_empty();
    assert!(poll::until(is_planned).await, "it was never planned");
    drop((planner, kept));
}

/// After an outage, the moments are made up for one after another, and not by one in each poll.
pub(crate) async fn a_backlog_needs_no_poll_for_each_moment(bench: Bench<impl Store>) {
    const MOMENTS: usize = 20;
    let Bench { store, clock, kept } = bench;
    let store = Arc::new(store);
    set(&*store, "a", definition(MisfireRule::All, "one")).await;
    clock.advance(ms(10_000 * MOMENTS as u64));
    let topics = Arc::new(Registry::new(store.clone(), Params { max_topics: 9 }));
    topics.ensure(&topic().topic).await.unwrap();
    let planner = Planner::start(store.clone(), topics.clone(), Metrics::new([]));
    topics.due_lanes().add([lane()]);
    let (mut moments, mut polls, mut idle) = (Vec::new(), 0, 0);
    while moments.len() < MOMENTS {
        let Claimed::Granted(grant) = store.claim(claim_of(&[("message.call", 9)])).await.unwrap()
        else {
            panic!("nobody else claims");
        };
        for task in &grant.tasks {
            moments.push(task.options.schedule.as_ref().unwrap().moment);
        }
        let settle = |id| Settle {
            lane: lane(),
            id,
            receipt: grant.receipt.clone(),
            transition: delivered(),
        };
        store.settle(Asker::Worker, ids(&grant).into_iter().map(settle).collect()).await;
        idle = if grant.tasks.is_empty() { idle + 1 } else { 0 };
        if idle == 200 {
            // The planner looked before the claim. In a second, the poll would look again.
            clock.advance(ms(1_000));
            topics.due_lanes().add([lane()]);
            (polls, idle) = (polls + 1, 0);
        }
        tokio::time::sleep(ms(2)).await;
    }
    let expected: Vec<_> = (1..=MOMENTS as i64).map(|n| at(n * 10_000)).collect();
    assert_eq!(moments[..MOMENTS], expected, "the oldest first");
    assert!(polls < MOMENTS / 2, "{polls} polls");
    drop((planner, kept));
}
