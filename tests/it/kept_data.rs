//! Stores that earlier releases wrote: every later program opens them.
//!
//! `fixtures/VERSION` has both stores as a release left them, and what it answered about their
//! tasks. Before a release, `WRITE_FIXTURE=1` adds those of this version:
//!
//! ```sh
//! WRITE_FIXTURE=1 cargo nextest run --test it -E 'test(/^kept_data::/)'
//! ```

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use deadpool_redis::redis::{self, Connection, FromRedisValue};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::program::{Program, StoreAt, command, embedded, folder, run, service};
use crate::receiver::Receiver;
use crate::{poll, redis_server};

/// The key prefix of the stores on Redis.
const PREFIX: &str = "kept";
/// Contents with characters that a store might write in another way.
const CONTENT: &str = "{\"b\":1.0,\"a\":\"操作 \\u0000 \\\"x\\\"\\n\"}";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures")
}

fn is_to_be_written() -> bool {
    std::env::var_os("WRITE_FIXTURE").is_some()
}

fn redis() -> (StoreAt, Connection) {
    let port = redis_server::shared().port();
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/0")).unwrap();
    (StoreAt::Redis(port, PREFIX.into()), client.get_connection().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_store_of_every_release_is_opened() {
    if is_to_be_written() {
        let (folder, place) = (folder(), fixtures().join(env!("CARGO_PKG_VERSION")));
        write_expected(&fill(&embedded(folder.path())).await, &place.join("embedded.json"));
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&std::fs::read(folder.path().join("delayd.db")).unwrap()).unwrap();
        std::fs::write(place.join("embedded.db.gz"), packed.finish().unwrap()).unwrap();
    }
    for release in releases() {
        let folder = folder();
        let packed = std::fs::read(release.join("embedded.db.gz")).unwrap();
        let mut file = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut file).unwrap();
        std::fs::write(folder.path().join("delayd.db"), file).unwrap();
        check(&embedded(folder.path()), &release.join("embedded.json")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_every_release_on_redis_is_opened() {
    let (store, mut connection) = redis();
    if is_to_be_written() {
        let place = fixtures().join(env!("CARGO_PKG_VERSION"));
        write_expected(&fill(&store).await, &place.join("redis.json"));
        let commands: Vec<String> =
            commands(&mut connection).iter().map(|words| json!(words).to_string()).collect();
        std::fs::write(place.join("redis.commands"), commands.join("\n") + "\n").unwrap();
    }
    for release in releases() {
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        for line in std::fs::read_to_string(release.join("redis.commands")).unwrap().lines() {
            let words: Vec<String> = serde_json::from_str(line).unwrap();
            redis::cmd(&words[0]).arg(&words[1..]).exec(&mut connection).unwrap();
        }
        check(&store, &release.join("redis.json")).await;
    }
}

/// The folders of all releases.
fn releases() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixtures()).unwrap();
    let folders: Vec<PathBuf> = folders.map(|folder| folder.unwrap().path()).collect();
    assert!(!folders.is_empty());
    folders
}

fn write_expected(expected: &Value, file: &Path) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, format!("{expected:#}\n")).unwrap();
}

/// The commands that write all keys of a Redis but those that expire.
fn commands(connection: &mut Connection) -> Vec<Vec<String>> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).unwrap();
    keys.sort();
    let mut commands = Vec::new();
    for key in keys {
        let expires: i64 = redis::cmd("PTTL").arg(&key).query(connection).unwrap();
        if expires >= 0 {
            continue;
        }
        let mut ask = |words: &[&str]| -> redis::Value {
            redis::cmd(words[0]).arg(&key).arg(&words[1..]).query(connection).unwrap()
        };
        let mut write = |command: &str, values: Vec<String>| {
            commands.push([vec![command.to_owned(), key.clone()], values].concat());
        };
        match &words(ask(&["TYPE"]))[0][..] {
            "string" => write("SET", words(ask(&["GET"]))),
            "hash" => write("HSET", words(ask(&["HGETALL"]))),
            "zset" => {
                let mut values = words(ask(&["ZRANGE", "0", "-1", "WITHSCORES"]));
                // ZADD has the score first.
                values.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
                write("ZADD", values);
            }
            "stream" => {
                let redis::Value::Array(entries) = ask(&["XRANGE", "-", "+"]) else { panic!() };
                entries.into_iter().for_each(|entry| write("XADD", words(entry)));
            }
            other => panic!("{key} is a {other}"),
        }
    }
    commands
}

/// The strings of an answer, in order.
fn words(answer: redis::Value) -> Vec<String> {
    match answer {
        redis::Value::Array(all) => all.into_iter().flat_map(words).collect(),
        one => vec![String::from_redis_value(one).unwrap()],
    }
}

/// Fills a store with tasks in every state, and a recurring schedule. Returns what it answers.
async fn fill(store: &StoreAt) -> Value {
    // Nothing is called, so what is due waits for the program that opens the store.
    let sets = ["worker.enabled=false".to_owned(), service_of(&Receiver::start().await)];
    let mut delayd = Program::start(store, &sets).await;
    let topic =
        json!({"topic": "orders", "shards": 2, "quota": 1_000, "retry": {"max_attempts": 7}});
    delayd.post("/delay/topic/set", topic.to_string()).await.ok();
    let schedule = json!({
        "topic": "orders", "schedule": "report", "cron": "0 9 * * MON", "zone": "Asia/Shanghai",
        "content": {"sn": "message.call", "url": "/report"},
    });
    delayd.post("/delay/schedule/set", schedule.to_string()).await.ok();

    let content: Value = serde_json::from_str(CONTENT).unwrap();
    let task = |topic: &str, delay: &str| {
        let content = &content;
        json!({"topic": topic, "delay": delay, "mode": "pull", "content": content})
    };
    let waiting = delayd.add(task("pulled", "0s")).await.id();
    let mut keyed = task("far", "360d");
    keyed["key"] = "order-42".into();
    keyed["idempotency_key"] = "add-42".into();
    let far = delayd.add(keyed).await.id();
    let mut called = Vec::new();
    for n in 0..5 {
        let content = json!({"sn": "message.call", "url": format!("/{n}"), "text": CONTENT});
        let task = json!({
            "topic": "orders", "delay": 0, "content": content, "headers": {"x-shop": "42"},
        });
        called.push(delayd.add(task).await.id());
    }

    let cancelled = delayd.add(task("ended", "1h")).await.id();
    let name = json!({"topic": "ended", "task_id": cancelled}).to_string();
    delayd.post("/delay/task/cancel", name).await.ok();
    let pull = async |lease: &str| {
        let lease = json!({"topic": "ended", "lease": lease}).to_string();
        delayd.post("/delay/task/pull", lease).await.ok().body["receipt"].clone()
    };
    let end = async |how: &str, id: u64, receipt: Value| {
        let body = json!({"topic": "ended", "task_id": id, "receipt": receipt}).to_string();
        delayd.post(&format!("/delay/task/{how}"), body).await.ok();
    };
    let delivered = delayd.add(task("ended", "0s")).await.id();
    end("ack", delivered, pull("30s").await).await;
    let mut doomed = task("ended", "0s");
    doomed["max_attempts"] = 1.into();
    let dead = delayd.add(doomed).await.id();
    end("nack", dead, pull("30s").await).await;
    let leased = delayd.add(task("ended", "0s")).await.id();
    pull("1s").await;

    let get = async |topic: &str, id: u64| {
        let name = json!({"topic": topic, "task_id": id}).to_string();
        json!([topic, delayd.post("/delay/task/get", name).await.ok().body["task"]])
    };
    let ended = [
        get("ended", cancelled).await,
        get("ended", delivered).await,
        get("ended", dead).await,
        get("far", far).await,
    ];
    let name = json!({"topic": "orders", "schedule": "report"}).to_string();
    let schedule = delayd.post("/delay/schedule/get", name).await.ok().body;
    delayd.signal("TERM");
    assert_eq!(delayd.ended().await.code(), Some(0), "{}", delayd.log());
    json!({
        "unchanged": ended, "pulled": waiting, "leased": leased, "called": called,
        "schedule": {"cron": schedule["cron"], "zone": schedule["zone"]},
    })
}

fn service_of(receiver: &Receiver) -> String {
    service("message.call", receiver)
}

/// Opens a store with this program.
async fn check(store: &StoreAt, expected: &Path) {
    let release = expected.display();
    let expected: Value = serde_json::from_slice(&std::fs::read(expected).unwrap()).unwrap();
    let receiver = Receiver::start().await;
    // The history of an old release has not ended.
    let sets = [service_of(&receiver), "history.keep=\"3650d\"".into()];
    let delayd = Program::start(store, &sets).await;
    for known in expected["unchanged"].as_array().unwrap() {
        let (topic, task) = (&known[0], &known[1]);
        let name = json!({"topic": topic, "task_id": task["task_id"]}).to_string();
        let now = delayd.post("/delay/task/get", name).await.ok().body["task"].clone();
        let known = task.as_object().unwrap().iter().filter(|(_, value)| !value.is_null());
        for (field, value) in known {
            assert_eq!(&now[field], value, "{release}: {field} of {now}");
        }
    }

    let content: Value = serde_json::from_str(CONTENT).unwrap();
    for (topic, id, attempt) in [("pulled", "pulled", 1), ("ended", "leased", 2)] {
        let pulled = delayd
            .post("/delay/task/pull", json!({"topic": topic, "wait": "30s"}).to_string())
            .await
            .ok();
        let got = (&pulled.body["task_id"], &pulled.body["attempt"]);
        assert_eq!(got, (&expected[id], &json!(attempt)), "{release}");
        let text = pulled.body["content"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), content, "{release}");
    }

    let called = expected["called"].as_array().unwrap();
    // The next occurrence of the schedule may be overdue as well.
    let calls = || {
        let calls = receiver.seen().into_iter();
        calls.filter(|call| call.path != "/report").collect::<Vec<_>>()
    };
    let all_came = poll::until(async || calls().len() >= called.len()).await;
    assert!(all_came, "{release}: {} came\n{}", calls().len(), delayd.log());
    let calls = calls();
    let mut ids: Vec<Value> = calls.iter().map(|call| call.id.into()).collect();
    ids.sort_unstable_by_key(Value::as_u64);
    assert_eq!(&ids, called, "{release}");
    for call in &calls {
        let body: Value = serde_json::from_str(&call.body).unwrap();
        assert_eq!(
            (&body["text"], &body["url"]),
            (&json!(CONTENT), &json!(call.path)),
            "{release}"
        );
        assert_eq!(call.headers["x-shop"], "42", "{release}");
    }

    let name = json!({"topic": "orders", "schedule": "report"}).to_string();
    let schedule = delayd.post("/delay/schedule/get", name).await.ok().body;
    for (field, value) in expected["schedule"].as_object().unwrap() {
        assert_eq!(&schedule[field], value, "{release}");
    }
    let new =
        delayd.add(json!({"topic": "orders", "delay": "1h", "mode": "pull", "content": {}})).await;
    assert!(called.iter().all(|id| id.as_u64() < Some(new.id())), "{release}: {new:?}");
    let mut fsck = command(&store.sets());
    fsck.arg("fsck");
    let (code, output, error) = run(fsck).await;
    assert_eq!(code, 0, "{release}: {output}{error}");
}
