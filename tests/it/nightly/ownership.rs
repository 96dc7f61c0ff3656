//! Several instances on one Redis divide the looking at lanes: what that costs, and how soon tasks
//! are called all the same.

use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::poll;
use crate::program::{Program, StoreAt, service};
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::redis_server::Server;

/// The longest lateness of a task whose instances are all well: no poll is waited for. The rest is
/// margin for a busy machine.
const SOON_MS: i64 = 700;
/// The longest lateness of a task whose service only one of three instances knows: its turn comes
/// every 4 s. The rest is as after a death, when the turns come every 2 s.
const KNOWN_BY_ONE_OF_THREE_MS: i64 = AFTER_DEATH_MS + 2_000;
/// The longest lateness after the death of an instance: docs/adr/0022.
const AFTER_DEATH_MS: i64 = 3_500;

fn store(server: &Server) -> StoreAt {
    StoreAt::Redis(server.port(), "it".into())
}

fn topic(n: usize, topics: usize) -> String {
    format!("t{}", n % topics)
}

fn task(topic: &str, sn: &str, delay: &str) -> Value {
    json!({"topic": topic, "delay": delay, "content": {"sn": sn, "url": "/"}})
}

fn scripts(server: &Server) -> u64 {
    server.calls("evalsha") + server.calls("fcall")
}

/// Starts instances, and waits until each knows all of them.
async fn fleet(server: &Server, count: usize, sets: &[String]) -> Vec<Program> {
    let mut fleet = Vec::new();
    for _ in 0..count {
        fleet.push(Program::start(&store(server), sets).await);
    }
    for one in &fleet {
        assert!(poll::until(async || known(one).await == count).await, "they find each other");
    }
    // The next poll of each announces that it divides the lanes. The others read that a second
    // later, and then look at their own lanes only.
    one_second(&fleet[0]).await;
    one_second(&fleet[0]).await;
    fleet
}

async fn known(program: &Program) -> usize {
    let answer = program.post("/delay/instance/list", "{}").await.ok();
    let instances = answer.body["instances"].as_array().unwrap();
    instances.iter().filter(|one| one["workers"] == true).count()
}

/// Waits for a second by the clock of the store.
async fn one_second(program: &Program) {
    program.lives_for(Duration::from_secs(1)).await;
}

fn latest(seen: &[Seen]) -> i64 {
    seen.iter().map(Seen::lateness_ms).max().unwrap()
}

/// Script calls for each of 20 tasks a second, without those of idle instances.
async fn scripts_per_task(instances: usize) -> f64 {
    const TASKS: usize = 160;
    const TOPICS: usize = 4;
    let server = Server::start();
    let receiver = Receiver::start().await;
    let fleet = fleet(&server, instances, &[service("sn", &receiver)]).await;
    let far: Vec<Value> = (0..TOPICS).map(|n| task(&topic(n, TOPICS), "sn", "10h")).collect();
    fleet[0].add_all(&far).await;
    one_second(&fleet[0]).await;
    let (before, since) = (scripts(&server), Instant::now());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle_a_second = (scripts(&server) - before) as f64 / since.elapsed().as_secs_f64();

    let delay = |n: usize| format!("{}ms", 2_000 + 50 * n);
    let tasks: Vec<Value> = (0..TASKS).map(|n| task(&topic(n, TOPICS), "sn", &delay(n))).collect();
    fleet[0].add_all(&tasks).await;
    assert!(receiver.seen().len() < TASKS / 4, "the machine took long to add {TASKS} tasks");
    let (before, since, called) = (scripts(&server), Instant::now(), receiver.seen().len());
    let seen = receiver.wait_for(TASKS).await;
    let id = seen.last().unwrap().id;
    fleet[0].wait_for_state(&topic(TASKS - 1, TOPICS), id, "delivered").await;
    let idle = idle_a_second * since.elapsed().as_secs_f64();
    let a_task = ((scripts(&server) - before) as f64 - idle) / (TASKS - called) as f64;
    println!("{instances} instances: {a_task:.2} scripts a task, {idle_a_second:.1}/s when idle");
    assert!(latest(&seen) < SOON_MS, "a task was {} ms late", latest(&seen));
    a_task
}

/// A claim and a settle. With four instances it was a claim of each.
#[tokio::test(flavor = "multi_thread")]
async fn four_instances_send_hardly_more_scripts_for_a_task_than_one() {
    let one = scripts_per_task(1).await;
    let four = scripts_per_task(4).await;
    assert!(one <= 2.2, "{one} scripts a task");
    assert!(four <= 2.4, "{four} scripts a task");
}

/// Each lane is looked at once a second by its owner, and once in two seconds by another.
#[tokio::test(flavor = "multi_thread")]
async fn idle_lanes_are_looked_at_by_their_owners_and_in_turn() {
    const TOPICS: usize = 600;
    const SECONDS: u64 = 6;
    let server = Server::start();
    let receiver = Receiver::start().await;
    let fleet = fleet(&server, 3, &[service("sn", &receiver)]).await;
    let far: Vec<Value> = (0..TOPICS).map(|n| task(&topic(n, TOPICS), "sn", "10h")).collect();
    fleet[0].add_all(&far).await;
    one_second(&fleet[0]).await;
    // The script of a poll runs EXISTS once for each lane.
    let (before, since) = (server.calls("exists"), Instant::now());
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    let looks = (server.calls("exists") - before) as f64 / since.elapsed().as_secs_f64();
    let a_lane = looks / TOPICS as f64;
    println!("each lane is looked at {a_lane:.2} times a second");
    // 3/2, if all polls come in time. All three would make 3.
    assert!((1.2..=1.8).contains(&a_lane), "{a_lane} looks a second");
}

/// Each lane has its owner's attention at once, whatever instance takes the add.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_added_through_any_instance_is_called_at_once() {
    const TOPICS: usize = 8;
    let server = Server::start();
    let receiver = Receiver::start().await;
    let fleet = fleet(&server, 3, &[service("sn", &receiver)]).await;
    for n in 0..TOPICS {
        fleet[0].add(task(&topic(n, TOPICS), "sn", "0s")).await;
    }
    receiver.wait_for(TOPICS).await;
    one_second(&fleet[0]).await;
    for round in 0..6 {
        let delay = if round % 2 == 0 { "0s" } else { "150ms" };
        for n in 0..TOPICS {
            fleet[(n + round) % 3].add(task(&topic(n, TOPICS), "sn", delay)).await;
        }
    }
    let seen = receiver.wait_for(7 * TOPICS).await;
    let mut lateness: Vec<i64> = seen[TOPICS..].iter().map(Seen::lateness_ms).collect();
    lateness.sort_unstable();
    // Polls would make half of them at the instances that do not own them 500 ms late.
    let p80 = lateness[lateness.len() * 4 / 5];
    assert!(p80 < 250, "{p80} ms at p80 of {lateness:?}");
}

/// In a rolling deployment only the new instances know a new service.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_owner_does_not_know_is_called_by_another_instance() {
    const TOPICS: usize = 8;
    let server = Server::start();
    let receiver = Receiver::start().await;
    let _old = fleet(&server, 2, &[service("sn", &receiver)]).await;
    let new = Program::start(&store(&server), &[service("new", &receiver)]).await;
    assert!(poll::until(async || known(&new).await == 3).await);
    one_second(&new).await;
    let tasks: Vec<Value> = (0..3 * TOPICS).map(|n| task(&topic(n, TOPICS), "new", "1s")).collect();
    new.add_all(&tasks).await;
    let seen = receiver.wait_for(tasks.len()).await;
    println!("what the owner does not know is {} ms late", latest(&seen));
    assert!(latest(&seen) < KNOWN_BY_ONE_OF_THREE_MS, "{} ms", latest(&seen));
}

/// The calls at each instance of one lane's burst, more than an instance may call at a time, and
/// how late the last of them was.
async fn burst(instances: usize) -> (Vec<usize>, i64) {
    const TASKS: usize = 1_200;
    let server = Server::start();
    let slow = |_: &Seen| Answer::After(Duration::from_millis(100));
    let limit = "services.sn.concurrency=10".to_owned();
    let (mut fleet, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..instances {
        let receiver = Receiver::answering(slow).await;
        let sets = [service("sn", &receiver), limit.clone()];
        fleet.push(Program::start(&store(&server), &sets).await);
        receivers.push(receiver);
    }
    for one in &fleet {
        assert!(poll::until(async || known(one).await == instances).await);
    }
    one_second(&fleet[0]).await;
    one_second(&fleet[0]).await;
    fleet[0].add_all(&vec![task("t", "sn", "2s"); TASKS]).await;
    let counts = || receivers.iter().map(|receiver| receiver.seen().len()).collect::<Vec<_>>();
    assert!(poll::until(async || counts().iter().sum::<usize>() >= TASKS).await);
    let all = receivers.iter().flat_map(Receiver::seen).collect::<Vec<_>>();
    assert_eq!(all.iter().map(|call| call.id).collect::<HashSet<u64>>().len(), TASKS);
    (counts(), latest(&all))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_uses_both_instances() {
    let (_, alone) = burst(1).await;
    let (counts, both) = burst(2).await;
    println!("one instance: {alone} ms; two: {both} ms, {counts:?} calls");
    assert!(counts.iter().all(|count| *count > 240), "{counts:?}");
    // Half the time, and half of the up to 3 s until the other instance finds the lane overdue.
    assert!(both * 10 <= alone * 7, "one instance takes {alone} ms, two take {both} ms");
}

/// With so many, each of three instances owns some: one without any is a chance of 1 in 5,000.
const STREAM_TOPICS: usize = 24;

/// Adds tasks of several topics that fall due in each 50 ms.
async fn stream(program: &Program, from_ms: usize, count: usize) -> usize {
    let delay = |n: usize| format!("{}ms", from_ms + 50 * n);
    let tasks: Vec<Value> =
        (0..count).map(|n| task(&topic(n, STREAM_TOPICS), "sn", &delay(n))).collect();
    program.add_all(&tasks).await.len()
}

/// How late the calls are that were due in a time.
fn latest_of(seen: &[Seen], due: Range<i64>) -> i64 {
    let seen: Vec<Seen> = seen.iter().filter(|call| due.contains(&call.due_ms)).cloned().collect();
    latest(&seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lanes_of_a_killed_instance_have_new_owners_soon() {
    let server = Server::start();
    let receiver = Receiver::start().await;
    let sets = [service("sn", &receiver), "worker.lease=\"2s\"".into(), short_timeout()];
    let mut fleet = fleet(&server, 3, &sets).await;
    let count = stream(&fleet[0], 1_000, 200).await;
    receiver.wait_for(20).await;
    let killed = now_ms();
    fleet.pop().unwrap().kill();
    let seen = receiver.wait_for(count).await;
    let during = latest_of(&seen, killed - 500..killed + AFTER_DEATH_MS);
    let after = latest_of(&seen, killed + AFTER_DEATH_MS..i64::MAX);
    println!("after the kill: {during} ms late; from {AFTER_DEATH_MS} ms on: {after} ms late");
    assert!(during <= AFTER_DEATH_MS, "{during} ms late after a kill");
    assert!(after < SOON_MS, "{after} ms late long after the kill");
}

/// Its lanes move when its drain begins, although calls still run.
#[tokio::test(flavor = "multi_thread")]
async fn the_lanes_of_an_instance_that_drains_have_new_owners_at_once() {
    let server = Server::start();
    let hangs = task("hangs", "hangs", "0s");
    let hanging = Receiver::answering(|_| Answer::After(Duration::from_secs(4))).await;
    let receiver = Receiver::start().await;
    let sets = [service("sn", &receiver), service("hangs", &hanging)];
    let mut fleet = fleet(&server, 3, &sets).await;
    // Calls that run for 4 s, in some lanes of each instance.
    fleet[0].add_all(&vec![hangs; 6]).await;
    let count = stream(&fleet[0], 1_000, 120).await;
    receiver.wait_for(20).await;
    let stopped = now_ms();
    fleet[2].signal("TERM");
    let seen = receiver.wait_for(count).await;
    let late = latest_of(&seen, stopped - 500..i64::MAX);
    println!("after the begin of a drain: {late} ms late");
    assert!(late < SOON_MS, "{late} ms late in a drain");
    assert!(fleet[2].ended().await.success());
}

fn short_timeout() -> String {
    "callback.timeout=\"800ms\"".into()
}
