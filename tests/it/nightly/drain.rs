//! How long a drain takes in the worst case.

use std::process::Command;
use std::time::{Duration, Instant};

use delayd::model::token::TokenHash;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::disk::{add_until_refused, due, failing, file, set_up, waiting};
use crate::program::{Program, StoreAt, client, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::traces::Collector;
use crate::{Kept, poll};

/// `shutdown.grace` and 5 s, with the default.
const LONGEST: Duration = Duration::from_secs(25);

/// Each step waited for its own time: 31 s in this case, and up to 56 s. Compose kills after 30 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_in_time_while_redis_hangs_and_sends_the_last_spans() {
    let (redis, collector) = (Server::start(), Collector::start().await);
    let receiver = Receiver::answering(|_| Answer::After(Duration::from_secs(10))).await;
    let store = StoreAt::Redis(redis.port(), "drain".into());
    let sets = [
        service("s", &receiver),
        collector.set(),
        "store.redis.timeout=\"20s\"".into(),
        "worker.lease=\"60s\"".into(),
    ];
    let mut delayd = Program::start(&store, &sets).await;
    let task =
        |delay: u64| json!({"topic": "t", "delay": delay, "content": {"sn": "s", "url": "/"}});
    let ids = delayd.add_all(&[task(0), task(3_600)]).await;
    receiver.wait_for(1).await;
    redis.signal("STOP");
    let began = Instant::now();
    delayd.signal("TERM");
    let status = delayd.ended().await;
    let took = began.elapsed();
    redis.signal("CONT");
    assert!(took < LONGEST, "it took {took:?}:\n{}", delayd.log());
    assert!(status.success(), "{status}");
    // The add, and the call that ended during the drain.
    collector.spans_of(ids[0], 2).await;
    println!("The drain took {took:?}");
}

/// A call with this token: its status and its answer.
async fn ask(delayd: &Program, token: &str, path: &str, body: Value) -> (u16, Value) {
    let post = client().post(delayd.url(path)).bearer_auth(token).body(body.to_string());
    let answer = post.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// A receiver, a request and Redis hang. Redis goes on when the drain has given up the request. The
/// audit entries that wait then have time to be written.
#[tokio::test(flavor = "multi_thread")]
async fn audit_entries_are_stored_though_the_steps_before_them_hang() {
    let (redis, receiver) = (Server::start(), Receiver::answering(|_| Answer::Never).await);
    let store = StoreAt::Redis(redis.port(), "drain".into());
    let token = |name, scopes| {
        let hash = TokenHash::of(name).to_hex();
        format!("{{name='{name}', token_sha256='{hash}', scopes=[{scopes}], topics=['*']}}")
    };
    let tokens = [token("all", "'admin', 'produce'"), token("viewer", "'view'")].join(", ");
    let sets = [
        service("s", &receiver),
        format!("http.auth.tokens=[{tokens}]"),
        "shutdown.grace=\"1s\"".into(),
        "store.redis.timeout=\"20s\"".into(),
        "worker.lease=\"60s\"".into(),
    ];
    let mut delayd = Program::start(&store, &sets).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": "s", "url": "/"}});
    assert_eq!(ask(&delayd, "all", "/delay/task/add", task).await.0, 200);
    receiver.wait_for(1).await;
    redis.signal("STOP");
    // While the first entry is being written, the others wait.
    const ENTRIES: usize = 5;
    for _ in 0..ENTRIES {
        let pause = ask(&delayd, "viewer", "/delay/topic/pause", json!({"topic": "t"})).await;
        assert_eq!(pause.0, 403, "{pause:?}");
    }
    let mut unfinished = TcpStream::connect(delayd.address).await.unwrap();
    let head = "POST /delay/task/add HTTP/1.1\r\nhost: [::1]\r\nauthorization: Bearer all\r\n\
        content-length: 99\r\n\r\n{";
    unfinished.write_all(head.as_bytes()).await.unwrap();
    delayd.signal("TERM");
    delayd.wait_for_log("connections did not end").await;
    redis.signal("CONT");
    let status = delayd.ended().await;
    assert!(status.success(), "{status}");

    let delayd = Program::start(&store, &sets).await;
    let mut stored = 0;
    let all_are_stored = async || {
        let (status, page) = ask(&delayd, "all", "/delay/audit/list", json!({})).await;
        stored = page["entries"].as_array().map_or(0, Vec::len);
        status == 200 && stored >= ENTRIES
    };
    assert!(poll::until(all_are_stored).await, "{stored} entries are stored");
}

/// No sync of the embedded store's log ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_in_time_while_the_disk_hangs() {
    let kept = Kept::embedded();
    let receiver = Receiver::answering(|_| Answer::After(Duration::from_secs(10))).await;
    set_up(&kept).await;
    let under = failing("fsync,fdatasync:delay_enter=90000000:when=2+", &file(&kept, "-wal"));
    let sets = [service("message.call", &receiver)];
    let delayd = Program::start_under(under, &kept.store, &sets).await;
    delayd.add(due()).await;
    receiver.wait_for(1).await;
    add_until_refused(&delayd, waiting()).await;
    let began = Instant::now();
    // strace keeps signals from itself.
    let tracer = delayd.pid().to_string();
    assert!(Command::new("pkill").args(["-TERM", "-P", &tracer]).status().unwrap().success());
    // Neither strace nor a kernel whose disk hangs lets the process go before the sync ends.
    delayd.wait_for_log("Stopped").await;
    let took = began.elapsed();
    assert!(took < LONGEST, "it took {took:?}:\n{}", delayd.log());
    println!("The drain took {took:?}");
}
