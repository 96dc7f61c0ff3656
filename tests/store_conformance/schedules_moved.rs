//! Recurring schedules on their way from one store to another, and the marks of their topics.

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Receipt, State, StoreId};
use delayd::store::{
    ContinuedSchedule, LaneHistory, NewSchedule, Pause, Plan, Planned, Reader, Schedule,
    ScheduleSet, Store,
};

use crate::bench::{Bench, LEASE_MS, at, ids, lane, ms, topic};
use crate::check::assert_in_order;
use crate::schedules::{name, new, plan, plan_for, read, set};

const ORIGIN: StoreId = StoreId(0x00c0_ffee);

fn moved(set: UnixMillis, cursor: Option<&str>) -> ContinuedSchedule {
    let since = UnixMillis(at(0).0 - 7);
    ContinuedSchedule {
        origin: ORIGIN,
        set,
        since,
        cursor: cursor.map(Into::into),
        is_paused: false,
    }
}

async fn adopt(
    bench: &Bench<impl Store>,
    text: &str,
    definition: &str,
    moved: ContinuedSchedule,
) -> ScheduleSet {
    let set = NewSchedule { moved: Some(moved), ..new(text, definition) };
    bench.store.set_schedule(&topic(), set).await.unwrap()
}

async fn hold(bench: &Bench<impl Store>, text: &str) -> Schedule {
    let held = bench.store.pause_schedule(&lane(), &name(text), Some(Pause::Move)).await;
    held.unwrap().unwrap()
}

/// A lost answer is repeated, and the schedule may have gone on meanwhile.
pub(crate) async fn a_moved_schedule_is_stored_once(bench: Bench<impl Store>) {
    let first = adopt(&bench, "a", "1", moved(at(-9), Some("c5"))).await;
    assert!(matches!(first, ScheduleSet::Created(_)), "{first:?}");
    let id = plan(&bench, "a", 100).await;
    let before = read(&bench, "a").await;
    let again = adopt(&bench, "a", "1", moved(at(-9), Some("c5"))).await;
    assert_eq!(again, ScheduleSet::Unchanged(before));
    assert_eq!(bench.state(id).await, State::Scheduled);
    // A caller changes it here.
    bench.advance(1);
    let changed = set(&bench, "a", "2").await;
    let again = adopt(&bench, "a", "1", moved(at(-9), Some("c5"))).await;
    assert_eq!(again, ScheduleSet::Unchanged(changed));
}

pub(crate) async fn a_moved_schedule_never_replaces_another(bench: Bench<impl Store>) {
    let own = set(&bench, "own", "1").await;
    assert_eq!(adopt(&bench, "own", "1", moved(at(9), None)).await, ScheduleSet::Taken);
    assert_eq!(read(&bench, "own").await, own);
    adopt(&bench, "a", "1", moved(at(-9), None)).await;
    let other = ContinuedSchedule { origin: StoreId(5), ..moved(at(9), None) };
    assert_eq!(adopt(&bench, "a", "1", other).await, ScheduleSet::Taken);
}

/// It was changed at the source after its copy had been stored here.
pub(crate) async fn a_moved_schedule_replaces_its_own_older_copy(bench: Bench<impl Store>) {
    adopt(&bench, "a", "1", moved(at(-9), Some("c5"))).await;
    let first = plan(&bench, "a", 100).await;
    bench.advance(100);
    assert_eq!(ids(&bench.claim(&[("message.call", 9)]).await), [first]);
    let waiting = plan(&bench, "a", 200).await;
    let newer = ContinuedSchedule { is_paused: true, ..moved(at(-2), None) };
    let result = adopt(&bench, "a", "2", newer).await;
    let ScheduleSet::Changed(changed) = result else { panic!("{result:?}") };
    assert_eq!((changed.definition.as_str(), changed.set), ("2", at(-2)));
    assert_eq!((changed.since, changed.cursor), (at(100), None), "100 was handed out here");
    assert_eq!(changed.paused, Some((Pause::Operator, at(100))));
    assert_eq!(bench.state(waiting).await, State::Cancelled);
}

/// The occurrences of a schedule have the `webhook-id`s of the store of its origin.
pub(crate) async fn a_schedule_that_returns_is_the_stores_own(bench: Bench<impl Store>) {
    let own = bench.store.id().await.unwrap();
    let back = || ContinuedSchedule { origin: own, ..moved(at(-9), Some("c5")) };
    let result = adopt(&bench, "a", "1", back()).await;
    let ScheduleSet::Created(created) = result else { panic!("{result:?}") };
    assert_eq!(created.origin, None);
    hold(&bench, "a").await;
    assert_eq!(adopt(&bench, "a", "1", back()).await, ScheduleSet::Own);
    assert_eq!(read(&bench, "a").await.paused, Some((Pause::Move, at(0))));
}

pub(crate) async fn a_held_schedule_is_forgotten_unless_it_was_changed(bench: Bench<impl Store>) {
    let forget = async |schedule: &Schedule| {
        let (store, lane) = (&bench.store, lane());
        store.forget_schedule(&lane, &schedule.name, schedule.revision).await.unwrap()
    };
    set(&bench, "a", "1").await;
    let waiting = plan(&bench, "a", 100).await;
    let running = read(&bench, "a").await;
    assert!(!forget(&running).await, "it is not paused");
    let held = hold(&bench, "a").await;
    assert_eq!((held.cursor, held.recent), (None, vec![]), "100 counts as not planned");
    assert_eq!(bench.state(waiting).await, State::Cancelled);
    set(&bench, "a", "2").await;
    assert!(!forget(&running).await, "it has another revision");
    let held = hold(&bench, "a").await;
    for repeat in 0..2 {
        assert!(forget(&held).await, "{repeat}");
    }
    let gone = bench.store.schedules(Reader::Worker, &lane(), vec![name("a")]).await.unwrap();
    assert_eq!(gone, [None]);
}

/// What an export shows: the schedule without the occurrence that waits.
pub(crate) async fn a_schedule_shows_where_it_was_before_its_last_plan(bench: Bench<impl Store>) {
    let fresh = set(&bench, "a", "1").await;
    assert_eq!(fresh.before, None);
    let first = plan(&bench, "a", 100).await;
    assert_eq!(read(&bench, "a").await.before, Some((at(0), None)));
    bench.advance(100);
    assert_eq!(ids(&bench.claim(&[("message.call", 9)]).await), [first]);
    plan(&bench, "a", 200).await;
    assert_eq!(read(&bench, "a").await.before, Some((at(0), Some("c100".into()))));
}

/// A mover that died may have lent the occurrence; another one has it afterwards.
pub(crate) async fn an_occurrence_that_was_moved_makes_room(bench: Bench<impl Store>) {
    set(&bench, "a", "1").await;
    let id = plan(&bench, "a", 100).await;
    let mover: Receipt = crate::bench::receipt("mover");
    bench.store.lend(&lane(), vec![id], &mover, ms(LEASE_MS)).await.unwrap();
    let lent = crate::bench::Held { id, receipt: mover };
    bench.settle(&lent, delayd::store::Transition::Moved).await;
    let next = plan(&bench, "a", 200).await;
    assert_eq!(bench.state(next).await, State::Scheduled, "the other store has the first");
}

pub(crate) async fn a_lane_tells_whether_it_has_schedules(bench: Bench<impl Store>) {
    let history = async || bench.store.histories(vec![lane()]).await.unwrap().lanes[0].unwrap();
    assert!(!history().await.has_schedules);
    set(&bench, "a", "1").await;
    assert_eq!(history().await, LaneHistory { has_schedules: true, ..LaneHistory::default() });
    assert!(!bench.store.mark_schedules(&topic().topic).await.unwrap(), "a set marks it");
    assert!(bench.store.topic(&topic().topic).await.unwrap().unwrap().has_schedules);
    assert!(bench.store.delete_schedule(&lane(), &name("a")).await.unwrap());
    assert!(!history().await.has_schedules);
}

pub(crate) async fn every_state_of_a_schedule_is_in_order(bench: Bench<impl Store>) {
    for text in ["fresh", "waits", "paused", "held", "ran", "over"] {
        set(&bench, text, "1").await;
    }
    let ran = plan(&bench, "ran", 10).await;
    bench.advance(10);
    assert_eq!(ids(&bench.claim(&[("message.call", 9)]).await), [ran]);
    plan(&bench, "waits", 100).await;
    bench.store.pause_schedule(&lane(), &name("paused"), Some(Pause::Operator)).await.unwrap();
    hold(&bench, "held").await;
    let over = Plan { next: None, ..plan_for(&read(&bench, "over").await, 0) };
    assert_eq!(bench.store.plan(over).await.unwrap(), Planned::Ended);
    let shown = read(&bench, "over").await;
    assert_eq!(shown.look, None);
    assert_in_order(&bench.store).await;
    assert_eq!(read(&bench, "over").await, shown);
}

/// A worker that stops gives an occurrence back, and the next one may be planned by then. Nobody
/// withdrew the first one, and a mover's deletion withdrew it although the other store went on
/// behind it.
pub(crate) async fn an_occurrence_that_was_given_back_is_withdrawn_with_the_next_one(
    bench: Bench<impl Store>,
) {
    let both = async |text: &str| {
        set(&bench, text, "1").await;
        let start = bench.now().0 - at(0).0 + 100;
        let first = plan(&bench, text, start).await;
        bench.advance(100);
        let grant = bench.claim(&[("message.call", 9)]).await;
        assert_eq!(ids(&grant), [first]);
        let second = plan(&bench, text, start + 1_000).await;
        let held = crate::bench::Held { id: first, receipt: grant.receipt };
        bench.settle(&held, delayd::store::Transition::Release).await;
        assert_eq!(bench.get(first).await.attempts, 0, "{text}");
        (start, first, second)
    };
    let states = async |first, second| (bench.state(first).await, bench.state(second).await);
    let withdrawn = (State::Cancelled, State::Cancelled);

    let (_, first, second) = both("paused").await;
    let pause = Some(Pause::Operator);
    let paused = bench.store.pause_schedule(&lane(), &name("paused"), pause).await.unwrap();
    assert_eq!(states(first, second).await, withdrawn);
    assert_eq!(paused.unwrap().recent, []);

    let (_, first, second) = both("deleted").await;
    assert!(bench.store.delete_schedule(&lane(), &name("deleted")).await.unwrap());
    assert_eq!(states(first, second).await, withdrawn);

    let (start, first, second) = both("changed").await;
    let changed = set(&bench, "changed", "2").await;
    assert_eq!(states(first, second).await, withdrawn);
    assert_eq!(changed.since, at(start - 1), "its moment is planned again");

    // The other store goes on behind the first one, which moves as a task.
    let (start, first, second) = both("moved").await;
    let held = hold(&bench, "moved").await;
    assert_eq!(states(first, second).await, (State::Scheduled, State::Cancelled));
    assert_eq!((held.cursor, held.before), (Some(format!("c{start}")), None));
    // The other store refuses it, and a second mover comes before the first one is called.
    bench.store.pause_schedule(&lane(), &name("moved"), None).await.unwrap();
    let held = hold(&bench, "moved").await;
    assert_eq!(bench.state(first).await, State::Scheduled, "nobody plans its moment again");
    assert_eq!(held.cursor, Some(format!("c{start}")));
    assert!(bench.store.forget_schedule(&lane(), &name("moved"), held.revision).await.unwrap());
    assert_eq!(bench.state(first).await, State::Scheduled);
}
