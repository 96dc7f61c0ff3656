//! A primary that Sentinels watch: it dies, sleeps, is demoted; and writes that wait for replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::{Load, lost};
use crate::program::{self, service};
use crate::receiver::{Receiver, Seen};
use crate::redis_many::{MASTER, Watched, until, until_followed};
use crate::redis_server::{Server, ports};
use crate::{Program, StoreAt};

/// How long a client may take from the election to its first accepted write.
const RESUME: Duration = Duration::from_secs(5);

fn under_sentinels(urls: &[String], further: &[&str]) -> StoreAt {
    let sets = ["store.kind=redis", "store.redis.topology=sentinel"]
        .into_iter()
        .chain(further.iter().copied());
    let mut sets: Vec<String> = sets.map(str::to_owned).collect();
    sets.push(format!("store.redis.urls={urls:?}"));
    sets.push(format!("store.redis.master_name={MASTER}"));
    StoreAt::Set(sets)
}

/// Forces the election of another primary. The Sentinels start no other failover before or after.
fn elect(watched: &Watched, old: u16) -> Instant {
    watched.may_depose(true);
    until("another primary is elected", || watched.primary() != old);
    let elected = Instant::now();
    watched.may_depose(false);
    elected
}

/// kill -9 of the primary under load. What replication had not copied yet is lost, and nothing
/// else.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_primary_is_followed_to_its_successor() {
    let mut watched = Watched::start();
    watched.may_depose(false);
    let receiver = Receiver::start().await;
    let store = under_sentinels(&watched.urls(), &[]);
    let delayd = Arc::new(Program::start(&store, &[service("message.call", &receiver)]).await);
    let load = Load::start(&delayd, "t", "0s", 8);
    load.accepted_after(Instant::now(), 300).await;

    let old = watched.primary();
    let killed = Instant::now();
    watched.on(old).kill();
    let elected = elect(&watched, old);
    let resumed = load.accepted_after(elected, 1).await;
    assert!(resumed - elected < RESUME, "resumed {:?} after the election", resumed - elected);
    // The old primary comes back as a replica.
    watched.on(old).restart();
    until("the old primary is a replica", || watched.on(old).replication().contains("role:slave"));
    let tail = Instant::now();
    load.accepted_after(tail, 200).await;
    let (topic, answers) = load.stop().await;
    assert!(
        answers.iter().filter(|a| a.at > tail).all(|a| a.status == 200),
        "tasks added after the outage were not delivered"
    );
    assert!(answers.iter().all(|a| a.status == 200 || a.status == 503));

    let lost = lost(&delayd, &receiver, &topic, &answers).await;
    let accepted = answers.iter().filter(|a| a.id.is_some()).count();
    println!(
        "failover: {accepted} accepted, {} lost, resumed {:?} after the election",
        lost.len(),
        resumed - elected
    );
    assert!(
        lost.iter().all(|a| a.at < killed + Duration::from_millis(100)),
        "the successor lost a task: {lost:?}"
    );
}

/// The primary sleeps until another is elected, and still believes to be the primary when it wakes
/// up.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_wakes_up_demoted_gets_no_more_tasks() {
    let mut watched = Watched::start();
    watched.may_depose(false);
    let receiver = Receiver::start().await;
    let store = under_sentinels(&watched.urls(), &[]);
    let delayd = Arc::new(Program::start(&store, &[service("message.call", &receiver)]).await);
    let load = Load::start(&delayd, "t", "0s", 4);
    load.accepted_after(Instant::now(), 100).await;
    let old = watched.primary();
    watched.on(old).signal("STOP");
    let elected = elect(&watched, old);
    let resumed = load.accepted_after(elected, 1).await;
    assert!(resumed - elected < RESUME, "resumed {:?} after the election", resumed - elected);
    watched.on(old).signal("CONT");
    load.accepted_after(Instant::now(), 100).await;
    let (topic, answers) = load.stop().await;
    let lost = lost(&delayd, &receiver, &topic, &answers).await;
    println!("sleeping primary: {} lost", lost.len());
    assert!(
        lost.iter().all(|a| a.at < elected),
        "an add after the election went to the old primary: {lost:?}"
    );
}

/// A planned failover breaks no connection by itself. A client that looks only at PING would write
/// to a replica for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_server_is_noticed_though_it_answers() {
    let server = Server::start();
    let delayd = Program::start(&StoreAt::Redis(server.port(), "demoted".into()), &[]).await;
    delayd.wait_until_ready(200).await;
    let nobody = Server::start();
    server.command(&["REPLICAOF", "127.0.0.1", &nobody.port().to_string()]);
    delayd.wait_until_ready(503).await;
    // The look at the server notices it, or the refusal of a write does.
    let log = delayd.log();
    let named = ["is no longer a primary", "is a replica, not the primary"];
    assert!(named.iter().any(|text| log.contains(text)), "{log}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    delayd.wait_until_ready(200).await;
}

/// A primary becomes a replica, stays up, and breaks no connection. It receives nothing from the
/// new primary, so what is added later is found only by polls that have left it.
async fn a_switch_without_broken_connections_is_followed(replica_is_read_only: &str) {
    let old = Server::start();
    let port = old.port().to_string();
    let new = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
    let (new, sentinel) = (Server::with_options(&new), Server::sentinel());
    let watch = |server: &Server| {
        let port = server.port().to_string();
        sentinel.command(&["SENTINEL", "MONITOR", MASTER, "127.0.0.1", &port, "1"]);
    };
    watch(&old);
    let receiver = Receiver::start().await;
    let store = under_sentinels(&[sentinel.url()], &[]);
    let sets = [service("sn", &receiver), "worker.enabled=false".into()];
    let works = Program::start(&store, &sets[..1]).await;
    let takes = Program::start(&store, &sets).await;
    works.wait_until_ready(200).await;
    takes.wait_until_ready(200).await;
    let content = json!({"sn": "sn", "url": "/"});
    let task =
        |topic: &str, delay: &str| json!({"topic": topic, "delay": delay, "content": content});
    // Both servers have this one. It falls due after the switch.
    let before = takes.add(task("before", "10s")).await.id();
    until_followed(&old, 1);

    new.command(&["REPLICAOF", "NO", "ONE"]);
    old.command(&["CONFIG", "SET", "replica-read-only", replica_is_read_only]);
    old.command(&["REPLICAOF", "127.0.0.1", &ports::take().to_string()]);
    sentinel.command(&["SENTINEL", "REMOVE", MASTER]);
    watch(&new);
    let switched = Instant::now();
    until("no connection leads to the old primary", || users(&old).is_empty());
    let left = switched.elapsed();
    assert!(left < RESUME, "the old primary was in use for {left:?}");

    let ran_scripts = || old.command(&["INFO", "commandstats"]).contains("cmdstat_evalsha:");
    assert!(ran_scripts(), "before the switch");
    old.command(&["CONFIG", "RESETSTAT"]);
    // The topic is new, and the moment so far that no message tells of it.
    let added = takes.post_until_confirmed("/delay/task/add", &task("after", "3s")).await;
    let after = added.ok().id();
    let seen = receiver.wait_for(2).await;
    works.wait_for_state("before", before, "delivered").await;
    works.wait_for_state("after", after, "delivered").await;
    let mut called: Vec<u64> = receiver.seen().iter().map(|call| call.id).collect();
    called.sort_unstable();
    assert_eq!(called, [before, after], "each task is called once");
    let late = seen.iter().map(Seen::lateness_ms).max().unwrap();
    println!("the old primary was in use for {left:?}; the calls were {late} ms late at most");
    assert!(late < RESUME.as_millis() as i64, "a call was {late} ms late");
    assert!(!ran_scripts(), "after the switch");
}

/// The connections of delayd to a server.
fn users(server: &Server) -> Vec<String> {
    let clients = ["normal", "pubsub"].map(|of| server.command(&["CLIENT", "LIST", "TYPE", of]));
    let is_users = |client: &&str| {
        !client.is_empty() && !client.contains("cmd=client") && !client.contains("name=sentinel-")
    };
    clients.iter().flat_map(|list| list.lines()).filter(is_users).map(str::to_owned).collect()
}

/// The replica refuses the heartbeats in the polls.
#[tokio::test(flavor = "multi_thread")]
async fn polls_leave_a_primary_that_becomes_a_replica() {
    a_switch_without_broken_connections_is_followed("yes").await;
}

/// The replica refuses nothing: only the check of the server shows what it is.
#[tokio::test(flavor = "multi_thread")]
async fn polls_leave_a_primary_that_becomes_a_writable_replica() {
    a_switch_without_broken_connections_is_followed("no").await;
}

/// An add counts when enough replicas have it. While they are away adds are refused, and existing
/// tasks are delivered.
#[tokio::test(flavor = "multi_thread")]
async fn an_add_that_too_few_replicas_have_is_not_confirmed() {
    let watched = Watched::start();
    let receiver = Receiver::start().await;
    let store = under_sentinels(&watched.urls(), &["store.redis.wait_replicas=2"]);
    let delayd = Program::start(&store, &[service("message.call", &receiver)]).await;
    let task = |delay: &str| {
        json!({
            "topic": "t", "delay": delay, "content": {"sn": "message.call", "url": "/"},
        })
    };
    delayd.wait_until_ready(200).await;
    let ids = delayd.add_all(&vec![task("1500ms"); 20]).await;
    let primary = watched.primary();
    let replica = watched.servers.iter().find(|server| server.port() != primary).unwrap();
    replica.signal("STOP");
    let refused = delayd.post("/delay/task/add", task("0s").to_string()).await;
    assert_eq!((refused.status, &refused.body["dm_error"]), (503, &json!(2003)), "{refused:?}");
    delayd.wait_until_ready(503).await;
    for id in ids {
        delayd.wait_for_state("t", id, "delivered").await;
    }
    replica.signal("CONT");
    delayd.wait_until_ready(200).await;
    let id = delayd.add(task("0s")).await.id();
    delayd.wait_for_state("t", id, "delivered").await;
}

/// A failover used to undo a cancel that was answered OK, since only adds waited for replicas.
#[tokio::test(flavor = "multi_thread")]
async fn confirmed_calls_outlast_a_failover() {
    let mut watched = Watched::start();
    let store = under_sentinels(&watched.urls(), &["store.redis.wait_replicas=1"]);
    let delayd = Program::start(&store, &[]).await;
    delayd.wait_until_ready(200).await;
    let add = async |delay: &str| {
        delayd.add(json!({"topic": "t", "delay": delay, "content": {}})).await.id()
    };
    let due = add("0s").await;
    let taken = delayd
        .post("/delay/task/pull", json!({"topic": "t", "lease": "10m"}).to_string())
        .await
        .ok()
        .body;
    assert_eq!(taken["task_id"], due);
    let receipt = &taken["receipt"];
    // Once this add is confirmed, a replica has the lease as well.
    let late = add("1h").await;

    let old = watched.primary();
    watched.others(old).for_each(|replica| replica.signal("STOP"));
    watched.on(old).command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let leased = json!({"topic": "t", "task_id": due, "receipt": receipt});
    let with = |name: &str, value: &str| {
        let mut body = leased.clone();
        body[name] = json!(value);
        body
    };
    let calls = [
        ("task/extend", with("lease", "11m")),
        ("task/nack", with("delay", "1h")),
        ("task/ack", leased.clone()),
        ("task/update", json!({"topic": "t", "task_id": late, "delay": "2h"})),
        ("task/cancel", json!({"topic": "t", "task_id": late})),
        ("topic/set", json!({"topic": "t", "quota": 100})),
        ("topic/pause", json!({"topic": "t"})),
        ("topic/resume", json!({"topic": "t"})),
        ("topic/purge", json!({"topic": "t", "confirm": "t"})),
    ];
    for (path, body) in calls {
        let answer = delayd.post(&format!("/delay/{path}"), body.to_string()).await;
        assert_eq!(
            (answer.status, &answer.body["dm_error"]),
            (503, &json!(2003)),
            "{path}: {answer:?}"
        );
    }

    watched.on(old).kill();
    watched.others(old).for_each(|replica| replica.signal("CONT"));
    elect(&watched, old);
    until("the successor has a replica", || {
        watched.on(watched.primary()).replication().contains("state=online")
    });
    delayd.wait_until_ready(200).await;
    // None of it has happened there, and no caller was told that it had.
    assert_eq!(delayd.task("t", late).await["state"], "scheduled");
    assert_eq!(delayd.task("t", due).await["state"], "leased");
    delayd
        .post("/delay/task/cancel", json!({"topic": "t", "task_id": late}).to_string())
        .await
        .ok();
    delayd.post("/delay/task/ack", leased.to_string()).await.ok();
    assert_eq!(delayd.task("t", due).await["state"], "delivered");
}

async fn check(store: &StoreAt) -> (i32, String, String) {
    let mut command = program::command(&store.sets());
    command.arg("check");
    program::run(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_sentinels_are_named() {
    let (server, sentinel) = (Server::start(), Server::sentinel());
    let port = server.port().to_string();
    let store = under_sentinels(&[sentinel.url()], &[]);
    let (code, _, says) = check(&store).await;
    assert_eq!(code, 78, "{says}");
    assert!(says.contains("no sentinel knows a primary called \"main\""), "{says}");

    sentinel.command(&["SENTINEL", "MONITOR", MASTER, "127.0.0.1", &port, "1"]);
    let (code, says, _) = check(&store).await;
    assert!(code == 0 && says.contains(&format!("1 primary: 127.0.0.1:{port}")), "{says}");

    // A port of this machine where nothing listens any more.
    let gone = Server::start().url();
    let (code, _, says) = check(&under_sentinels(std::slice::from_ref(&gone), &[])).await;
    assert!(code == 1 && says.contains("no sentinel answers"), "{code}: {says}");
    // The first does not answer, and the second does.
    let (code, says, _) = check(&under_sentinels(&[gone, sentinel.url()], &[])).await;
    assert_eq!(code, 0, "{says}");

    let alone = StoreAt::Set(vec![
        "store.kind=redis".into(),
        format!("store.redis.urls=[{:?}]", sentinel.url()),
    ]);
    let (code, _, says) = check(&alone).await;
    assert!(
        code == 78 && says.contains("a sentinel: set store.redis.topology to \"sentinel\""),
        "{code}: {says}"
    );
}

/// A Sentinel that was cut off with the old primary names that primary until the others have told
/// it of the election. delayd used to believe it, and wrote for up to ten seconds to a server that
/// was about to lose these writes.
#[tokio::test(flavor = "multi_thread")]
async fn the_sentinel_that_knows_of_the_last_election_is_believed() {
    let (old, new) = (Server::start(), Server::start());
    let watching = |server: &Server, epoch: u32| {
        let port = server.port();
        Server::sentinel_with(&format!(
            "sentinel monitor {MASTER} 127.0.0.1 {port} 1\nsentinel config-epoch {MASTER} {epoch}\n"
        ))
    };
    let (cut_off, informed) = (watching(&old, 6), watching(&new, 7));
    for urls in [[cut_off.url(), informed.url()], [informed.url(), cut_off.url()]] {
        let (code, says, error) = check(&under_sentinels(&urls, &[])).await;
        assert!(code == 0 && says.contains(&format!("127.0.0.1:{}", new.port())), "{says}{error}");
    }
}

/// The servers' login is the one of the URL, and the Sentinels' own login is in its query. Neither
/// is ever shown.
#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_servers_have_logins_of_their_own() {
    let (server, sentinel) = (Server::start(), Server::sentinel());
    sentinel.command(&[
        "SENTINEL",
        "MONITOR",
        MASTER,
        "127.0.0.1",
        &server.port().to_string(),
        "1",
    ]);
    let allow_all = ["on", "~*", "&*", "+@all"];
    server.command(&[&["ACL", "SETUSER", "tasks", ">hush-tasks"][..], &allow_all].concat());
    server.command(&["ACL", "SETUSER", "default", "off"]);
    sentinel.command(&[&["ACL", "SETUSER", "watch", ">hush-watch"][..], &allow_all].concat());
    sentinel.command(&["ACL", "SETUSER", "default", "off"]);
    let url = |login: &str, query: &str| {
        vec![format!("redis://{login}@127.0.0.1:{}{query}", sentinel.port())]
    };
    let query = "?sentinel_username=watch&sentinel_password=hush-watch";
    let (code, says, error) = check(&under_sentinels(&url("tasks:hush-tasks", query), &[])).await;
    assert!(code == 0 && !says.contains("hush"), "{says}{error}");
    for url in [url("tasks:hush", query), url("tasks:hush-tasks", "")] {
        let (code, says, error) = check(&under_sentinels(&url, &[])).await;
        assert!(code == 78 && error.contains("refuses the login"), "{code}: {says}{error}");
        assert!(!says.contains("hush") && !error.contains("hush"), "{says}{error}");
    }
}
