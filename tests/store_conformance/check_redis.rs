//! Each flaw of the Redis store: made in the data, found, and repaired. Then the task takes its
//! normal course.

use delayd::model::task::{State, TaskId};
use delayd::store::redis::Redis;
use delayd::store::{Admin, Flaw, Moment, Settled, Spread};

use crate::bench::{
    Bench, START, at, connect, dead, delivered, fresh_prefix, ids, lane, ms, retry,
};
use crate::check::check;
use crate::redis_alone::raw;

/// A store, and direct access to its data.
pub(crate) struct Broken {
    pub(crate) bench: Bench<Redis>,
    pub(crate) prefix: String,
}

pub(crate) async fn broken() -> Broken {
    let prefix = fresh_prefix();
    let clock = delayd::model::clock::Clock::manual(START);
    let store = connect(&prefix, &clock).await;
    Broken { bench: Bench::around(store, clock), prefix }
}

impl Broken {
    pub(crate) fn key(&self, role: &str) -> String {
        format!("{}:{role}", self.prefix)
    }

    pub(crate) fn of(&self, role: &str) -> String {
        self.key(&format!("{role}-{{orders:0}}"))
    }

    pub(crate) fn bodies(&self) -> String {
        self.of("DELAY_REALL_TOPIC_TASK")
    }

    fn entries(&self) -> String {
        self.of("DELAY_ATTEMPTS_TOPIC_TASK")
    }

    pub(crate) fn leased(&self) -> String {
        self.of("DELAY_LEASED_TOPIC_TASK")
    }

    pub(crate) fn schedule(&self, destination: &str) -> String {
        format!("{}:{destination}", self.of("DELAY_SIMPLE_TOPIC_TASK"))
    }

    pub(crate) fn aside(&self) -> Vec<String> {
        raw(&["HVALS", &self.of("DELAY_ASIDE_TOPIC_TASK")])
    }

    /// One command on the data. `$` stands for the task.
    pub(crate) fn hand(&self, id: TaskId, words: &[&str]) {
        let id = id.to_string();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "$" { id.as_str() } else { *word }).collect();
        raw::<deadpool_redis::redis::Value>(&words);
    }

    /// A check finds this and changes nothing. A repair corrects it. Then everything is in order.
    pub(crate) async fn mends(&self, expected: &[(Flaw, &str)]) {
        self.finds(expected, true).await;
        let report = check(&self.bench.store, false).await;
        assert!(report.findings.is_empty(), "after the repair: {:?}", report.findings);
    }

    /// Like [`Broken::mends`], but a repair leaves it alone.
    pub(crate) async fn leaves_alone(&self, expected: &[(Flaw, &str)]) {
        self.finds(expected, false).await;
        self.finds(expected, false).await;
    }

    async fn finds(&self, expected: &[(Flaw, &str)], is_repaired: bool) {
        let mut expected: Vec<_> =
            expected.iter().map(|(flaw, subject)| (*flaw, (*subject).to_owned())).collect();
        expected.sort();
        let before = self.dump();
        assert_eq!(
            check(&self.bench.store, false).await.flaws(),
            expected,
            "a check without repair"
        );
        assert_eq!(self.dump(), before, "a check without repair wrote something");
        let report = check(&self.bench.store, true).await;
        assert_eq!(report.flaws(), expected, "a check with repair");
        assert!(
            report.findings.iter().all(|found| found.repaired == is_repaired),
            "{:?}",
            report.findings
        );
    }

    /// Everything under the prefix.
    fn dump(&self) -> Vec<(String, Vec<u8>)> {
        let mut keys: Vec<String> = raw(&["KEYS", &format!("{}*", self.prefix)]);
        keys.sort();
        keys.into_iter().map(|key| (key.clone(), raw(&["DUMP", &key]))).collect()
    }

    /// The task is called once.
    pub(crate) async fn is_called_once(&self, id: TaskId) {
        let held = self.bench.hold().await;
        assert_eq!(held.id, id);
        assert!(
            self.bench.claim(&[("message.call", 9)]).await.tasks.is_empty(),
            "the task was handed out twice"
        );
        assert_eq!(self.bench.settle(&held, delivered()).await, Settled::Done);
        assert_eq!(self.bench.state(id).await, State::Delivered);
    }

    /// The task is not called any more and is in this state.
    async fn stays(&self, id: TaskId, state: State) {
        self.bench.advance(24 * 3_600_000);
        assert!(
            self.bench.claim(&[("message.call", 9), ("a", 9), ("b", 9)]).await.tasks.is_empty()
        );
        assert_eq!(self.bench.state(id).await, state);
    }
}

#[tokio::test]
async fn a_body_without_a_place_is_scheduled_for_its_moment_or_now() {
    let broken = broken().await;
    let late = broken.bench.add("message.call", 60_000).await;
    let due = broken.bench.add("message.call", 0).await;
    broken.bench.advance(1_000);
    broken.hand(due, &["DEL", &broken.schedule("message.call")]);
    broken.hand(due, &["DEL", &broken.of("DELAY_TOPIC_DESTINATIONS")]);
    let flaw = Flaw::BodyWithoutPlace;
    broken.mends(&[(flaw, &due.to_string()), (flaw, &late.to_string())]).await;
    assert_eq!(broken.bench.get(due).await.due, at(1_000));
    assert_eq!(broken.bench.next_due().await, Some(at(1_000)));
    broken.is_called_once(due).await;
    broken.bench.advance(58_999);
    assert!(
        broken.bench.claim(&[("message.call", 1)]).await.tasks.is_empty(),
        "the task was handed out early"
    );
    broken.bench.advance(1);
    broken.is_called_once(late).await;
}

#[tokio::test]
async fn a_retrying_body_without_a_place_keeps_its_attempts() {
    let broken = broken().await;
    let held = broken.bench.add_held().await;
    broken.bench.settle(&held, retry(5_000)).await;
    broken.hand(held.id, &["ZREM", &broken.schedule("message.call"), "$"]);
    let id = held.id.to_string();
    broken
        .mends(&[(Flaw::BodyWithoutPlace, &id), (Flaw::ListedWithoutSchedule, "message.call")])
        .await;
    assert_eq!(broken.bench.get(held.id).await.attempts, 1);
    broken.is_called_once(held.id).await;
}

#[tokio::test]
async fn a_wrong_or_missing_earliest_moment_is_looked_up() {
    for (verb, score) in [("ZREM", None), ("ZADD", Some("9")), ("ZADD", Some("9000000000000"))] {
        let broken = broken().await;
        let id = broken.bench.add("message.call", 0).await;
        let destinations = broken.of("DELAY_TOPIC_DESTINATIONS");
        let words = [verb, &destinations]
            .into_iter()
            .chain(score)
            .chain(["message.call"])
            .collect::<Vec<_>>();
        broken.hand(id, &words);
        broken.mends(&[(Flaw::EarliestWrong, "message.call")]).await;
        assert_eq!(broken.bench.next_due().await, Some(at(0)));
        broken.is_called_once(id).await;
    }
}

#[tokio::test]
async fn destinations_that_should_not_be_listed_are_removed() {
    let broken = broken().await;
    let id = broken.bench.add("@pull", 0).await;
    for name in ["@pull", "nobody", "no name"] {
        broken.hand(id, &["ZADD", &broken.of("DELAY_TOPIC_DESTINATIONS"), "5", name]);
    }
    let unreadable = (Flaw::UnreadableDestination, "no name");
    broken
        .mends(&[(Flaw::CalledWrong, "@pull"), (Flaw::ListedWithoutSchedule, "nobody"), unreadable])
        .await;
    assert_eq!(ids(&broken.bench.claim(&[("@pull", 1)]).await), [id]);
}

#[tokio::test]
async fn references_to_a_missing_body_are_removed() {
    let broken = broken().await;
    let scheduled = broken.bench.add("a", 0).await;
    let held = broken.bench.add_held().await;
    let ended = broken.bench.add_held().await;
    broken.bench.settle(&ended, dead()).await;
    for id in [scheduled, held.id, ended.id] {
        broken.hand(id, &["HDEL", &broken.bodies(), "$"]);
    }
    let (held, ended) = (held.id.to_string(), ended.id.to_string());
    let entries = [(Flaw::EntryWithoutBody, &*held), (Flaw::EntryWithoutBody, &*ended)];
    let places = [
        (Flaw::ScheduledWithoutBody, &*scheduled.to_string()),
        (Flaw::LeasedWithoutBody, &*held),
        (Flaw::EndedWithoutBody, &*ended),
    ];
    broken.mends(&[&entries[..], &places[..]].concat()).await;
    assert_eq!(broken.bench.counts().await, delayd::store::Counts::default());
    assert_eq!(broken.bench.next_due().await, None);
}

#[tokio::test]
async fn a_task_in_two_places_stays_where_its_mark_says() {
    let broken = broken().await;
    let ended = broken.bench.add_held().await;
    broken.bench.settle(&ended, delivered()).await;
    broken.hand(ended.id, &["ZADD", &broken.schedule("message.call"), "7", "$"]);
    broken.hand(ended.id, &["ZADD", &broken.leased(), "7", "$"]);
    broken.hand(ended.id, &["ZADD", &broken.of("DELAY_DEAD_TOPIC_TASK"), "7", "$"]);
    let id = ended.id.to_string();
    let flaws = [
        (Flaw::EndedYetLive, &*id),
        (Flaw::EndedTwice, &id),
        (Flaw::EarliestWrong, "message.call"),
    ];
    broken.finds(&flaws, true).await;
    broken.mends(&[]).await;
    broken.stays(ended.id, State::Delivered).await;

    let held = broken.bench.add_held().await;
    broken.hand(held.id, &["ZADD", &broken.schedule("message.call"), "7", "$"]);
    broken.hand(held.id, &["ZADD", &broken.of("DELAY_DEAD_TOPIC_TASK"), "7", "$"]);
    let id = held.id.to_string();
    let flaws = [
        (Flaw::ScheduledAndLeased, &*id),
        (Flaw::LiveYetListed, &id),
        (Flaw::EarliestWrong, "message.call"),
    ];
    broken.mends(&flaws).await;
    assert!(
        broken.bench.claim(&[("message.call", 9)]).await.tasks.is_empty(),
        "a leased task was handed out"
    );
    assert_eq!(broken.bench.settle(&held, delivered()).await, Settled::Done);
    broken.stays(held.id, State::Delivered).await;
}

#[tokio::test]
async fn a_lease_on_a_waiting_task_that_nobody_holds_is_ended() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(id, &["ZADD", &broken.leased(), &at(9_000).to_string(), "$"]);
    broken.mends(&[(Flaw::ScheduledAndLeased, &id.to_string())]).await;
    broken.is_called_once(id).await;
}

#[tokio::test]
async fn a_lease_without_a_receipt_runs_to_its_end() {
    for is_cancelled in [false, true] {
        let broken = broken().await;
        let held = broken.bench.add_held().await;
        let raw_entry = if is_cancelled { "1 0 ! w * * message.call " } else { "" };
        broken.hand(held.id, &["HDEL", &broken.entries(), "$"]);
        if is_cancelled {
            broken.hand(held.id, &["HSET", &broken.entries(), "$", raw_entry]);
            broken.mends(&[(Flaw::CancelWithoutLease, &held.id.to_string())]).await;
            broken.stays(held.id, State::Cancelled).await;
            continue;
        }
        broken.mends(&[(Flaw::LeasedWithoutReceipt, &held.id.to_string())]).await;
        broken.bench.advance(29_999);
        assert!(
            broken.bench.claim(&[("message.call", 1)]).await.tasks.is_empty(),
            "a worker may still be calling the task"
        );
        broken.bench.advance(1);
        broken.is_called_once(held.id).await;
    }
}

/// A failover lost its entry, or an entry cannot be read: the list of ends knows.
#[tokio::test]
async fn a_task_that_is_listed_as_ended_is_not_called_again() {
    for entry in ["gibberish", "1 0 - - * * message.call "] {
        let broken = broken().await;
        let held = broken.bench.add_held().await;
        broken.bench.settle(&held, delivered()).await;
        broken.hand(held.id, &["HSET", &broken.entries(), "$", entry]);
        // An entry that can be read, of a task with a place, counts more than the list.
        if entry == "gibberish" {
            broken.hand(held.id, &["ZADD", &broken.schedule("message.call"), "7", "$"]);
        }
        check(&broken.bench.store, true).await;
        broken.mends(&[]).await;
        broken.stays(held.id, State::Delivered).await;
    }
}

/// A task that was never handed out has no entry. A stray member of a list must not end it.
#[tokio::test]
async fn a_waiting_task_that_a_list_of_ends_names_is_called() {
    let broken = broken().await;
    let waits = broken.bench.add("message.call", 0).await;
    broken.hand(waits, &["ZADD", &broken.of("DELAY_DELIVERED_TOPIC_TASK"), "7", "$"]);
    broken.mends(&[(Flaw::LiveYetListed, &waits.to_string())]).await;
    broken.is_called_once(waits).await;
}

#[tokio::test]
async fn the_bodys_destination_counts() {
    let broken = broken().await;
    let held = broken.bench.add_held().await;
    broken.bench.settle(&held, retry(1_000)).await;
    let entry: String = raw(&["HGET", &broken.entries(), &held.id.to_string()]);
    broken.hand(held.id, &["HSET", &broken.entries(), "$", &entry.replace("message.call", "b")]);
    broken.mends(&[(Flaw::DestinationsDiffer, &held.id.to_string())]).await;
    broken.bench.advance(1_000);
    broken.is_called_once(held.id).await;
}

#[tokio::test]
async fn an_end_is_marked_and_listed() {
    let broken = broken().await;
    let unlisted = broken.bench.add_held().await;
    broken.bench.settle(&unlisted, dead()).await;
    broken.hand(unlisted.id, &["ZREM", &broken.of("DELAY_DEAD_TOPIC_TASK"), "$"]);
    let unmarked = broken.bench.add_held().await;
    broken.bench.settle(&unmarked, delivered()).await;
    broken.hand(unmarked.id, &["HDEL", &broken.entries(), "$"]);
    let flaws = [
        (Flaw::EndedUnlisted, &*unlisted.id.to_string()),
        (Flaw::EndedUnmarked, &unmarked.id.to_string()),
    ];
    broken.mends(&flaws).await;
    broken.stays(unlisted.id, State::Dead).await;
    broken.stays(unmarked.id, State::Delivered).await;
    assert_eq!(
        broken
            .bench
            .store
            .replay(&lane(), vec![unlisted.id], None, Spread::default())
            .await
            .unwrap(),
        1
    );
    broken.is_called_once(unlisted.id).await;
}

#[tokio::test]
async fn an_invalid_score_is_replaced() {
    for score in ["inf", "-inf", "-5", "1800000000000.5", "1e300"] {
        let broken = broken().await;
        let id = broken.bench.add("message.call", 500).await;
        let held = broken.bench.add("a", 0).await;
        broken.bench.claim(&[("a", 1)]).await;
        let ended = broken.bench.add("b", 0).await;
        broken.bench.store.cancel(&lane(), ended, None).await.unwrap();
        broken.hand(id, &["ZADD", &broken.schedule("message.call"), score, "$"]);
        broken.hand(id, &["ZADD", &broken.of("DELAY_TOPIC_DESTINATIONS"), score, "message.call"]);
        broken.hand(held, &["ZADD", &broken.leased(), score, "$"]);
        broken.hand(ended, &["ZADD", &broken.of("DELAY_CANCELLED_TOPIC_TASK"), score, "$"]);
        let flaw = Flaw::BadMoment;
        broken
            .mends(&[
                (flaw, &id.to_string()),
                (flaw, &held.to_string()),
                (flaw, &ended.to_string()),
            ])
            .await;
        assert_eq!(
            ids(&broken.bench.claim(&[("a", 1), ("message.call", 1)]).await),
            [held],
            "{score}"
        );
        broken.bench.advance(500);
        broken.is_called_once(id).await;
        assert_eq!(broken.bench.get(ended).await.finished, Some(at(0)), "{score}");
    }
}

#[tokio::test]
async fn an_unreadable_body_is_dead_and_keeps_its_bytes() {
    for body in
        ["no record", "1 x 5 message.call -\n{}", "1 5 5 no,name -\n{}", "1 5 5 message.call {\n{}"]
    {
        let broken = broken().await;
        let held = broken.bench.add_held().await;
        let id = broken.bench.add("message.call", 0).await;
        broken.hand(id, &["HSET", &broken.bodies(), "$", body]);
        broken.hand(held.id, &["HSET", &broken.bodies(), "$", body]);
        // One was claimed, and one waits.
        let flaw = Flaw::UnreadableBody;
        broken.mends(&[(flaw, &id.to_string()), (flaw, &held.id.to_string())]).await;
        assert_eq!(raw::<String>(&["HGET", &broken.bodies(), &id.to_string()]), body);
        assert_eq!(broken.bench.counts().await.dead, 2, "{body}");
        assert_eq!((broken.bench.next_due().await, broken.bench.counts().await.leased), (None, 0));
    }
}

#[tokio::test]
async fn a_body_of_another_version_is_left_alone() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 60_000).await;
    broken.hand(id, &["HSET", &broken.bodies(), "$", "2 whatever it may hold"]);
    broken.leaves_alone(&[(Flaw::ForeignBody, &id.to_string())]).await;
    assert_eq!(broken.bench.next_due().await, Some(at(60_000)), "the task must keep its place");
}

#[tokio::test]
async fn an_unreadable_entry_is_set_aside_and_its_task_goes_on() {
    let broken = broken().await;
    let retried = broken.bench.add_held().await;
    broken.bench.settle(&retried, retry(0)).await;
    let held = broken.bench.add("a", 0).await;
    broken.bench.claim(&[("a", 1)]).await;
    let ended = broken.bench.add("b", 0).await;
    broken.bench.store.cancel(&lane(), ended, None).await.unwrap();
    for id in [retried.id, held, ended] {
        broken.hand(id, &["HSET", &broken.entries(), "$", "gibberish"]);
    }
    let flaw = Flaw::UnreadableEntry;
    let (retried, held_id, ended_id) = (retried.id, held.to_string(), ended.to_string());
    let more = [(Flaw::LeasedWithoutReceipt, &*held_id)];
    let flaws = [(flaw, &*retried.to_string()), (flaw, &held_id), (flaw, &ended_id)];
    broken.mends(&[&flaws[..], &more[..]].concat()).await;
    assert_eq!(broken.aside(), ["gibberish"; 3]);
    assert_eq!(ids(&broken.bench.claim(&[("message.call", 1)]).await), [retried]);
    assert_eq!(broken.bench.state(ended).await, State::Cancelled);
    broken.bench.let_lease_run_out();
    assert_eq!(ids(&broken.bench.claim(&[("a", 1)]).await), [held]);
}

#[tokio::test]
async fn an_invalid_id_is_set_aside() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(id, &["ZADD", &broken.schedule("message.call"), "5", "nobody"]);
    broken.hand(id, &["ZADD", &broken.of("DELAY_TOPIC_DESTINATIONS"), "5", "message.call"]);
    broken.hand(id, &["HSET", &broken.bodies(), "07", "some bytes"]);
    broken.hand(id, &["HSET", &broken.entries(), "9007199254740992", "more bytes"]);
    let flaw = Flaw::NotAnId;
    broken.mends(&[(flaw, "nobody"), (flaw, "07"), (flaw, "9007199254740992")]).await;
    let mut aside = broken.aside();
    aside.sort();
    assert_eq!(aside, ["5", "more bytes", "some bytes"]);
    broken.is_called_once(id).await;
}

/// The lane holds only a schedule. A check that looks at bodies alone does not find it.
#[tokio::test]
async fn a_schedule_of_a_lane_without_bodies_is_checked() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    broken.hand(
        id,
        &[
            "DEL",
            &broken.bodies(),
            &broken.of("DELAY_TOPIC_DESTINATIONS"),
            &broken.of("DELAY_TOPIC_OFFSET"),
        ],
    );
    broken
        .mends(&[
            (Flaw::ScheduledWithoutBody, &id.to_string()),
            (Flaw::EarliestWrong, "message.call"),
        ])
        .await;
    assert!(
        broken.bench.store.reschedule(&lane(), id, None, Moment::After(ms(1)), None).await.is_ok()
    );
}
