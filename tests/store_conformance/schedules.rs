//! Recurring schedules: what is stored, and the plan's comparison.

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Occurrence, Options, ScheduleName, State, TaskId};
use delayd::store::{
    Asker, Cancelled, ContinuedSchedule, Look, MAX_DUE_SCHEDULES, MAX_RECENT, Moment, NewSchedule,
    NewTask, NextOccurrence, Pause, Plan, Planned, Reader, Registered, SKIPPED, Schedule,
    ScheduleSet, Settled, Store, UNPLANNED,
};

use crate::bench::{Bench, LEASE_MS, at, delivered, ids, lane, ms, retry, topic};

pub(crate) fn name(text: &str) -> ScheduleName {
    text.parse().unwrap()
}

pub(crate) fn new(text: &str, definition: &str) -> NewSchedule {
    let (name, definition) = (name(text), definition.to_owned());
    NewSchedule { name, definition, revision: rand::random(), moved: None }
}

/// Sets a schedule that is new or changes.
pub(crate) async fn set(bench: &Bench<impl Store>, text: &str, definition: &str) -> Schedule {
    match bench.store.set_schedule(&topic(), new(text, definition)).await.unwrap() {
        ScheduleSet::Created(schedule) | ScheduleSet::Changed(schedule) => schedule,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn read(bench: &Bench<impl Store>, text: &str) -> Schedule {
    bench
        .store
        .schedules(Reader::Worker, &lane(), vec![name(text)])
        .await
        .unwrap()
        .remove(0)
        .unwrap()
}

/// A plan of the next occurrence for `due`, as a planner that has read `schedule` makes it.
pub(crate) fn plan_for(schedule: &Schedule, due: i64) -> Plan {
    let occurrence = Occurrence {
        name: schedule.name.clone(),
        moment: at(due),
        cursor: format!("c{due}"),
        after: None,
        missed: 0,
    };
    let task = NewTask {
        topic: topic(),
        destination: "message.call".parse().unwrap(),
        moment: Moment::At(at(due)),
        options: Options { schedule: Some(Box::new(occurrence)), ..Options::default() },
        content: "{}".into(),
        idempotency: None,
        quota: None,
    };
    Plan {
        topic: topic(),
        name: schedule.name.clone(),
        revision: schedule.revision,
        cursor: schedule.cursor.clone(),
        since: schedule.since,
        next: Some(NextOccurrence { task, since: schedule.since, look: at(due) }),
        missed: None,
        look_again: at(due + 7),
    }
}

fn skipping(mut plan: Plan) -> Plan {
    let next = plan.next.as_mut().unwrap();
    next.task.options.schedule.as_mut().unwrap().after = Some(TaskId(0));
    plan
}

async fn planned(bench: &Bench<impl Store>, plan: Plan) -> TaskId {
    match bench.store.plan(plan).await.unwrap() {
        Planned::Added { task, .. } => task,
        other => panic!("{other:?}"),
    }
}

/// Plans the occurrence for `due` by what is stored now.
pub(crate) async fn plan(bench: &Bench<impl Store>, text: &str, due: i64) -> TaskId {
    planned(bench, plan_for(&read(bench, text).await, due)).await
}

async fn cancel(bench: &Bench<impl Store>, id: TaskId) {
    assert_eq!(bench.store.cancel(&lane(), id, None).await.unwrap(), Cancelled::Done);
}

/// Claims what is due, which has to be these tasks, and returns the receipts' holder.
async fn hand_out(bench: &Bench<impl Store>, expected: &[TaskId]) -> crate::bench::Held {
    let grant = bench.claim(&[("message.call", 9)]).await;
    assert_eq!(ids(&grant), expected);
    crate::bench::Held { id: expected[0], receipt: grant.receipt }
}

pub(crate) async fn a_schedule_is_kept_as_it_was_set(bench: Bench<impl Store>) {
    let schedule = set(&bench, "nightly", r#"{"cron":"0 2 * * *","content":"a\nb 订单"}"#).await;
    assert_eq!((schedule.set, schedule.since), (at(0), at(0)));
    assert_eq!((schedule.cursor.clone(), schedule.paused), (None, None));
    assert_eq!(schedule.look, Some(at(0)), "it is to be planned at once");
    bench.advance(5);
    let found = bench
        .store
        .schedules(Reader::Worker, &lane(), vec![name("none"), name("nightly")])
        .await
        .unwrap();
    assert_eq!(found, [None, Some(Schedule { now: at(5), ..schedule })]);
}

pub(crate) async fn an_equal_set_changes_nothing(bench: Bench<impl Store>) {
    let schedule = set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    let before = read(&bench, "a").await;
    let again = bench.store.set_schedule(&topic(), new("a", "1")).await.unwrap();
    assert_eq!(again, ScheduleSet::Unchanged(before.clone()));
    assert_eq!(before.revision, schedule.revision);
    assert_eq!(bench.state(id).await, State::Scheduled);
}

pub(crate) async fn schedules_are_listed_by_name(bench: Bench<impl Store>) {
    for text in ["c", "a", "b:2", "b"] {
        set(&bench, text, "1").await;
    }
    let page = bench.store.schedule_names(&lane(), None, 3).await.unwrap();
    assert_eq!(page, [name("a"), name("b"), name("b:2")]);
    let page = bench.store.schedule_names(&lane(), page.last().cloned(), 3).await.unwrap();
    assert_eq!(page, [name("c")]);
}

pub(crate) async fn an_occurrence_is_an_ordinary_task_that_names_its_schedule(
    bench: Bench<impl Store>,
) {
    set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    let schedule = read(&bench, "a").await;
    assert_eq!((schedule.cursor.as_deref(), schedule.look), (Some("c100"), Some(at(100))));
    assert_eq!((schedule.recent[0].task, schedule.recent[0].moment), (id, at(100)));
    let task = bench.get(id).await;
    let occurrence = task.options.schedule.unwrap();
    assert_eq!((occurrence.name, occurrence.moment), (name("a"), at(100)));
    assert_eq!((task.state, task.due, task.content.as_str()), (State::Scheduled, at(100), "{}"));
    bench.advance(99);
    assert_eq!(bench.claim(&[("message.call", 9)]).await.tasks, [], "too early");
    bench.advance(1);
    let held = hand_out(&bench, &[id]).await;
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
}

pub(crate) async fn of_two_planners_one_adds(bench: Bench<impl Store>) {
    let schedule = set(&bench, "a", "1").await;
    let (first, second) = tokio::join!(
        bench.store.plan(plan_for(&schedule, 100)),
        bench.store.plan(plan_for(&schedule, 100)),
    );
    let answers = [first.unwrap(), second.unwrap()];
    assert!(answers.contains(&Planned::Stale), "{answers:?}");
    assert!(answers.iter().any(|answer| matches!(answer, Planned::Added { .. })), "{answers:?}");
    assert_eq!(bench.counts().await.scheduled, 1);
}

pub(crate) async fn an_old_plan_adds_nothing(bench: Bench<impl Store>) {
    let old = set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    bench.advance(100);
    hand_out(&bench, &[id]).await;
    assert_eq!(bench.store.plan(plan_for(&old, 200)).await.unwrap(), Planned::Stale, "cursor");
    let handed_out = read(&bench, "a").await;
    set(&bench, "a", "2").await;
    let stale = bench.store.plan(plan_for(&handed_out, 200)).await.unwrap();
    assert_eq!(stale, Planned::Stale, "revision");
    let changed = read(&bench, "a").await;
    bench.store.pause_schedule(&lane(), &name("a"), Some(Pause::Operator)).await.unwrap();
    let paused = bench.store.plan(plan_for(&changed, 200)).await.unwrap();
    assert_eq!(paused, Planned::Stale, "paused");
    assert!(bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    assert_eq!(bench.store.plan(plan_for(&changed, 200)).await.unwrap(), Planned::Stale, "deleted");
    assert_eq!(bench.counts().await.scheduled, 0);
}

pub(crate) async fn one_occurrence_waits_at_most_and_counts_what_it_stands_for(
    bench: Bench<impl Store>,
) {
    set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    bench.advance(350);
    let schedule = read(&bench, "a").await;
    let plan_again = Plan { missed: Some((2, at(350))), ..plan_for(&schedule, 200) };
    assert_eq!(bench.store.plan(plan_again.clone()).await.unwrap(), Planned::Waits);
    assert_eq!(bench.counts().await.scheduled, 1);
    let schedule = read(&bench, "a").await;
    assert_eq!((schedule.since, schedule.look), (at(350), Some(at(207))));
    assert_eq!(bench.get(id).await.options.schedule.unwrap().missed, 2);
    assert_eq!(bench.store.plan(plan_again).await.unwrap(), Planned::Stale, "it was counted");
    hand_out(&bench, &[id]).await;
    let next = plan(&bench, "a", 400).await;
    assert_ne!(next, id);
    assert_eq!(bench.get(next).await.options.schedule.unwrap().missed, 0);
}

pub(crate) async fn an_occurrence_that_ended_or_is_gone_makes_room(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let cancelled = plan(&bench, "a", 100).await;
    cancel(&bench, cancelled).await;
    let purged = plan(&bench, "a", 200).await;
    assert_eq!(bench.state(purged).await, State::Scheduled, "after a cancel");
    while bench.store.clear(&lane(), 9).await.unwrap().removed > 0 {}
    let last = plan(&bench, "a", 300).await;
    assert_eq!(bench.state(last).await, State::Scheduled, "after a purge of the topic");
    let schedule = read(&bench, "a").await;
    let over = Plan { next: None, ..plan_for(&schedule, 400) };
    assert_eq!(bench.store.plan(over.clone()).await.unwrap(), Planned::Waits);
    cancel(&bench, last).await;
    assert_eq!(bench.store.plan(over).await.unwrap(), Planned::Ended);
    assert_eq!(read(&bench, "a").await.look, None);
}

pub(crate) async fn a_change_removes_only_what_was_never_handed_out(bench: Bench<impl Store>) {
    type Change = &'static str;
    for (how, is_handed_out) in
        ["set", "pause", "delete"].into_iter().flat_map(|how: Change| [(how, false), (how, true)])
    {
        let text = format!("{how}-{is_handed_out}");
        let start = (bench.now().0 - at(0).0) + 100;
        set(&bench, &text, "1").await;
        let id = plan(&bench, &text, start).await;
        if is_handed_out {
            bench.advance(100);
            let held = hand_out(&bench, &[id]).await;
            assert_eq!(bench.settle(&held, retry(50)).await, Settled::Done);
        }
        match how {
            "set" => drop(set(&bench, &text, "2").await),
            "pause" => {
                let pause = Some(Pause::Operator);
                bench.store.pause_schedule(&lane(), &name(&text), pause).await.unwrap();
            }
            _ => assert!(bench.store.delete_schedule(&lane(), &name(&text)).await.unwrap()),
        }
        let task = bench.get(id).await;
        if is_handed_out {
            assert_eq!(task.state, State::Scheduled, "{text}: a retry runs to its end");
            bench.advance(50);
            let held = hand_out(&bench, &[id]).await;
            assert_eq!(bench.settle(&held, delivered()).await, Settled::Done, "{text}");
        } else {
            let outcome = task.last_outcome.as_str();
            assert_eq!((task.state, outcome), (State::Cancelled, UNPLANNED), "{text}");
        }
    }
}

pub(crate) async fn a_change_loses_no_moment_that_has_passed(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    bench.advance(150);
    let changed = set(&bench, "a", "2").await;
    assert_eq!((changed.since, changed.cursor), (at(99), None), "100 is planned again");
    let again = plan(&bench, "a", 100).await;
    assert_ne!(again, id);
    hand_out(&bench, &[again]).await;
    let changed = set(&bench, "a", "3").await;
    assert_eq!(changed.since, at(150), "100 was handed out");
    let ahead = plan(&bench, "a", 300).await;
    let changed = set(&bench, "a", "4").await;
    assert_eq!((changed.since, bench.state(ahead).await), (at(150), State::Cancelled));
}

pub(crate) async fn a_pause_passes_over_its_moments_and_a_move_over_none(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let first = plan(&bench, "a", 100).await;
    bench.advance(100);
    hand_out(&bench, &[first]).await;
    plan(&bench, "a", 200).await;
    let paused = |pause| {
        let (store, lane) = (&bench.store, lane());
        async move { store.pause_schedule(&lane, &name("a"), pause).await.unwrap().unwrap() }
    };
    let moving = paused(Some(Pause::Move)).await;
    assert_eq!(moving.paused, Some((Pause::Move, at(100))));
    assert_eq!((moving.cursor.as_deref(), moving.look), (Some("c100"), None), "200 is withdrawn");
    bench.advance(1_000);
    let moved = paused(None).await;
    assert_eq!((moved.since, moved.cursor.as_deref()), (at(0), Some("c100")));
    assert_eq!(moved.look, Some(at(1_100)));
    paused(Some(Pause::Operator)).await;
    let still = paused(Some(Pause::Move)).await;
    assert_eq!(still.paused, Some((Pause::Operator, at(1_100))), "the operator's pause stays");
    bench.advance(1_000);
    let resumed = paused(None).await;
    assert_eq!((resumed.since, resumed.cursor.as_deref()), (at(2_100), Some("c100")));
    let none = bench.store.pause_schedule(&lane(), &name("none"), None).await.unwrap();
    assert_eq!(none, None);
}

pub(crate) async fn an_occurrence_is_skipped_while_an_earlier_one_runs(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let next = async |due| planned(&bench, skipping(plan_for(&read(&bench, "a").await, due))).await;
    let first = next(100).await;
    bench.advance(100);
    let held = hand_out(&bench, &[first]).await;
    let leased = next(200).await;
    bench.advance(100);
    let grant = bench.claim(&[("message.call", 9)]).await;
    assert_eq!((ids(&grant), grant.swept.skipped), (vec![], 1), "the first is leased");
    let task = bench.get(leased).await;
    assert_eq!((task.state, task.last_outcome.as_str()), (State::Expired, SKIPPED));
    let retried = next(300).await;
    assert_eq!(bench.settle(&held, retry(500)).await, Settled::Done);
    bench.advance(100);
    let grant = bench.claim(&[("message.call", 9)]).await;
    assert_eq!(ids(&grant), [], "the first waits for a retry");
    assert_eq!(bench.state(retried).await, State::Expired);
    bench.advance(400);
    let held = hand_out(&bench, &[first]).await;
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    let after = next(800).await;
    bench.advance(100);
    let held = hand_out(&bench, &[after]).await;
    assert_eq!(bench.settle(&held, retry(0)).await, Settled::Done);
    hand_out(&bench, &[after]).await;
}

pub(crate) async fn an_overlap_is_judged_when_the_occurrence_falls_due(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let next = async |due| planned(&bench, skipping(plan_for(&read(&bench, "a").await, due))).await;
    let first = next(100).await;
    bench.advance(100);
    let held = hand_out(&bench, &[first]).await;
    let second = next(200).await;
    assert_eq!(bench.settle(&held, delivered()).await, Settled::Done);
    bench.advance(100);
    hand_out(&bench, &[second]).await;
}

pub(crate) async fn a_lent_occurrence_was_not_handed_out(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    let mover = crate::bench::receipt("mover");
    let lent = bench.store.lend(&lane(), vec![id], &mover, ms(LEASE_MS)).await.unwrap();
    assert_eq!(lent, [true]);
    let schedule = read(&bench, "a").await;
    assert_eq!(bench.store.plan(plan_for(&schedule, 200)).await.unwrap(), Planned::Waits);
    set(&bench, "a", "2").await;
    assert!(bench.get(id).await.cancelling, "the mover learns of the cancel");
}

pub(crate) async fn due_schedules_are_named_the_earliest_first(bench: Bench<impl Store>) {
    let many = MAX_DUE_SCHEDULES + 3;
    for number in 0..many {
        let text = format!("s{number:03}");
        set(&bench, &text, "1").await;
        plan(&bench, &text, 1_000 - number as i64).await;
    }
    let look = async || {
        let planners = vec![lane()];
        let look = Look { planners, ..Look::default() };
        bench.store.look(look).await.plans.unwrap().unwrap().lanes[0]
    };
    assert_eq!(bench.store.due_schedules(&lane(), 0).await.unwrap().names, []);
    assert_eq!(look().await, Some(at(1_000 - many as i64 + 1)));
    bench.advance(1_000);
    let due = bench.store.due_schedules(&lane(), 0).await.unwrap();
    assert_eq!((due.now, due.names.len()), (at(1_000), MAX_DUE_SCHEDULES));
    let rest = bench.store.due_schedules(&lane(), MAX_DUE_SCHEDULES).await.unwrap().names;
    assert_eq!(rest, [name("s002"), name("s001"), name("s000")], "those behind the first");
    assert_eq!(due.names[0], name(&format!("s{:03}", many - 1)));
    let nothing = bench.store.look(Look::default()).await.plans.unwrap();
    assert_eq!(nothing, None);
}

pub(crate) async fn a_schedule_remembers_its_newest_occurrences(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let mut all = Vec::new();
    for turn in 1..=MAX_RECENT as i64 + 2 {
        let id = plan(&bench, "a", turn * 10).await;
        cancel(&bench, id).await;
        all.insert(0, id);
    }
    let recent: Vec<TaskId> =
        read(&bench, "a").await.recent.iter().map(|planned| planned.task).collect();
    assert_eq!(recent, all[..MAX_RECENT]);
}

pub(crate) async fn a_schedule_of_another_store_continues(bench: Bench<impl Store>) {
    let moved = ContinuedSchedule {
        origin: "00c0ffee00c0ffee".parse().unwrap(),
        set: UnixMillis(5),
        since: UnixMillis(17),
        cursor: Some("c9".into()),
        is_paused: false,
    };
    let set = NewSchedule { moved: Some(moved.clone()), ..new("a", "1") };
    let ScheduleSet::Created(schedule) = bench.store.set_schedule(&topic(), set).await.unwrap()
    else {
        panic!("it is new");
    };
    assert_eq!((schedule.set, schedule.since), (moved.set, moved.since));
    assert_eq!((schedule.cursor.as_deref(), schedule.origin), (Some("c9"), Some(moved.origin)));
    let set = NewSchedule {
        moved: Some(ContinuedSchedule { is_paused: true, ..moved }),
        ..new("b", "1")
    };
    bench.store.set_schedule(&topic(), set).await.unwrap();
    assert_eq!(read(&bench, "b").await.paused, Some((Pause::Operator, at(0))));
}

pub(crate) async fn a_topic_with_schedules_is_not_unregistered(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let registered = bench.store.topic(&topic().topic).await.unwrap().unwrap();
    assert!(registered.has_schedules);
    assert!(!bench.store.unregister(&topic()).await.unwrap());
    assert!(bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    assert!(!bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    assert!(bench.store.unregister(&topic()).await.unwrap());
}

pub(crate) async fn a_late_success_frees_the_next_occurrence(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let next = async |due| planned(&bench, skipping(plan_for(&read(&bench, "a").await, due))).await;
    let first = next(100).await;
    bench.advance(100);
    let held = hand_out(&bench, &[first]).await;
    let second = next(100_000).await;
    bench.advance(LEASE_MS + 1);
    bench.sweep().await;
    let settle = delayd::store::Settle {
        lane: lane(),
        id: first,
        receipt: held.receipt.clone(),
        transition: delivered(),
    };
    let settled = bench.store.settle(Asker::Worker, vec![settle]).await.remove(0).unwrap();
    assert_eq!(settled, Settled::Done);
    bench.advance(100_000);
    hand_out(&bench, &[second]).await;
}

/// Planners look at each topic that is said to have schedules, in every second.
pub(crate) async fn only_topics_with_schedules_are_said_to_have_some(bench: Bench<impl Store>) {
    let others = ["first", "second"].map(|name| crate::bench::topic_of(name, 2));
    for topic in &others {
        bench.store.create(topic.clone(), None).await.unwrap();
    }
    let of = |topics: Vec<Registered>| {
        let found = topics.into_iter().filter(|known| known.has_schedules);
        let mut found: Vec<_> = found.map(|known| known.entry.topic.to_string()).collect();
        found.sort();
        found
    };
    assert_eq!(of(bench.store.topics().await.unwrap()), [] as [&str; 0]);
    set(&bench, "a", "1").await;
    let looked = async || bench.store.look(Look::default()).await.registry.unwrap().unwrap().1;
    assert_eq!(of(looked().await), ["orders"]);
    let moved = ContinuedSchedule {
        origin: "00c0ffee00c0ffee".parse().unwrap(),
        set: UnixMillis(5),
        since: UnixMillis(17),
        cursor: None,
        is_paused: false,
    };
    let moved = NewSchedule { moved: Some(moved), ..new("a", "1") };
    bench.store.set_schedule(&others[1], moved).await.unwrap();
    assert_eq!(of(bench.store.topics().await.unwrap()), ["orders", "second"]);
    assert_eq!(of(looked().await), ["orders", "second"]);
    for (topic, has_schedules) in [(&others[0], false), (&others[1], true)] {
        let known = bench.store.topic(&topic.topic).await.unwrap().unwrap();
        assert_eq!(known.has_schedules, has_schedules, "{topic:?}");
    }
}
