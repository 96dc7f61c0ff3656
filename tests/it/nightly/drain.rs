//! How long a drain takes in the worst case.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::program::{Program, StoreAt, service};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::traces::Collector;

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
