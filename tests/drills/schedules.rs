//! Recurring schedules with planners that die, a pause, and a failover that forgets plans.
//!
//! Each schedule has a moment each time that the seconds of a minute are a multiple of a number. So
//! the drill knows all moments, and looks for each of them among the calls. A moment may have no
//! call of its own only if an earlier occurrence says that it stands for it, or in a pause. All
//! calls of a moment have one `webhook-id`, and no other moment has it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::task::block_in_place;

use crate::account::{Account, Cause, Fault};
use crate::failover::hold_replication_up;
use crate::fleet::Fleet;
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::redis_many::{MASTER, Watched};
use crate::row::Row;
use crate::{SERVICE, is_long, poll, quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);
/// How many calls the failover forgets at least: replication is held up until they came.
const FORGOTTEN: usize = 10;
/// How many requests run at a time.
const ASKERS: usize = 4;
const TOPICS: usize = 10;

/// The schedules: how many, and the seconds between their moments.
#[derive(Clone, Copy)]
struct Schedules {
    count: usize,
    every: [i64; 3],
}

impl Schedules {
    fn every_ms(self, number: usize) -> i64 {
        self.every[number % self.every.len()] * 1_000
    }

    /// Every tenth one is paused for a while.
    fn is_paused(number: usize) -> bool {
        number.is_multiple_of(10)
    }

    fn named(number: usize) -> serde_json::Value {
        json!({"topic": format!("topic-{}", number % TOPICS), "schedule": format!("s{number}")})
    }

    fn set(self, number: usize) -> serde_json::Value {
        let mut set = Self::named(number);
        set["cron"] = format!("*/{} * * * * *", self.every_ms(number) / 1_000).into();
        set["misfire"] = (if number.is_multiple_of(2) { "once" } else { "all" }).into();
        set["content"] = json!({"sn": SERVICE, "url": "/due", "n": number});
        set
    }
}

/// Posts to one instance after another until one confirms it. `of` makes the body.
async fn post_all(
    fleet: &Fleet,
    path: &str,
    numbers: impl Iterator<Item = usize>,
    of: impl Fn(usize) -> serde_json::Value,
) {
    let posts = numbers.map(|number| {
        let body = of(number).to_string();
        async move {
            let confirmed = async || {
                let answer = fleet.member(0).try_post(path, body.clone()).await?;
                assert!([200, 503].contains(&answer.status), "{path} {body}: {answer:?}");
                (answer.status == 200).then_some(())
            };
            assert!(poll::answer(confirmed).await.is_some(), "{path} is not confirmed");
        }
    });
    futures_util::stream::iter(posts).buffer_unordered(ASKERS).collect::<Vec<()>>().await;
}

/// The calls of one moment.
#[derive(Default)]
struct Called {
    webhook_ids: BTreeSet<String>,
    missed: i64,
    arrived_ms: Vec<i64>,
}

type Calls = BTreeMap<(usize, i64), Called>;

fn by_moment(seen: &[Seen]) -> Calls {
    let mut calls = Calls::new();
    for call in seen {
        let header = |name: &str| call.headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| header(name).and_then(|value| value.parse::<i64>().ok());
        let name = header("delay-schedule").and_then(|name| name.strip_prefix('s')?.parse().ok());
        let moment = number("delay-schedule-moment-ms");
        let (Some(name), Some(moment)) = (name, moment) else { panic!("{call:?}") };
        let called = calls.entry((name, moment)).or_default();
        called.webhook_ids.insert(header("webhook-id").expect("each call has one").to_owned());
        called.missed = called.missed.max(number("delay-schedule-missed").unwrap_or_default());
        called.arrived_ms.push(call.arrived_ms);
    }
    calls
}

/// The moments of one schedule, each with how many later ones it stands for.
fn of_schedule(calls: &Calls, number: usize) -> impl Iterator<Item = (i64, i64)> + '_ {
    let of_it = calls.range((number, 0)..(number + 1, 0));
    of_it.map(|((_, moment), called)| (*moment, called.missed))
}

/// The first moment of a schedule after which nothing was called.
fn reached(calls: &Calls, number: usize, every_ms: i64) -> i64 {
    let ends = of_schedule(calls, number).map(|(moment, missed)| moment + missed * every_ms);
    ends.max().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn planners_die_and_a_failover_forgets_their_plans() {
    let schedules = match is_long() {
        true => Schedules { count: 1_000, every: [5, 6, 10] },
        false => Schedules { count: 100, every: [2, 3, 5] },
    };
    let (planners, kills) = (if is_long() { 10 } else { 3 }, rounds(2, 15));
    let mut row = Row::new(format!(
        "{} schedules, {planners} planners, kill -9 ×{kills}, a pause, a failover",
        schedules.count
    ));
    let mut watched =
        block_in_place(|| Watched::with_options(&["--repl-diskless-sync-delay", "0"]));
    block_in_place(|| watched.may_depose(false));
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let store = StoreAt::Set(vec![
        "store.kind=redis".into(),
        "store.redis.topology=sentinel".into(),
        format!("store.redis.master_name={MASTER}"),
        format!("store.redis.urls={:?}", watched.urls()),
    ]);
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let mut fleet = Fleet::start(store, sets, planners).await;
    fleet.member(0).wait_until_ready(200).await;
    let account = Account::open();
    let set = |number| schedules.set(number);
    post_all(&fleet, "/delay/schedule/set", 0..schedules.count, set).await;
    let set_ms = now_ms();

    for round in 0..kills {
        tokio::time::sleep(Duration::from_millis(rand::random_range(100..900))).await;
        // The first one takes the requests of this drill.
        let victim = 1 + round % (planners - 1);
        let crash = account.fault(Cause::Crash);
        fleet.kill(victim);
        fleet.raise(victim).await;
        drop(crash);
    }

    let paused = || (0..schedules.count).filter(|number| Schedules::is_paused(*number));
    let asked_ms = now_ms();
    post_all(&fleet, "/delay/schedule/pause", paused(), Schedules::named).await;
    let paused_ms = now_ms();
    // The pause lasts until the others have called a moment that those of the shortest period
    // would have had, too.
    let shortest_ms = schedules.every_ms(0);
    let passes = async || {
        let others = |number: &usize| {
            !Schedules::is_paused(*number) && schedules.every_ms(*number) == shortest_ms
        };
        let calls = by_moment(&receiver.seen());
        let last = (0..schedules.count).filter(others);
        last.map(|number| reached(&calls, number, shortest_ms)).max()
            > Some(paused_ms + shortest_ms)
    };
    row.promise(poll::until(passes).await, "the schedules that are not paused do not go on");
    let resumed_ms = now_ms();
    post_all(&fleet, "/delay/schedule/resume", paused(), Schedules::named).await;
    // A pause also removes an occurrence that waits for its destination, or for a planner.
    let in_pause = asked_ms - 6_000..=now_ms();

    // The failover must forget none of the resumes.
    let primary = watched.primary();
    block_in_place(|| watched.all_follow(primary));
    let failover = account.fault(Cause::Failover);
    let behind = block_in_place(|| hold_replication_up(&mut watched, primary));
    receiver.wait_for(receiver.seen().len() + FORGOTTEN).await;
    block_in_place(|| {
        watched.may_depose(true);
        watched.on(primary).kill();
        drop(behind);
        watched.successor_of(primary);
    });
    fleet.member(0).wait_until_ready(200).await;
    let recovered_ms = now_ms();
    // A lease from before the failover may still run.
    let all_go_on = async || {
        let calls = by_moment(&receiver.seen());
        (0..schedules.count).all(|number| {
            let every_ms = schedules.every_ms(number);
            reached(&calls, number, every_ms) + every_ms > recovered_ms
        })
    };
    row.promise(poll::until(all_go_on).await, "some schedules do not go on after the failover");
    drop(failover);

    judge(&mut row, &receiver.seen(), schedules, set_ms, &in_pause, &account.faults());
    let calls = by_moment(&receiver.seen());
    let fired = calls.iter().find(|((number, moment), _)| {
        Schedules::is_paused(*number) && (paused_ms..resumed_ms).contains(moment)
    });
    let fired = fired.map(|(moment, _)| moment);
    row.promise(fired.is_none(), format!("{fired:?} was called in its pause"));
    row.finish();
}

/// Checks every moment of every schedule.
fn judge(
    row: &mut Row,
    seen: &[Seen],
    schedules: Schedules,
    set_ms: i64,
    in_pause: &std::ops::RangeInclusive<i64>,
    faults: &[Fault],
) {
    let calls = by_moment(seen);
    let mut moments: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    let (mut again, mut passed_over) = (0, 0);
    for (moment, called) in &calls {
        let early = called.arrived_ms.iter().find(|arrived| **arrived < moment.1);
        row.promise(early.is_none(), format!("{moment:?} came early, at {early:?}"));
        let ids = &called.webhook_ids;
        row.promise(ids.len() == 1, format!("{moment:?} has the webhook-ids {ids:?}"));
        for id in ids {
            let other = moments.insert(id, *moment);
            row.promise(other.is_none(), format!("{id} is that of {moment:?} and {other:?}"));
        }
        passed_over += called.missed;
        for pair in called.arrived_ms.windows(2) {
            let is_within = |fault: &Fault| pair[0] <= fault.until_ms && fault.from_ms <= pair[1];
            row.promise(
                faults.iter().any(is_within),
                format!("{moment:?} came at {pair:?}, and no fault lies between"),
            );
            again += 1;
        }
    }
    for number in 0..schedules.count {
        let every_ms = schedules.every_ms(number);
        // The set may have taken any time before its answer.
        let mut through = None;
        for (moment, missed) in of_schedule(&calls, number) {
            let expected = through.map_or(moment, |through| through + every_ms);
            let is_excused = Schedules::is_paused(number) && in_pause.contains(&expected);
            row.promise(
                moment <= expected || is_excused,
                format!("schedule {number}: {expected} is missing before {moment}"),
            );
            row.promise(moment % every_ms == 0, format!("{moment} is none of schedule {number}"));
            through = through.max(Some(moment + missed * every_ms));
        }
        let first = of_schedule(&calls, number).next().map(|(moment, _)| moment);
        // The pause may have removed the first one, if that waited for a planner that had died.
        let may_be_late = Schedules::is_paused(number);
        row.promise(
            first.is_some_and(|first| first <= set_ms + every_ms || may_be_late),
            format!("schedule {number} begins at {first:?}"),
        );
    }
    row.promise(again > 0, "nothing was called again, so the failover forgot nothing");
    row.note(format!("{} moments called, {passed_over} passed over", calls.len()));
    row.note(format!("{again} calls repeated under the same webhook-id"));
    row.promise(calls.len() > schedules.count, "hardly any moment passed");
}
