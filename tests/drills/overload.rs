//! Three times as many adds as the service can take, from callers that do not wait for answers.
//!
//! The capacity is measured in the same run and in the same way, as the best of some closed loops.
//! The service has one core and the load another, so that they do not compete. The service is
//! limited by one of two:
//!
//! - *Its processor*: it gets only a part of the time. A load of three times its capacity needs
//!   more processor time than the service itself.
//! - *Its store*: each answer takes a while. In that while the service does as many tasks as there
//!   are request slots.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::account::Account;
use crate::fleet::{self, By, Fleet};
use crate::machine::{Memory, Slowed, exact_cpu_time, on_core, two_cores};
use crate::open_loop::{Answers, Callers, End};
use crate::program::{StoreAt, folder};
use crate::receiver::{Receiver, now_ms};
use crate::redis_server::Server;
use crate::row::Row;
use crate::slow_wire::SlowWire;
use crate::strace::with_slow_fsyncs;
use crate::verdict::Verdict;
use crate::{SERVICE, is_long, poll, quiet, service};

/// How much more memory an overload may take than full load: the waiting requests and their
/// connections.
const MOST_KIB: u64 = 128 << 10;

/// How much memory full load may take: a thousand requests at a time, and the connections of the
/// waiting ones.
const MOST_AT_WORK_KIB: u64 = 160 << 10;

/// The most connections of all callers together. The debug build of the suite takes a second for
/// what the release build does in a fifth.
fn connections() -> usize {
    if is_long() { 3_000 } else { 1_500 }
}

/// The topics to which tasks are added.
const TOPICS: u64 = 4;

/// A caller gives up after this time. A later answer counts as a hang.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long each answer of a slow store takes.
const SLOW: Duration = Duration::from_millis(250);

/// The promise at three times the capacity: the part of the peak that is still stored, and the time
/// within which the others are refused.
struct Promise {
    goodput: f64,
    refusal_ms: u128,
}

/// If the store is the limit, the processor has time to refuse.
const BY_THE_STORE: Promise = Promise { goodput: 0.8, refusal_ms: 300 };

/// If the processor is the limit, each refusal costs processor time that an add could use: the
/// connection, reading, writing. So three times the load could be answered in full only by storing
/// a fraction. Requests that are not read wait in their connections instead. These are not targets,
/// but values to rely on.
const BY_THE_PROCESSOR: Promise = Promise { goodput: 0.4, refusal_ms: 1_500 };

/// The closed loops that find the peak, with this many callers at a time. There are 1,024 request
/// slots.
const AT_A_TIME: [usize; 2] = [256, 1_024];

#[tokio::test(flavor = "multi_thread")]
async fn of_the_processor_on_an_embedded_store() {
    let folder = folder();
    let drill =
        Drill::start("processor, embedded", fleet::embedded(folder.path()), Arc::default()).await;
    drill.with_a_slow_processor().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_processor_on_redis() {
    let server = Server::start();
    let drill = Drill::start("processor, Redis", fleet::redis(&server), Arc::default()).await;
    drill.with_a_slow_processor().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_slow_disk() {
    let (folder, slow) = (folder(), Arc::new(AtomicBool::new(true)));
    let mut drill =
        Drill::start("disk, embedded", fleet::embedded(folder.path()), slow.clone()).await;
    let measured = drill.measure().await;
    // The tracing ends only with a new process.
    slow.store(false, Ordering::Relaxed);
    drill.fleet.retire(0).await;
    drill.fleet.raise(0).await;
    drill.judge(measured, BY_THE_STORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_slow_redis() {
    let server = Server::start();
    let wire = SlowWire::to(server.port(), SLOW).await;
    let store = StoreAt::Redis(wire.address.port(), format!("drill{:08x}", rand::random::<u32>()));
    let mut drill = Drill::start("slow Redis", store, Arc::default()).await;
    let measured = drill.measure().await;
    wire.set_delay(Duration::ZERO);
    drill.judge(measured, BY_THE_STORE).await;
}

/// How much a load got done.
#[derive(Clone, Copy, Debug, Default)]
struct Goodput {
    /// Adds stored per second.
    a_second: f64,
    /// The same per second of processor time that the service had: other programs may have had the
    /// rest.
    a_processor_second: f64,
}

impl Goodput {
    fn best(self, other: Self) -> Self {
        Self {
            a_second: self.a_second.max(other.a_second),
            a_processor_second: self.a_processor_second.max(other.a_processor_second),
        }
    }
}

/// The results of the loads.
struct Measured {
    peak: Goodput,
    /// Of the closed loops.
    before: Answers,
    overload_began: Instant,
    /// Of the open loop.
    answers: Answers,
    goodput: Goodput,
}

struct Drill {
    row: Row,
    receiver: Receiver,
    fleet: Fleet,
}

impl Drill {
    async fn start(bound: &str, store: StoreAt, slow_fsyncs: Arc<AtomicBool>) -> Self {
        let row =
            Row::new(format!("adds at three times capacity, open loop; bound by the {bound}"));
        let receiver = Receiver::start().await;
        let by: By = Box::new(move |serve| {
            let serve = if slow_fsyncs.load(Ordering::Relaxed) {
                with_slow_fsyncs(&serve, SLOW)
            } else {
                serve
            };
            on_the_first_core(&serve)
        });
        let sets = vec![service(SERVICE, &receiver.endpoint()), quiet()];
        Self { row, receiver, fleet: Fleet::start_by(store, sets, 1, by).await }
    }

    async fn with_a_slow_processor(mut self) {
        // The debug build of the suite is slow already.
        let run = Duration::from_millis(if is_long() { 10 } else { 14 });
        let slowed = Slowed::to(self.fleet.member(0).pid(), run, Duration::from_millis(20));
        let measured = self.measure().await;
        drop(slowed);
        self.judge(measured, BY_THE_PROCESSOR).await;
    }

    async fn measure(&mut self) -> Measured {
        let delayd = self.fleet.member(0);
        let memory = Memory::watch(delayd.pid());
        // The first task of a topic registers it and opens its lane. That is not to be measured.
        for n in 0..TOPICS {
            let first = json!({"topic": topic(n), "delay": "1h", "mode": "pull", "content": {}})
                .to_string();
            let is_stored =
                async || delayd.post("/delay/task/add", first.clone()).await.status == 200;
            assert!(poll::until(is_stored).await, "the first task of a topic is not stored");
        }
        let callers = Callers::of(delayd.address, connections(), PATIENCE);
        let (_, last) = two_cores();
        let measured = on_core(last, load(callers, delayd.pid())).await;
        let (before, after) = memory.most_before_and_after(measured.overload_began).await;
        self.row.note(format!("memory {before} → {after} KiB"));
        self.row.promise(before < MOST_AT_WORK_KIB, "full work took too much memory");
        self.row.promise(after < before + MOST_KIB, "memory grew too much");
        measured
    }

    async fn judge(mut self, measured: Measured, promise: Promise) {
        let Measured { peak, before, answers, goodput, .. } = measured;
        let row = &mut self.row;
        let part = goodput.a_second / peak.a_second;
        let part_of_processor = goodput.a_processor_second / peak.a_processor_second;
        let (refused, left) =
            (answers.count(|end| end == End::Refused), answers.count(|end| end == End::Left));
        let unsent = answers.count(|end| end == End::Unsent);
        let odd =
            before.count(|end| !end.is_proper()) + answers.count(|end| !end.is_proper()) - left;
        let refusal_ms = answers.percentile_ms(99, |end| end == End::Refused);
        row.note(format!(
            "peak {:.0}/s; at three times that {:.0}/s \
             ({:.0} %; of what a second of the processor does: {:.0} %)",
            peak.a_second,
            goodput.a_second,
            100.0 * part,
            100.0 * part_of_processor
        ));
        row.note(format!(
            "{} stored, p99 {} ms; {refused} refused, p99 {refusal_ms} ms; \
             {unsent} unsent, for all connections (of {}) waited; {left} hung",
            answers.count(End::is_stored),
            answers.percentile_ms(99, End::is_stored),
            connections(),
        ));
        row.promise(left == 0, format!("{left} adds got no answer"));
        row.promise(odd == 0, format!("{odd} adds were neither stored nor refused"));
        // Per second, where other programs take the processor. Per second of processor time, where
        // refusing takes the rest of it.
        row.promise_in_time(part.max(part_of_processor) >= 0.25, "goodput collapsed");
        let Promise { goodput, refusal_ms: most_ms } = promise;
        row.promise_in_time(
            part.max(part_of_processor) >= goodput,
            format!("goodput fell below {goodput} of the peak"),
        );
        row.promise_in_time(refusal_ms < most_ms, format!("refusals took {most_ms} ms and more"));
        let account = account_of(self.fleet.member(0).address, [before, answers]);
        self.row.settle(Verdict::by_calls_alone(&account, || self.receiver.seen()).await);
        self.row.promise(self.row.duplicates() == 0, "the overload caused duplicates");
        self.row.finish();
    }
}

/// The peak, and then three times that.
async fn load(callers: Callers, pid: u32) -> Measured {
    let span = Duration::from_millis(if is_long() { 1_500 } else { 1_000 });
    let over = Duration::from_millis(if is_long() { 5_000 } else { 2_000 });
    // Due when the load is over, so that only adding is measured.
    let due_ms = now_ms() + (3 * span + over + Duration::from_secs(3)).as_millis() as i64;
    let add = move |n: u64| {
        let (topic, due_s, due_ms) = (topic(n), due_ms / 1_000, due_ms % 1_000);
        format!(
            "{{\"topic\":\"{topic}\",\"timing_moment\":{due_s}.{due_ms:03},\
             \"content\":{{\"sn\":\"{SERVICE}\",\"url\":\"/\",\"n\":{n}}}}}"
        )
    };
    callers.connect().await;
    let (mut peak, mut before) = (Goodput::default(), Answers::default());
    for at_a_time in AT_A_TIME {
        let (answers, goodput) = seen(pid, span, callers.closed_loop(at_a_time, span, add)).await;
        peak = peak.best(goodput);
        before.0.extend(answers.0);
    }
    let overload_began = Instant::now();
    let (answers, goodput) =
        seen(pid, over, callers.open_loop(3.0 * peak.a_second, over, add)).await;
    Measured { peak, before, overload_began, answers, goodput }
}

/// Runs a load, and returns how much of it was stored. Its beginning does not count, since the
/// service has nothing to do then.
async fn seen(pid: u32, span: Duration, load: impl Future<Output = Answers>) -> (Answers, Goodput) {
    let from = Instant::now() + span / 5;
    let until = Instant::now() + span;
    let processor = async {
        tokio::time::sleep_until(from).await;
        let began = exact_cpu_time(pid);
        tokio::time::sleep_until(until).await;
        (exact_cpu_time(pid) - began).as_secs_f64()
    };
    let (answers, processor) = tokio::join!(load, processor);
    let a_second = answers.goodput(from, until);
    let a_processor_second = a_second * (until - from).as_secs_f64() / processor;
    (answers, Goodput { a_second, a_processor_second })
}

fn topic(n: u64) -> String {
    format!("drill.{}", n % TOPICS)
}

fn on_the_first_core(command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", &two_cores().0]).arg(command.get_program()).args(command.get_args());
    pinned
}

fn account_of(by: std::net::SocketAddr, loads: [Answers; 2]) -> Arc<Account> {
    let account = Account::open();
    for add in loads.iter().flat_map(|answers| &answers.0).filter(|add| add.end != End::Unsent) {
        account.trying(add.n, &topic(add.n));
        if let End::Stored { id, due_ms } = add.end {
            account.confirmed(add.n, id, due_ms, by);
        }
    }
    account
}
