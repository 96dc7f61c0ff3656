//! Measures the costs of [`super::costs`] and the memory of tasks, with the real scripts on a real
//! Redis.

use std::collections::BTreeMap;
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Options, State};
use delayd::store::redis::{Params, Redis};
use delayd::store::{
    Asker, Claim, Claimed, Delivery, Grant, Instance, Intake, LockToken, Look, Maintenance, Moment,
    NewTask, SampleQuery, Sampling, Settle, TopicEntry, Transition, Want,
};

use crate::redis_server::Server;

/// How often each script is called for one size.
const REPEATS: usize = 300;
/// The numbers of tasks, lanes or instances of one call.
const TASKS: [usize; 4] = [1, 4, 16, 64];
const LANES: [usize; 3] = [1, 16, 64];
const LANES_SAMPLED: [usize; 3] = [1, 4, 16];
const INSTANCES: [usize; 3] = [1, 10, 50];
/// Topics of one lane each. The calls go over all of them in turn, so that the data of a call is
/// not that of the call before.
const TOPICS: usize = 300;

/// A topic whose lane is locked.
const LOCKED: usize = TOPICS;

const DUE: Moment = Moment::After(Duration::ZERO);
const LATER: Moment = Moment::After(Duration::from_secs(3_600));

/// A Redis with the store of one instance.
struct Bench {
    server: Server,
    store: Redis,
}

/// A script call in the log of Redis.
struct Logged {
    script: String,
    micros: f64,
}

fn topic(n: usize) -> TopicEntry {
    TopicEntry { topic: format!("topic-{n}").parse().unwrap(), shards: 1 }
}

fn lane(n: usize) -> Lane {
    Lane { topic: topic(n).topic, shard: 0 }
}

fn destination() -> Destination {
    "service-0".parse().unwrap()
}

impl Bench {
    async fn new() -> Self {
        let log = ["--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000"];
        let server = Server::with_options(&log);
        let params = Params::standalone(server.url());
        let store = Redis::connect(params).await.unwrap();
        Self { server, store }
    }

    /// The bytes that Redis uses.
    fn memory(&self) -> f64 {
        let info = self.server.command(&["INFO", "memory"]);
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        used.expect("Redis knows it").trim().parse().unwrap()
    }

    /// The script calls since the last call of this function, the earliest first.
    fn take_log(&self) -> Vec<Logged> {
        // Each entry has a number, a time, its microseconds and its arguments, one a line.
        let log = self.server.command(&["SLOWLOG", "GET", "-1"]);
        self.server.command(&["SLOWLOG", "RESET"]);
        let lines: Vec<&str> = log.lines().collect();
        let calls = lines.windows(3).filter(|lines| lines[1].eq_ignore_ascii_case("evalsha"));
        let mut calls: Vec<_> = calls
            .map(|lines| Logged { script: lines[2].into(), micros: lines[0].parse().unwrap() })
            .collect();
        calls.reverse();
        calls
    }

    /// The names that Redis gives to the scripts.
    async fn scripts(&self) -> Vec<(&'static str, String)> {
        let mut scripts = Vec::new();
        let mut note = |kind| {
            let last = self.take_log().pop().expect("a script was called");
            scripts.push((kind, last.script));
        };
        self.take_log();
        self.add(0, 1, DUE, 200).await;
        note("add");
        let Claimed::Granted(grant) = self.claim(0, "a", 1, false).await else { unreachable!() };
        note("claim");
        self.settle(0, grant).await;
        note("settle");
        self.poll(0, 1).await;
        note("poll");
        self.sample(0, 1).await;
        note("sample");
        self.look(0).await;
        note("look");
        scripts
    }

    /// Adds tasks with contents of so many bytes in all.
    async fn add(&self, n: usize, count: usize, moment: Moment, bytes: usize) {
        let head = r#"{"sn":"service-0","url":"/due","pad":""#;
        let pad = "x".repeat(bytes.saturating_sub(head.len() + 2));
        let task = NewTask {
            topic: topic(n),
            destination: destination(),
            moment,
            options: Options::default(),
            content: format!("{head}{pad}\"}}"),
            idempotency: None,
            quota: None,
        };
        for added in self.store.add(vec![task; count]).await {
            added.unwrap();
        }
    }

    async fn claim(&self, n: usize, holder: &str, slots: usize, more: bool) -> Claimed {
        let claim = Claim {
            lane: lane(n),
            wants: vec![Want { destination: destination(), slots }],
            lease: Duration::from_secs(300),
            holder: Some(LockToken(holder.into())),
            more,
            after: None,
            in_hand: 0,
            misfires: Vec::new(),
        };
        self.store.claim(claim).await.unwrap()
    }

    async fn settle(&self, n: usize, grant: Grant) {
        let settle = |id| Settle {
            lane: lane(n),
            id,
            receipt: grant.receipt.clone(),
            transition: Transition::Delivered { outcome: "200 OK".into() },
        };
        let settles = grant.tasks.iter().map(|task| settle(task.id)).collect();
        for settled in self.store.settle(Asker::Worker, settles).await {
            settled.unwrap();
        }
    }

    async fn poll(&self, from: usize, lanes: usize) {
        let lanes = (from..from + lanes).map(|n| lane(n % TOPICS)).collect();
        self.store.next_due(lanes).await.unwrap();
    }

    async fn sample(&self, from: usize, lanes: usize) {
        let late_after = vec![Duration::from_secs(5); lanes];
        let lanes = (from..from + lanes).map(|n| lane(n % TOPICS)).collect();
        let query = SampleQuery {
            lanes,
            late_after,
            within: vec![Duration::ZERO],
            ..SampleQuery::default()
        };
        self.store.sample(query).await.unwrap();
    }

    /// The heartbeat of an instance. The other commands of a look take a microsecond each.
    async fn look(&self, instance: usize) {
        let own = Instance { id: format!("{instance:016x}"), ..Instance::default() };
        self.store.look(Look { heartbeat: Some(own), ..Look::default() }).await.instances.unwrap();
    }
}

/// The fixed part and the part for each item of a straight line through points, by least squares of
/// the relative errors: the small calls, of which there are many, count as much as the large ones.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let weight = 1.0 / (y * y);
        w += weight;
        wx += weight * x;
        wy += weight * y;
        wxx += weight * x * x;
        wxy += weight * x * y;
    }
    let each = (w * wxy - wx * wy) / (w * wxx - wx * wx);
    ((wy - each * wx) / w, each)
}

fn print_line(name: &str, points: &[(f64, f64)]) {
    let (fixed, each) = line(points);
    let points: Vec<_> = points.iter().map(|(n, micros)| format!("{n}: {micros:.1}")).collect();
    println!("{name:<14} {fixed:6.1} + {each:5.2} n µs   ({})", points.join(", "));
}

/// Different calls in turn, as in a busy Redis: a script that follows itself finds its code and
/// data in the processor's cache, and takes half as long.
pub(crate) async fn measure_the_costs() {
    let bench = Bench::new().await;
    for n in 0..TOPICS {
        bench.add(n, 64, DUE, 200).await;
        let Claimed::Granted(grant) = bench.claim(n, "a", 64, false).await else { unreachable!() };
        bench.settle(n, grant).await;
        bench.add(n, 1, LATER, 200).await;
    }
    let scripts = bench.scripts().await;
    let mut times = Times::default();
    for (round, tasks) in TASKS.into_iter().enumerate() {
        let size = round.min(LANES.len() - 1);
        let (lanes, sampled, instances) = (LANES[size], LANES_SAMPLED[size], INSTANCES[size]);
        // The lock lasts two seconds, longer than a round usually takes.
        bench.add(LOCKED, 2, DUE, 200).await;
        bench.claim(LOCKED, "a", 1, true).await;
        bench.take_log();
        for at in 0..REPEATS {
            let [one, other] = [at, at + 97].map(|n| n % TOPICS);
            bench.add(one, tasks, DUE, 200).await;
            bench.claim(other, "a", 64, false).await;
            bench.poll(at, lanes).await;
            let Claimed::Granted(grant) = bench.claim(one, "a", tasks, false).await else {
                unreachable!()
            };
            bench.look(at % instances).await;
            bench.settle(one, grant).await;
            bench.sample(at, sampled).await;
            bench.claim(LOCKED, "b", 64, false).await;
        }
        let kinds = [("empty claim", 0), ("claim", tasks), ("refused claim", 0)];
        let mut claims = kinds.into_iter().cycle();
        for call in bench.take_log() {
            let kind = scripts.iter().find(|(_, script)| *script == call.script);
            match kind.map(|(kind, _)| *kind) {
                Some("claim") => {
                    let (kind, tasks) = claims.next().expect("it never ends");
                    times.took(kind, tasks, call.micros);
                }
                Some(kind @ ("add" | "settle")) => times.took(kind, tasks, call.micros),
                Some(kind @ "poll") => times.took(kind, lanes, call.micros),
                Some(kind @ "sample") => times.took(kind, sampled, call.micros),
                Some(kind @ "look") => times.took(kind, instances, call.micros),
                Some(kind) => unreachable!("{kind} is not called here"),
                // Draws ids.
                None => {}
            }
        }
    }
    bench.take_log();
    for at in 0..TOPICS {
        let before = UnixMillis(i64::MAX / 2_000);
        let purged = bench.store.purge(&lane(at), 0, State::Delivered, before, 64).await;
        assert_eq!(purged.unwrap(), 64);
    }
    bench.take_log().iter().for_each(|call| times.took("purge of 64", 0, call.micros));
    times.print();
}

/// The microseconds of each kind of call, for each number of items.
#[derive(Default)]
struct Times(BTreeMap<&'static str, BTreeMap<usize, Vec<f64>>>);

impl Times {
    fn took(&mut self, kind: &'static str, items: usize, micros: f64) {
        self.0.entry(kind).or_default().entry(items).or_default().push(micros);
    }

    /// Prints the medians: the log has the time on the wall, so other programs of the machine
    /// lengthen some calls.
    fn print(&mut self) {
        for (kind, sizes) in &mut self.0 {
            let median = |(items, times): (&usize, &mut Vec<f64>)| {
                times.sort_unstable_by(f64::total_cmp);
                (*items as f64, times[times.len() / 2])
            };
            let medians: Vec<_> = sizes.iter_mut().map(median).collect();
            match medians[..] {
                [(_, only)] => println!("{kind:<14} {only:6.1} µs"),
                _ => print_line(kind, &medians),
            }
        }
    }
}

/// Prints the bytes of a pending task and of a delivered one, for two sizes of content.
pub(crate) async fn measure_the_memory() {
    const PENDING: usize = 200_000;
    for bytes in [60, 200, 1_000] {
        let bench = Bench::new().await;
        let memory = || bench.memory();
        bench.add(0, 1, DUE, bytes).await;
        let before = memory();
        for _ in 0..PENDING / 500 {
            bench.add(0, 500, DUE, bytes).await;
        }
        let pending = memory();
        while let Claimed::Granted(grant) = bench.claim(0, "a", 256, false).await
            && !grant.tasks.is_empty()
        {
            bench.settle(0, grant).await;
        }
        let delivered = memory();
        let each = |after: f64| (after - before) / PENDING as f64;
        println!(
            "content of {bytes} bytes: {:.0} bytes a pending task, {:.0} bytes a delivered one",
            each(pending),
            each(delivered),
        );
    }
}
