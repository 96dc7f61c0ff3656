//! Adds that Redis gets twice, because the first answer was lost. The tests run the script itself,
//! with other calls between both.

use deadpool_redis::redis::{self, Value};
use delayd::model::task::{OnDead, Options, State, TaskId};
use delayd::store::redis::Redis;
use delayd::store::{Admin, Idempotency, Intake, NewTask, Novelty, Topics};

use crate::bench::{Bench, START, at, dead, delivered, ids, keyed, lane, new_task};
use crate::check::assert_in_order;
use crate::check_redis::{Broken, broken};
use crate::redis_server;

const ROLES: [&str; 16] = [
    "DELAY_REALL_TOPIC_TASK",
    "DELAY_TOPIC_OFFSET",
    "DELAY_TOPIC_DESTINATIONS",
    "DELAY_SIMPLE_TOPIC_TASK",
    "DELAY_ATTEMPTS_TOPIC_TASK",
    "DELAY_LEASED_TOPIC_TASK",
    "DELAY_TOPIC_RELOAD_LOCK",
    "DELAY_DELIVERED_TOPIC_TASK",
    "DELAY_DEAD_TOPIC_TASK",
    "DELAY_CANCELLED_TOPIC_TASK",
    "DELAY_EXPIRED_TOPIC_TASK",
    "DELAY_EXPIRIES_TOPIC_TASK",
    "DELAY_KEYS_TOPIC_TASK",
    "DELAY_IDEMPOTENCY_TOPIC_TASK",
    "DELAY_WINDOWS_TOPIC_TASK",
    "DELAY_NOTES_TOPIC_TASK",
];

/// The text of a script.
fn script(name: &str) -> &'static str {
    delayd::store::redis::script::sent().into_iter().find(|(other, _)| *other == name).unwrap().1
}

/// An add with the id that was drawn for it.
#[derive(Clone)]
struct Sent {
    id: TaskId,
    options: Options,
    asked: &'static str,
    content: &'static str,
}

/// Larger than all ids that the store draws at the start, in the same second.
fn drawn(n: u64) -> TaskId {
    TaskId(u64::try_from(START.0).unwrap() / 1_000 * TaskId::PER_SECOND + 900_000 + n)
}

fn sent(n: u64, asked: &'static str, content: &'static str) -> Sent {
    let options = if asked.contains("\"k\"") { keyed("k", 0).options } else { Options::default() };
    Sent { id: drawn(n), options, asked, content }
}

const KEY: &str = r#"{"key":"k"}"#;
const ONCE: &str = concat!(
    r#"{"idempotency":{"key":"i","#,
    r#""fingerprint":"0000000000000000000000000000002a","window":60000}}"#
);
const BOTH: &str = concat!(
    r#"{"key":"k","idempotency":{"key":"i","#,
    r#""fingerprint":"0000000000000000000000000000002a","window":60000}}"#
);

impl Broken {
    /// Sends the add to the script and returns its answer.
    fn send(&self, sent: &Sent) -> Value {
        let mut connection =
            redis::Client::open(redis_server::shared().url()).unwrap().get_connection().unwrap();
        let key =
            |role: &str| self.of(role) + if role == "DELAY_SIMPLE_TOPIC_TASK" { ":" } else { "" };
        let options = match sent.options.is_default() {
            true => "-".to_owned(),
            false => serde_json::to_string(&sent.options).unwrap(),
        };
        let () = redis::cmd("HSET")
            .arg(key("DELAY_TOPIC_OFFSET"))
            .arg("#shards")
            .arg(1)
            .query(&mut connection)
            .unwrap();
        let (mut call, now) = (redis::cmd("EVAL"), self.bench.now().0);
        if sent.asked.is_empty() {
            let keys: Vec<String> = ROLES[..4].iter().map(|role| key(role)).collect();
            call.arg(script("add"))
                .arg(keys.len())
                .arg(&keys)
                .arg(now)
                .arg(1)
                .arg(5)
                .arg("message.call")
                .arg(1)
                .arg(sent.id.0);
            call.arg("+50").arg(format!("message.call {options}\n{}", sent.content));
        } else {
            let keys = ROLES.map(key);
            call.arg(script("add_with_options"))
                .arg(keys.len())
                .arg(&keys)
                .arg(now)
                .arg(1)
                .arg(sent.id.0);
            call.arg("+50").arg("message.call").arg(options).arg(sent.content).arg(sent.asked);
        }
        match &call.query::<Vec<Value>>(&mut connection).unwrap()[..] {
            [Value::Int(now), Value::Int(0)] if sent.asked.is_empty() => Value::Int(now + 50),
            [_, Value::Array(known)] if sent.asked.is_empty() => known[1].clone(),
            [_, answer] => answer.clone(),
            other => panic!("{other:?}"),
        }
    }

    async fn check_in_order(self) {
        self.bench.store.create(crate::bench::topic(), None).await.unwrap();
        // The ids of the tests did not come from the counter.
        self.hand(drawn(0), &["SET", &self.key("DELAY_TASK_ID"), &drawn(99_999).to_string()]);
        assert_in_order(&self.bench.store).await;
    }
}

fn replaced(id: TaskId, due_ms: i64) -> Value {
    Value::Array(vec![
        Value::BulkString("replaced".into()),
        Value::BulkString(id.to_string().into()),
        Value::Int(at(due_ms).0),
        Value::BulkString("".into()),
    ])
}

fn new(due_ms: i64) -> Value {
    Value::Int(at(due_ms).0)
}

async fn contents(bench: &Bench<Redis>) -> Vec<String> {
    let mut contents = Vec::new();
    for listed in bench.list(State::Scheduled).await {
        contents.push(bench.get(listed.id).await.content);
    }
    contents
}

#[tokio::test]
async fn a_repeat_answers_as_the_add_did_whatever_was_asked() {
    for asked in ["", KEY, ONCE, BOTH, r#"{"quota":1}"#] {
        let broken = broken().await;
        let add = sent(1, asked, "a");
        assert_eq!(broken.send(&add), new(50), "{asked}");
        broken.bench.advance(7);
        assert_eq!(broken.send(&add), new(50), "{asked}");
        assert_eq!(contents(&broken.bench).await, ["a"], "{asked}");
        // Also after it was claimed and has ended.
        broken.bench.advance(50);
        let held = broken.bench.hold().await;
        assert_eq!(broken.send(&add), new(50), "{asked}");
        assert_eq!(broken.bench.state(add.id).await, State::Leased);
        broken.bench.settle(&held, delivered()).await;
        assert_eq!(broken.send(&add), new(50), "{asked}");
        let counts = broken.bench.counts().await;
        assert_eq!((counts.scheduled, counts.leased, counts.delivered), (0, 0, 1), "{asked}");
        broken.check_in_order().await;
    }
}

/// The push-back was done and then the task was claimed. A second push-back would cancel the
/// running call and store the task again.
#[tokio::test]
async fn a_repeated_push_back_does_not_count_twice() {
    for asked in [KEY, BOTH] {
        let broken = broken().await;
        broken.send(&sent(1, KEY, "a"));
        let add = sent(2, asked, "b");
        assert_eq!(broken.send(&add), replaced(drawn(1), 50));
        broken.bench.advance(50);
        let held = broken.bench.hold().await;
        assert_eq!(broken.send(&add), replaced(drawn(1), 50));
        assert_eq!(broken.bench.counts().await.scheduled, 0);
        broken.bench.settle(&held, crate::bench::retry(0)).await;
        assert_eq!(
            broken.bench.state(drawn(1)).await,
            State::Scheduled,
            "the repeat marked a cancel"
        );
        broken.check_in_order().await;
    }
}

/// Another add pushed the task back before the repeat came. The later content stays.
#[tokio::test]
async fn a_repeat_does_not_undo_a_later_push_back() {
    let broken = broken().await;
    let first = sent(1, KEY, "a");
    broken.send(&first);
    assert_eq!(broken.send(&sent(2, KEY, "b")), replaced(drawn(1), 50));
    assert_eq!(broken.send(&first), new(50));
    assert_eq!(contents(&broken.bench).await, ["b"]);
    // Also when a third task has taken over the key.
    broken.bench.advance(50);
    broken.bench.hold().await;
    assert_eq!(broken.send(&sent(3, KEY, "c")), new(100));
    assert_eq!(broken.send(&first), new(50));
    assert_eq!(contents(&broken.bench).await, ["c"]);
    broken.check_in_order().await;
}

/// With an idempotency key, even an add between a push-back and its repeat changes nothing.
#[tokio::test]
async fn an_idempotent_push_back_is_done_once_whatever_comes_between() {
    let broken = broken().await;
    broken.send(&sent(1, KEY, "a"));
    let add = sent(2, BOTH, "b");
    broken.send(&add);
    broken.send(&sent(3, KEY, "c"));
    assert_eq!(broken.send(&add), replaced(drawn(1), 50));
    assert_eq!(contents(&broken.bench).await, ["c"]);
    broken.check_in_order().await;
}

/// The first sending of the add has used the last place of the lane's quota.
#[tokio::test]
async fn a_repeat_is_not_refused_over_its_own_place_in_the_quota() {
    let broken = broken().await;
    let full = r#"{"key":"k","quota":1}"#;
    assert_eq!(broken.send(&sent(1, full, "a")), new(50));
    assert_eq!(broken.send(&sent(1, full, "a")), new(50));
    assert_eq!(broken.send(&sent(2, r#"{"quota":1}"#, "b")), Value::Int(-2));
    assert_eq!(broken.send(&sent(2, r#"{"quota":1}"#, "b")), Value::Int(-2));
    broken.check_in_order().await;
}

/// An id was drawn twice, after a failover that lost the last steps of the counter. The second task
/// must get another id.
#[tokio::test]
async fn an_id_of_another_task_is_taken_whatever_is_asked() {
    for (asked, other) in [(KEY, ""), (ONCE, KEY), (r#"{"quota":5}"#, ONCE), ("", BOTH)] {
        let broken = broken().await;
        broken.send(&sent(1, other, "a"));
        assert_eq!(broken.send(&sent(1, asked, "b")), Value::Int(-1), "{asked} after {other}");
        assert_eq!(contents(&broken.bench).await, ["a"]);
        broken.check_in_order().await;
    }
}

/// A task that is moved within one batch must not leave its first moment in the index of
/// destinations.
#[tokio::test]
async fn a_batch_that_pushes_its_own_task_back_leaves_all_in_order() {
    let broken = broken().await;
    let to = |sn: &str, key: &str, after: u64| NewTask {
        destination: sn.parse().unwrap(),
        ..keyed(key, after)
    };
    let batch = vec![
        to("a", "k", 10),
        NewTask { destination: "a".parse().unwrap(), ..new_task("a", 30) },
        to("b", "k", 20),
        to("@pull", "l", 5),
        to("b", "l", 40),
        to("c", "m", 5),
        to("c", "m", 90),
    ];
    let added = broken.bench.store.add(batch).await;
    let novelties: Vec<Novelty> = added.into_iter().map(|added| added.unwrap().novelty).collect();
    use Novelty::{New, Replaced};
    assert_eq!(novelties, [New, New, Replaced, New, Replaced, New, Replaced]);
    assert_eq!(broken.bench.next_due().await, Some(at(20)));
    assert_in_order(&broken.bench.store).await;
}

/// A task that dies at maxmemory still gets its dead-letter callback.
#[tokio::test]
async fn a_full_redis_still_makes_the_call_for_the_dead() {
    let server = redis_server::Server::start();
    let clock = delayd::model::clock::Clock::manual(START);
    let store = crate::redis_alone::connect_to(&server, &clock).await;
    let bench = Bench::around(store, clock);
    let on_dead =
        OnDead { sn: "dead.letters".parse().unwrap(), url: "/dead".into(), task_id: None };
    let options = Options { on_dead: Some(on_dead), ..Options::default() };
    bench.add_task(NewTask { options, ..new_task("message.call", 0) }).await;
    let held = bench.hold().await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    bench.settle(&held, dead()).await;
    let call = bench.get(held.id).await.options.on_dead.unwrap().task_id.unwrap();
    assert_eq!(ids(&bench.claim(&[("dead.letters", 1)]).await), [call]);
}

/// 32 adds with one key at once, through two instances, store one task.
#[tokio::test]
async fn adds_at_once_under_one_idempotency_key_make_one_task() {
    let broken = broken().await;
    let others = [crate::bench::connect(&broken.prefix, &broken.bench.clock).await];
    let task = || {
        let window = crate::bench::ms(60_000);
        let idempotency = Idempotency { key: "i".into(), fingerprint: 1, window };
        NewTask { idempotency: Some(idempotency), ..new_task("message.call", 10) }
    };
    let adding = (0..32)
        .map(|i| if i % 2 == 0 { &broken.bench.store } else { &others[0] }.add(vec![task()]));
    let added: Vec<_> = futures_util::future::join_all(adding)
        .await
        .into_iter()
        .flatten()
        .map(Result::unwrap)
        .collect();
    assert_eq!(added.iter().filter(|added| added.novelty == Novelty::New).count(), 1);
    assert!(added.iter().all(|one| one.id == added[0].id && one.due == at(10)));
    assert_eq!(broken.bench.store.stats(&lane()).await.unwrap().scheduled, 1);
}

/// A topic that is deleted while tasks are added exists afterwards, if it has a task.
#[tokio::test]
async fn an_add_at_the_same_moment_as_an_unregistration_keeps_its_topic() {
    let broken = broken().await;
    let other = crate::bench::connect(&broken.prefix, &broken.bench.clock).await;
    for _ in 0..100 {
        let topic = crate::bench::topic();
        let (added, removed) = tokio::join!(
            other.add(vec![new_task("message.call", 0)]),
            broken.bench.store.unregister(&topic)
        );
        let id = added.into_iter().next().unwrap().unwrap().id;
        let topics = broken.bench.store.topics().await.unwrap();
        assert_eq!(topics.len(), 1, "the topic of a stored task is missing; removed: {removed:?}");
        broken.bench.store.cancel(&lane(), id, None).await.unwrap();
        broken.bench.store.discard(&lane(), State::Cancelled, vec![id], None).await.unwrap();
    }
    assert!(broken.bench.store.unregister(&crate::bench::topic()).await.unwrap());
    assert!(broken.bench.store.topics().await.unwrap().is_empty());
}
