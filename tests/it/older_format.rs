//! An instance of format 1 and this program on one Redis, before and after the format is raised.
//!
//! The test has no older program. It sends the scripts of the last program of format 1, as that
//! program sent them (`tests/support/snapshots/format_1`). Redis refuses none of them. That program
//! reads the format each second and stops at one that it does not know, and so does the instance of
//! the test. The conformance test
//! `an_instance_stops_when_the_format_is_raised_beyond_what_it_knows` runs that part of the
//! program.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use deadpool_redis::redis::{self, Connection, FromRedisValue, Value};
use serde_json::json;

use crate::load::Load;
use crate::moving::counts;
use crate::moving_schedules::call;
use crate::program::{command, run, service};
use crate::receiver::Receiver;
use crate::{Kept, poll, redis_server};

const ADD: &str = include_str!("../support/snapshots/format_1/add.lua");
const IDS: &str = include_str!("../support/snapshots/format_1/ids.lua");
const CLAIM: &str = include_str!("../support/snapshots/format_1/claim.lua");
const SETTLE: &str = include_str!("../support/snapshots/format_1/settle.lua");
/// The keys of a lane of topic `t`, in the order of the scripts of format 1.
const LANE_KEYS: [&str; 12] = [
    "DELAY_REALL_TOPIC_TASK-{t:0}",
    "DELAY_TOPIC_OFFSET-{t:0}",
    "DELAY_TOPIC_DESTINATIONS-{t:0}",
    "DELAY_SIMPLE_TOPIC_TASK-{t:0}:",
    "DELAY_ATTEMPTS_TOPIC_TASK-{t:0}",
    "DELAY_LEASED_TOPIC_TASK-{t:0}",
    "DELAY_TOPIC_RELOAD_LOCK-{t:0}",
    "DELAY_DELIVERED_TOPIC_TASK-{t:0}",
    "DELAY_DEAD_TOPIC_TASK-{t:0}",
    "DELAY_CANCELLED_TOPIC_TASK-{t:0}",
    "DELAY_EXPIRED_TOPIC_TASK-{t:0}",
    "DELAY_EXPIRIES_TOPIC_TASK-{t:0}",
];
/// How often the older instance reads the format.
const READS: Duration = Duration::from_secs(1);
const SCHEDULES: usize = 10;

/// What the older instance did.
#[derive(Default)]
struct Done {
    added: Vec<u64>,
    /// The ids and the records of the tasks that it called.
    called: Vec<(u64, String)>,
}

/// What the test tells the older instance.
#[derive(Default)]
struct Told {
    /// A heartbeat is sent each second.
    beats: AtomicBool,
    /// The format may be read. Until then, the older instance lives in the second between two
    /// reads.
    reads: AtomicBool,
    done: Mutex<Done>,
}

/// The loop of an instance of format 1: it adds, claims, calls and settles.
struct Older {
    prefix: String,
    connection: Connection,
    told: Arc<Told>,
}

impl Older {
    /// Starts it. The thread returns the format at which it stopped.
    fn start(prefix: &str, told: &Arc<Told>) -> JoinHandle<u32> {
        let url = format!("redis://127.0.0.1:{}/0", redis_server::shared().port());
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let mut older = Self { prefix: prefix.into(), connection, told: told.clone() };
        std::thread::spawn(move || {
            let (started, mut read) = (Instant::now(), Instant::now());
            for turn in 0_u64.. {
                if read.elapsed() >= READS {
                    read = Instant::now();
                    if older.told.beats.load(Ordering::SeqCst) {
                        older.beat();
                    }
                    let format = older.format();
                    if older.told.reads.load(Ordering::SeqCst) && format > 1 {
                        return format;
                    }
                }
                if turn.is_multiple_of(20) {
                    older.add();
                }
                // In the other half of the time, this program has the lane to itself.
                if started.elapsed().as_millis() / 200 % 2 == 0 {
                    older.claim_and_call();
                }
                // The pace of its load.
                std::thread::sleep(Duration::from_millis(1));
            }
            unreachable!("it stops at a format that it does not know")
        })
    }

    fn beside(&self, role: &str) -> String {
        format!("{0}:DELAY_{role}-{{{0}:DELAY_TOPIC_LIST}}", self.prefix)
    }

    fn format(&mut self) -> u32 {
        let key = self.beside("STORE");
        redis::cmd("HGET").arg(key).arg("format").query(&mut self.connection).unwrap()
    }

    /// A program of format 1 says nothing of a format in its heartbeats.
    fn beat(&mut self) {
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        let said = json!({
            "id": "older", "name": "older-host", "version": "0.0.9", "address": "10.0.0.5:7799",
        });
        let key = self.beside("INSTANCES");
        let beat = format!("{seconds}000 {said}");
        redis::cmd("HSET").arg(key).arg("older").arg(beat).exec(&mut self.connection).unwrap();
    }

    fn run<T: FromRedisValue>(&mut self, script: &str, keys: &[String], args: &[&str]) -> T {
        let mut call = redis::cmd("EVAL");
        call.arg(script).arg(keys.len()).arg(keys).arg(0).arg(args);
        call.query(&mut self.connection).unwrap()
    }

    fn lane_keys(&self, count: usize) -> Vec<String> {
        LANE_KEYS[..count].iter().map(|key| format!("{}:{key}", self.prefix)).collect()
    }

    fn add(&mut self) {
        let last = format!("{}:DELAY_TASK_ID", self.prefix);
        let run = format!("{0}:DELAY_TASK_ID_RUN-{{{0}:DELAY_TASK_ID}}", self.prefix);
        let (id, _): (String, u64) =
            self.run(IDS, &[last, run], &["1", "0", "0", "5000000", "2000000"]);
        let tail = "message.call -\n{\"sn\":\"message.call\",\"url\":\"/older\"}";
        let args = ["1", "5", "message.call", "1", &id, "+300", tail];
        let answer: Value = self.run(ADD, &self.lane_keys(4), &args);
        assert!(matches!(&answer, Value::Array(all) if all[1] == Value::Int(0)), "{answer:?}");
        self.told.done.lock().unwrap().added.push(id.parse().unwrap());
    }

    fn claim_and_call(&mut self) {
        let receipt = format!("{:016x}", rand::random::<u64>());
        let args = [
            &receipt,
            "60000",
            "older",
            "0",
            "0",
            "100",
            "1000000",
            "10",
            "100",
            "",
            "0",
            "message.call",
            "2",
        ];
        let answer: Vec<Value> = self.run(CLAIM, &self.lane_keys(12), &args);
        if answer[0] == Value::Int(0) {
            return;
        }
        let leased = Vec::<String>::from_redis_value(answer[2].clone()).unwrap();
        for task in leased.chunks(3) {
            let (id, record) = (&task[0], &task[2]);
            self.told.done.lock().unwrap().called.push((id.parse().unwrap(), record.clone()));
            let args = [id, &receipt, "delivered", "0", "200 OK"];
            let answer: Vec<String> = self.run(SETTLE, &self.lane_keys(12), &args);
            assert_eq!(answer, ["done"]);
        }
    }
}

/// The name and the moment of an occurrence.
fn occurrence(record: &str) -> Option<(String, i64)> {
    let options = record.lines().next()?.splitn(5, ' ').nth(4)?;
    let options: serde_json::Value = serde_json::from_str(options).ok()?;
    let schedule = &options["schedule"];
    Some((schedule["name"].as_str()?.to_owned(), schedule["moment"].as_i64()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_format_1_beside_this_program_loses_nothing() {
    let kept = Kept::redis();
    let redis = redis_server::shared();
    let prefix = kept.prefix().to_owned();
    let beside = |role: &str| format!("{prefix}:DELAY_{role}-{{{prefix}:DELAY_TOPIC_LIST}}");
    // As a program of format 1 creates it.
    let store = ["id", "00c0ffee00c0ffee", "since", "0", "format", "1"];
    redis.command(&[&["HSET", &beside("STORE")][..], &store].concat());
    let receiver = Receiver::start().await;
    let delayd = Arc::new(kept.start(&[service("message.call", &receiver)]).await);
    delayd.post("/delay/topic/set", json!({"topic": "t", "shards": 1}).to_string()).await.ok();

    // Both add, and each calls tasks of the other.
    let load = Load::start(&delayd, "t", "200ms", 2);
    load.accepted_after(Instant::now(), 1).await;
    let told = Arc::new(Told::default());
    told.beats.store(true, Ordering::SeqCst);
    let older = Older::start(&prefix, &told);
    let both_work = async || {
        let added: BTreeSet<u64> = told.done.lock().unwrap().added.iter().copied().collect();
        let called: BTreeSet<u64> =
            told.done.lock().unwrap().called.iter().map(|(id, _)| *id).collect();
        let of_new: BTreeSet<u64> = receiver.seen().iter().map(|call| call.id).collect();
        let crossed = [
            called.difference(&added).count(),
            called.intersection(&added).count(),
            of_new.difference(&added).count(),
            of_new.intersection(&added).count(),
        ];
        crossed.iter().all(|count| *count >= 10)
    };
    assert!(poll::until(both_work).await, "one of the two calls nothing:\n{}", delayd.log());

    // The format is 1, so this program takes no schedules. An older instance lives.
    let set = async |n: usize| {
        let body = json!({
            "topic": "t", "schedule": format!("s{n}"), "every": "1s", "misfire": "all",
            "content": {"sn": "message.call", "url": "/"},
        });
        call(&delayd, "set", body).await
    };
    let refused = set(0).await;
    let said = refused.body["error_msg"].as_str().unwrap();
    assert!(refused.status == 503 && said.contains("delayd format --raise"), "{refused:?}");
    let raise = || {
        let mut raise = command(&kept.store.sets());
        raise.args(["format", "--raise"]);
        run(raise)
    };
    let is_there = async || redis.command(&["HGET", &beside("INSTANCES"), "older"]).contains("id");
    assert!(poll::until(is_there).await, "the older instance sends no heartbeat");
    let (code, output, error) = raise().await;
    assert!(code != 0 && error.contains("older-host"), "{code} {output}{error}");

    // It is forgotten: its heartbeats end, and it works on.
    told.beats.store(false, Ordering::SeqCst);
    let is_gone = async || {
        redis.command(&["HDEL", &beside("INSTANCES"), "older"]);
        raise().await.0 == 0
    };
    assert!(poll::until(is_gone).await, "the format is not raised");
    for n in 0..SCHEDULES {
        let is_set = async || set(n).await.status == 200;
        assert!(poll::until(is_set).await, "a set is refused after the raise");
    }
    let has_called_one = async || {
        told.done.lock().unwrap().called.iter().any(|(_, record)| occurrence(record).is_some())
    };
    assert!(poll::until(has_called_one).await, "the older instance calls no occurrence");
    told.reads.store(true, Ordering::SeqCst);
    let format = tokio::task::spawn_blocking(move || older.join().unwrap()).await.unwrap();
    assert_eq!(format, 2);

    // This program goes on alone.
    let alone = receiver.seen().len();
    let calls_each = async || {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for seen in &receiver.seen()[alone..] {
            if let Some(name) = seen.headers.get("delay-schedule") {
                *counts.entry(name.to_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        counts.len() == SCHEDULES && counts.values().all(|count| *count >= 3)
    };
    assert!(poll::until(calls_each).await, "a schedule was not called three times");
    let (_, answers) = load.stop().await;
    for n in 0..SCHEDULES {
        let name = json!({"topic": "t", "schedule": format!("s{n}")});
        call(&delayd, "delete", name).await.ok();
    }
    let is_idle = async || {
        let counts = counts(&delayd, "t").await;
        counts["leased"] == 0 && counts["scheduled"] == 0
    };
    assert!(poll::until(is_idle).await, "some tasks stay: {}", counts(&delayd, "t").await);

    let done = std::mem::take(&mut *told.done.lock().unwrap());
    let mut calls: BTreeMap<u64, usize> = BTreeMap::new();
    let mut moments: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for (id, record) in &done.called {
        *calls.entry(*id).or_default() += 1;
        if let Some((name, moment)) = occurrence(record) {
            moments.entry(name).or_default().push(moment);
        }
    }
    for seen in receiver.seen() {
        *calls.entry(seen.id).or_default() += 1;
        let header = |name: &str| seen.headers.get(name).map(|value| value.to_str().unwrap());
        if let Some(name) = header("delay-schedule") {
            let moment = header("delay-schedule-moment-ms").unwrap().parse().unwrap();
            moments.entry(name.to_owned()).or_default().push(moment);
        }
    }
    let twice: Vec<_> = calls.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{} tasks came twice, such as {:?}", twice.len(), twice.first());
    let added = done.added.iter().copied().chain(answers.iter().filter_map(|answer| answer.id));
    let lost: Vec<u64> = added.filter(|id| !calls.contains_key(id)).collect();
    assert!(lost.is_empty(), "{} tasks never came, such as {:?}", lost.len(), lost.first());
    assert_eq!(moments.len(), SCHEDULES);
    for (name, moments) in &mut moments {
        moments.sort_unstable();
        let is_next = |pair: &[i64]| pair[1] == pair[0] + 1_000;
        assert!(moments.windows(2).all(is_next), "{name} has the moments {moments:?}");
    }
    let mut fsck = command(&kept.store.sets());
    fsck.arg("fsck");
    let (code, output, error) = run(fsck).await;
    assert_eq!(code, 0, "{output}{error}");
}
