//! Many hosts that callers name do not want calls now. Their due tasks wait in one lane, and delay
//! nothing else.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::processor_time;
use crate::program::{Program, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(twenty_thousand_blocked_hosts_delay_nothing_else);

const HOSTS: usize = 20_000;
/// How many healthy tasks are added for one measurement, half of them beside the blocked hosts.
const HEALTHY: usize = 400;
/// The time between two of them.
const PACE: Duration = Duration::from_millis(20);
/// What timers and the scheduler of a machine add to a lateness.
const JITTER: Duration = Duration::from_millis(20);
/// How long nothing happens while the processor time is measured.
const IDLE: Duration = Duration::from_secs(10);
/// The share of one core that may be used meanwhile, in hundredths. A debug build takes about ten
/// times as long for the same work.
const IDLE_SHARE: u128 = if cfg!(debug_assertions) { 20 } else { 5 };

/// The 99th percentiles of one measurement.
#[derive(Debug)]
struct Figures {
    /// Beside the blocked hosts, and in another topic.
    beside: Duration,
    elsewhere: Duration,
    add: Duration,
}

/// The calls of a healthy service in the same topic came 250 ms late, and 85 % of a core was used
/// while nothing happened. A debug build called nothing for 70 seconds.
async fn twenty_thousand_blocked_hosts_delay_nothing_else(kept: Kept) {
    let healthy = Receiver::start().await;
    let busy = vec![("retry-after", "900"), ("connection", "close")];
    let blocked =
        Receiver::answering_at([0, 0, 0, 0].into(), move |_| Answer::With(429, busy.clone(), ""))
            .await;
    let sets = [
        service("healthy", &healthy),
        "callback.allow_hosts=[\"127.*\"]".into(),
        "callback.deny_private_hosts=false".into(),
        "callback.retry.max_attempts=1".into(),
    ];
    let delayd = kept.start_as_shipped(&sets).await;
    let without = measure(&delayd, &healthy).await;
    println!("without blocked hosts: {without:?}");

    let task = |n: usize| {
        let (port, content) = (blocked.address.port(), format!("{}.{}", n / 250, 1 + n % 250));
        let url = format!("http://127.1.{content}:{port}/");
        json!({"topic": "t", "delay": 0, "content": {"url": url}})
    };
    let tasks: Vec<Value> = (0..HOSTS).map(task).collect();
    // The first call to each host blocks it. They come in parts, because a host is forgotten once
    // nothing is due for it.
    for (part, tasks) in tasks.chunks(1_000).enumerate() {
        delayd.add_all(tasks).await;
        blocked.wait_for((part + 1) * tasks.len()).await;
    }
    let began = Instant::now();
    delayd.add_all(&tasks).await;
    println!("{HOSTS} tasks for blocked hosts were added in {:?}", began.elapsed());

    let with = measure(&delayd, &healthy).await;
    let before = processor_time(delayd.pid());
    tokio::time::sleep(IDLE).await;
    let spent = Duration::from_millis(10 * (processor_time(delayd.pid()) - before));
    let share = spent.as_millis() * 100 / IDLE.as_millis();
    println!("with blocked hosts: {with:?}; {share} % of a core while nothing happened");

    assert_eq!(blocked.seen().len(), HOSTS, "a blocked host was called");
    let is_near = |with: Duration, without: Duration| with <= 2 * without + JITTER;
    assert!(is_near(with.beside, without.beside), "{with:?}, before {without:?}");
    assert!(is_near(with.elsewhere, without.elsewhere), "{with:?}, before {without:?}");
    assert!(is_near(with.add, without.add), "{with:?}, before {without:?}");
    assert!(share < IDLE_SHARE, "{share} % of a core were used while nothing happened");
}

/// Adds healthy tasks at a steady pace, in two topics in turn.
async fn measure(delayd: &Program, receiver: &Receiver) -> Figures {
    let before = receiver.seen().len();
    let mut ticks = tokio::time::interval(PACE);
    let (mut adds, mut ids) = (Vec::new(), [Vec::new(), Vec::new()]);
    for n in 0..HEALTHY {
        ticks.tick().await;
        let topic = ["t", "elsewhere"][n % 2];
        let content = json!({"sn": "healthy", "url": "/"});
        let began = Instant::now();
        let added = delayd.add(json!({"topic": topic, "delay": "200ms", "content": content})).await;
        adds.push(began.elapsed());
        ids[n % 2].push(added.id());
    }
    let seen = receiver.wait_for(before + HEALTHY).await;
    let [beside, elsewhere] = ids.map(|ids| {
        let calls = seen[before..].iter().filter(|call| ids.contains(&call.id));
        let late = calls.map(|call| u64::try_from(call.lateness_ms()).unwrap_or_default());
        p99(late.map(Duration::from_millis).collect())
    });
    Figures { beside, elsewhere, add: p99(adds) }
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() * 99 / 100]
}
