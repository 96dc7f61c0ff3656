//! Flaws of the structures beside the tasks in Redis: expiries, keys, idempotency keys, notes,
//! policies and pauses. Works like [`crate::check_redis`].

use std::time::Duration;

use delayd::model::task::{MisfirePolicy, State, TaskId, TopicPolicy};
use delayd::store::{
    Admin, Asker, AttemptNote, Delivery, Flaw, Idempotency, Intake, Maintenance, Moment, NewTask,
    Novelty, Registered, Topics,
};

use crate::bench::{at, delivered, expiring, ids, lane, ms, new_task, retry, topic};
use crate::check_redis::{Broken, broken};
use crate::redis_alone::raw;

impl Broken {
    fn expiries(&self) -> String {
        self.of("DELAY_EXPIRIES_TOPIC_TASK")
    }

    fn expires(&self, id: TaskId) -> Option<String> {
        raw(&["ZSCORE", &self.expiries(), &id.to_string()])
    }
}

fn once(key: &str) -> NewTask {
    let idempotency = Idempotency { key: key.into(), fingerprint: 7, window: ms(5_000) };
    NewTask { idempotency: Some(idempotency), ..new_task("message.call", 0) }
}

/// Due at 100, expired at 601.
#[tokio::test]
async fn an_expiry_is_missing_or_wrong_and_is_taken_from_the_body() {
    let broken = broken().await;
    let id = broken.bench.add_task(expiring("message.call", 100, 500)).await;
    let right = Some(at(601).to_string());
    assert_eq!(broken.expires(id), right);
    let key = broken.expiries();
    for harm in
        [vec!["ZREM", &key, "$"], vec!["ZADD", &key, "5", "$"], vec!["ZADD", &key, "-5", "$"]]
    {
        broken.hand(id, &harm);
        broken.mends(&[(Flaw::ExpiryWrong, &id.to_string())]).await;
        assert_eq!(broken.expires(id), right, "{harm:?}");
    }
    broken.bench.advance(601);
    broken.bench.sweep().await;
    assert_eq!(broken.bench.state(id).await, State::Expired);
    assert_eq!(broken.expires(id), None);
}

/// If it counted as waiting, a claim would end a task that is leased.
#[tokio::test]
async fn the_expiry_of_a_leased_task_is_inactive() {
    let broken = broken().await;
    let id = broken.bench.add_task(expiring("message.call", 0, 500)).await;
    let held = broken.bench.hold().await;
    let rests = broken.expires(id);
    assert_eq!(rests, Some(format!("-{}", at(501))));
    broken.hand(id, &["ZADD", &broken.expiries(), &at(501).to_string(), "$"]);
    broken.mends(&[(Flaw::ExpiryWrong, &id.to_string())]).await;
    assert_eq!(broken.expires(id), rests);
    broken.bench.settle(&held, delivered()).await;
    assert_eq!(broken.expires(id), None);
}

/// A leased task stands in the expiries by mistake. A claim that finds it removes it there and goes
/// on.
#[tokio::test]
async fn a_claim_skips_the_expiry_of_a_leased_task() {
    let broken = broken().await;
    let held = broken.bench.add_held().await;
    broken.hand(held.id, &["ZADD", &broken.expiries(), "5", "$", "5", "17"]);
    let grant = broken.bench.sweep().await;
    assert_eq!(broken.bench.state(held.id).await, State::Leased);
    assert_eq!(grant.outlook.next, Some(at(30_000)), "the wrong expiry must be gone");
    assert_eq!(broken.expires(held.id), None);
}

#[tokio::test]
async fn entries_of_a_task_without_a_body_are_removed() {
    let broken = broken().await;
    let id = broken.bench.add("message.call", 0).await;
    let (expiries, keys, notes) = (
        broken.expiries(),
        broken.of("DELAY_KEYS_TOPIC_TASK"),
        broken.of("DELAY_NOTES_TOPIC_TASK"),
    );
    broken.hand(id, &["ZADD", &expiries, "5", "17"]);
    broken.hand(id, &["HSET", &notes, "18", "{}"]);
    broken.hand(
        id,
        &["HSET", &keys, "gone", "19 19", "not its", &format!("{id} {id}"), "garbled", "what"],
    );
    broken
        .mends(&[
            (Flaw::ExpiryWrong, "17"),
            (Flaw::NoteWithoutBody, "18"),
            (Flaw::KeyWithoutTask, "gone"),
            (Flaw::KeyWithoutTask, "not its"),
            (Flaw::KeyWithoutTask, "garbled"),
        ])
        .await;
    assert_eq!(raw::<i64>(&["EXISTS", &expiries, &keys, &notes]), 0);
}

/// It counts as unused: the next add with it stores a task and uses it.
#[tokio::test]
async fn an_idempotency_key_that_cannot_be_read_is_forgotten() {
    let broken = broken().await;
    let first = broken.bench.try_add(once("k")).await.unwrap();
    let used = broken.of("DELAY_IDEMPOTENCY_TOPIC_TASK");
    broken.hand(first.id, &["HSET", &used, "k", "what"]);
    broken.mends(&[(Flaw::UnreadableKey, "k")]).await;
    assert_eq!(broken.aside(), ["what"]);
    broken.hand(first.id, &["HSET", &used, "k", "what"]);
    let second = broken.bench.try_add(once("k")).await.unwrap();
    assert_eq!(second.novelty, Novelty::New);
    let third = broken.bench.try_add(once("k")).await.unwrap();
    assert_eq!(
        (third.novelty, third.id),
        (Novelty::Duplicate { state: Some(State::Scheduled) }, second.id)
    );
}

#[tokio::test]
async fn the_ends_of_windows_are_listed() {
    let broken = broken().await;
    let id = broken.bench.add_task(once("k")).await;
    let windows = broken.of("DELAY_WINDOWS_TOPIC_TASK");
    for harm in [vec!["DEL", &windows], vec!["ZADD", &windows, "5", "k"]] {
        broken.hand(id, &harm);
        broken.mends(&[(Flaw::WindowWrong, "k")]).await;
        assert_eq!(raw::<String>(&["ZSCORE", &windows, "k"]), at(5_000).to_string());
    }
    broken.hand(id, &["ZADD", &windows, "5", "none"]);
    broken.mends(&[(Flaw::WindowWrong, "none")]).await;
}

/// An unreadable policy or pause affects its own topic alone. Tasks that may have been paused are
/// not called.
#[tokio::test]
async fn an_unreadable_policy_or_pause_affects_only_its_topic() {
    let broken = broken().await;
    let store = &broken.bench.store;
    let well = topic();
    let ill = crate::bench::topic_of("ill", 1);
    store.create(well.clone(), None).await.unwrap();
    store.create(ill.clone(), None).await.unwrap();
    let policy = TopicPolicy { misfire: Some(MisfirePolicy::Dead), ..TopicPolicy::default() };
    assert!(store.set_policy(&well.topic, &policy).await.unwrap());
    let of_registry =
        |role: &str| broken.key(&format!("{role}-{{{}}}", broken.key("DELAY_TOPIC_LIST")));
    raw::<()>(&["HSET", &of_registry("DELAY_TOPIC_POLICY"), "ill", "{"]);
    raw::<()>(&["HSET", &of_registry("DELAY_TOPIC_PAUSES"), "ill", "yesterday"]);
    broken.leaves_alone(&[(Flaw::UnreadablePolicy, "ill"), (Flaw::UnreadablePause, "ill")]).await;
    let topics = async || {
        let mut topics = store.topics().await.unwrap();
        topics.sort_by_key(|topic| topic.entry.topic.clone());
        topics
    };
    let read = topics().await;
    assert_eq!((read[0].entry.clone(), read[0].policy.misfire), (ill.clone(), None));
    assert!(read[0].paused.is_some() && read[0].misfires.is_empty());
    assert_eq!((read[1].policy.misfire, read[1].paused), (policy.misfire, None));

    assert_eq!(
        store.resume(&ill.topic, Some(delayd::store::Misfired::Dead)).await.unwrap(),
        Some(true)
    );
    assert!(store.set_policy(&ill.topic, &TopicPolicy::default()).await.unwrap());
    assert_eq!(topics().await[0], Registered::plain(ill.clone()));
    raw::<()>(&["HSET", &of_registry("DELAY_TOPIC_PAUSES"), "ill", "yesterday"]);
    assert_eq!(store.pause(&ill.topic).await.unwrap(), Some(at(0)));
    assert_eq!(topics().await[0].paused, Some(at(0)));
}

/// With keys, expiries, dead-letter callbacks, idempotency keys and notes in every state,
/// everything is in order.
#[tokio::test]
async fn the_structures_beside_the_tasks_are_in_order_after_every_verb() {
    let broken = broken().await;
    let bench = &broken.bench;
    let task = |i: u64| {
        let options = delayd::model::task::Options {
            expires_after: i
                .is_multiple_of(2)
                .then(|| delayd_wire::Span(Duration::from_millis(400))),
            key: i.is_multiple_of(3).then(|| format!("k{}", i % 7)),
            ..delayd::model::task::Options::default()
        };
        NewTask {
            options,
            idempotency: once(&format!("i{i}")).idempotency,
            ..new_task("message.call", i % 20 * 10)
        }
    };
    let mut expired = 0;
    for round in 0..12_u64 {
        let added = bench.store.add((0..20).map(|i| task(i + 20 * round)).collect()).await;
        assert!(added.iter().all(Result::is_ok), "{added:?}");
        bench.advance(60);
        let grant = bench.claim(&[("message.call", 4)]).await;
        for (i, id) in ids(&grant).into_iter().enumerate() {
            let held = crate::bench::Held { id, receipt: grant.receipt.clone() };
            let transition = [delivered(), crate::bench::dead(), retry(70)].into_iter().nth(i % 4);
            if let Some(transition) = transition {
                bench.settle(&held, transition).await;
            } else {
                bench
                    .store
                    .extend(Asker::Worker, &lane(), id, &grant.receipt, ms(50))
                    .await
                    .unwrap();
            }
            let note = AttemptNote {
                lane: lane(),
                id,
                attempt: 1,
                started: at(0),
                took: ms(1),
                wait: None,
                outcome: "x".into(),
                answer: String::new(),
            };
            bench.store.note(vec![note]).await.unwrap();
        }
        expired += bench.counts().await.expired;
        let dead = bench.list(State::Dead).await.iter().map(|listed| listed.id).collect();
        bench
            .store
            .replay(&lane(), dead, None, delayd::store::Spread { first: ms(30), step: ms(5) })
            .await
            .unwrap();
        if let Some(listed) = bench.list(State::Scheduled).await.last() {
            bench
                .store
                .reschedule(&lane(), listed.id, None, Moment::After(ms(20)), None)
                .await
                .unwrap();
        }
        if round % 4 == 3 {
            bench.store.purge(&lane(), 0, State::Expired, bench.now(), 5).await.unwrap();
            bench.store.clear(&lane(), 3).await.unwrap();
        }
        crate::check::assert_in_order(&bench.store).await;
    }
    assert!(expired > 0, "no task has expired");
}
