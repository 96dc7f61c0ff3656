//! A steady load for hours, with a fault in every second window: what is lost, what grows, and how
//! late calls are. `scripts/soak` sets the time.
//!
//! Faults that end a process come in the first half only. So in the second half each process lives
//! long enough to show whether its memory grows.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::block_in_place;

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::machine::{Paused, resident_kib};
use crate::program::{Program, folder};
use crate::quick_settings;
use crate::receiver::{Answer, Receiver, Seen, now_ms};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::{Verdict, percentile};

const LEASE: Duration = Duration::from_secs(2);

/// How often memory and files are measured in a window.
const LOOKS: u32 = 20;

/// What [`Row::promise`] allows between the beginning and the end of the second half.
const MOST_GROWTH: f64 = 1.05;

#[tokio::test(flavor = "multi_thread")]
async fn hours_on_an_embedded_store() {
    let folder = folder();
    let store = fleet::embedded(folder.path());
    soak("embedded", store, 1, Kept::Folder(folder.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hours_of_two_instances_on_redis() {
    let server = Server::start();
    let store = fleet::redis(&server);
    soak("two on Redis", store, 2, Kept::Redis(Box::new(server))).await;
}

/// How long it takes, and in how many windows the table is divided.
struct Span {
    window: Duration,
    windows: u32,
}

impl Span {
    /// `SOAK_MINUTES`, in windows of five minutes. Without it, 40 s in twenty windows: the
    /// promises about growth need hours.
    fn asked() -> Self {
        match minutes() {
            Some(minutes) => {
                Self { window: Duration::from_secs(300), windows: minutes.div_ceil(5) }
            }
            None => Self { window: Duration::from_secs(2), windows: 20 },
        }
    }
}

fn minutes() -> Option<u32> {
    let minutes = std::env::var("SOAK_MINUTES").ok()?;
    Some(minutes.parse().expect("SOAK_MINUTES is a number"))
}

/// Where the tasks are kept.
enum Kept<'a> {
    Folder(&'a Path),
    Redis(Box<Server>),
}

impl Kept<'_> {
    /// The bytes of its files: of Redis, those of its append-only file.
    fn file_bytes(&self) -> u64 {
        match self {
            Self::Folder(folder) => {
                let files = std::fs::read_dir(folder).unwrap().flatten();
                files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
            }
            Self::Redis(server) => {
                number(&server.command(&["INFO", "persistence"]), "aof_current_size")
            }
        }
    }

    /// The memory of Redis in KiB.
    fn server_kib(&self) -> Option<u64> {
        match self {
            Self::Folder(_) => None,
            Self::Redis(server) => {
                Some(number(&server.command(&["INFO", "memory"]), "used_memory") >> 10)
            }
        }
    }
}

/// A number from the output of `INFO`.
fn number(info: &str, name: &str) -> u64 {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("Redis knows no {name}")).trim().parse().unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    /// kill -9 of the instance that was started last.
    Kill,
    /// A restart of the store: of the embedded one with its program, in order; of Redis by kill -9.
    Restart,
    /// SIGSTOP of the program with the embedded store, or of Redis.
    Pause,
    /// The receiver answers 503.
    Refusals,
    /// The receiver answers after the time of a call is over.
    Slowness,
}

impl Trouble {
    /// The trouble of a window: none in every second one.
    fn of(window: u32, windows: u32) -> Option<Self> {
        const FIRST: [Trouble; 5] =
            [Trouble::Kill, Trouble::Refusals, Trouble::Restart, Trouble::Slowness, Trouble::Pause];
        const SECOND: [Trouble; 3] = [Trouble::Refusals, Trouble::Pause, Trouble::Slowness];
        let number = (window / 2) as usize;
        match window % 2 == 1 {
            false => None,
            true if window < windows / 2 => Some(FIRST[number % FIRST.len()]),
            true => Some(SECOND[number % SECOND.len()]),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Restart => "restart of the store",
            Self::Pause => "pause",
            Self::Refusals => "refusals",
            Self::Slowness => "slow receiver",
        }
    }
}

/// The service under load.
struct Scene<'a> {
    kept: Kept<'a>,
    fleet: Fleet,
    instances: usize,
    receiver: Receiver,
    account: Arc<Account>,
    /// The calls that were refused, by task and attempt.
    refused: Arc<Mutex<HashSet<(u64, u32)>>>,
}

impl Scene<'_> {
    async fn inject(&mut self, trouble: Trouble, lasts: Duration) {
        let last = self.instances - 1;
        let account = self.account.clone();
        match trouble {
            Trouble::Kill => {
                let _crash = account.fault(Cause::Crash);
                self.fleet.kill(last);
                self.fleet.raise(last).await;
            }
            Trouble::Restart => {
                let _away = account.fault(Cause::StoreAway);
                match &mut self.kept {
                    Kept::Folder(_) => {
                        self.fleet.retire(last).await;
                        self.fleet.raise(last).await;
                    }
                    Kept::Redis(server) => block_in_place(|| {
                        server.kill();
                        server.restart();
                    }),
                }
                self.are_ready().await;
            }
            Trouble::Pause => {
                let (cause, pid) = match &self.kept {
                    Kept::Folder(_) => (Cause::LeaseRanOut, self.fleet.member(last).pid()),
                    Kept::Redis(server) => (Cause::StoreAway, server.pid()),
                };
                let _pause = account.fault(cause);
                let paused = Paused::now(pid);
                tokio::time::sleep(lasts.min(LEASE * 2)).await;
                drop(paused);
                self.are_ready().await;
            }
            Trouble::Refusals => {
                let refused = self.refused.clone();
                self.receiver.answer(move |call| {
                    refused.lock().unwrap().insert((call.id, call.attempt));
                    Answer::Status(503)
                });
                tokio::time::sleep(lasts).await;
                self.receiver.answer(promptly);
            }
            Trouble::Slowness => {
                let slow = account.fault(Cause::Timeout);
                self.receiver.answer(|_| Answer::After(Duration::from_secs(2)));
                tokio::time::sleep(lasts).await;
                self.receiver.answer(promptly);
                // The last of these calls are given up.
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(slow);
            }
        }
    }

    async fn are_ready(&self) {
        for index in 0..self.instances {
            self.fleet.member(index).wait_until_ready(200).await;
        }
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        (0..self.instances).map(|index| self.fleet.member(index))
    }

    fn look(&self) -> Look {
        let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Look {
            resident_kib: self.programs().map(|program| resident_kib(program.pid())).collect(),
            descriptors: self.programs().map(|program| descriptors(program.pid())).sum(),
            server_kib: self.kept.server_kib(),
            file_bytes: self.kept.file_bytes(),
        }
    }

    /// Measures until a moment.
    async fn look_until(&self, end: Instant, every: Duration, looks: &mut Vec<Look>) {
        while Instant::now() + every < end {
            tokio::time::sleep(every).await;
            looks.push(block_in_place(|| self.look()));
        }
        tokio::time::sleep_until(end.into()).await;
    }

    /// The calls that were answered with success.
    fn successes(&self) -> Vec<Seen> {
        let refused = self.refused.lock().unwrap();
        let mut seen = self.receiver.seen();
        seen.retain(|call| !refused.contains(&(call.id, call.attempt)));
        seen
    }
}

fn promptly(call: &Seen) -> Answer {
    Answer::After(Duration::from_millis(call.id % 60))
}

/// Memory and files at one moment.
struct Look {
    /// Of each instance.
    resident_kib: Vec<u64>,
    descriptors: usize,
    server_kib: Option<u64>,
    file_bytes: u64,
}

/// A line of the table.
struct Window {
    trouble: Option<Trouble>,
    ends_ms: i64,
    accepted: usize,
    looks: Vec<Look>,
}

impl Window {
    fn median(&self, figure: impl Fn(&Look) -> u64) -> u64 {
        let mut figures: Vec<u64> = self.looks.iter().map(figure).collect();
        figures.sort_unstable();
        figures.get(figures.len() / 2).copied().unwrap_or_default()
    }

    fn most(&self, figure: impl Fn(&Look) -> u64) -> u64 {
        self.looks.iter().map(figure).max().unwrap_or_default()
    }

    /// The median of an instance's memory.
    fn resident_kib(&self, instance: usize) -> u64 {
        self.median(|look| look.resident_kib[instance])
    }
}

async fn soak(on: &str, store: crate::program::StoreAt, instances: usize, kept: Kept<'_>) {
    let Span { window, windows } = Span::asked();
    let lasts = window.as_secs() * u64::from(windows);
    let mut row = Row::new(format!("soak of {lasts} s, {on}"));
    let receiver = Receiver::answering(promptly).await;
    let mut sets = quick_settings(&receiver.endpoint(), LEASE);
    // History reaches its end within the first windows, so growth after it is a leak.
    sets.push("history.keep=\"10m\"".into());
    let fleet = Fleet::start(store, sets, instances).await;
    let (account, refused) = (Account::open(), Arc::default());
    let plan = Plan {
        pause: Duration::from_millis(400),
        delay_ms: 0..window.as_millis() as u64 / 10,
        ..Plan::default()
    };
    let load = Load::start(&account, &fleet.endpoints(), plan);
    let mut scene = Scene { kept, fleet, instances, receiver, account, refused };

    let began = Instant::now();
    let mut table = Vec::new();
    for number in 0..windows {
        let (from, before) = (began + window * number, scene.account.accepted());
        let trouble = Trouble::of(number, windows);
        let (mut looks, every) = (Vec::new(), window / LOOKS);
        if let Some(trouble) = trouble {
            scene.look_until(from + window / 3, every, &mut looks).await;
            scene.inject(trouble, (window / 3).min(Duration::from_secs(10))).await;
        }
        scene.look_until(from + window, every, &mut looks).await;
        let accepted = scene.account.accepted() - before;
        table.push(Window { trouble, ends_ms: now_ms(), accepted, looks });
    }
    load.stop().await;

    let verdict = Verdict::by_calls_alone(&scene.account, || scene.successes()).await;
    row.settle(verdict);
    println!("{}", markdown(on, &table, &scene.successes()));
    if minutes().is_some() {
        promise_no_growth(&mut row, &table, instances);
    }
    row.note(format!("{} adds refused", scene.account.refusals()));
    row.finish();
}

/// The second half of the time begins with the memory and the files with which it ends.
fn promise_no_growth(row: &mut Row, table: &[Window], instances: usize) {
    // The first windows of the half still have the memory of what the last kill left.
    let half = &table[table.len() / 2..];
    let quarter = half.len().div_ceil(4);
    let (first, last) = (&half[..quarter], &half[half.len() - quarter..]);
    for instance in 0..instances {
        let of = |windows: &[Window]| {
            let sum: u64 = windows.iter().map(|window| window.resident_kib(instance)).sum();
            sum as f64 / windows.len() as f64
        };
        let growth = of(last) / of(first);
        row.note(format!("memory of instance {instance} in the second half ×{growth:.3}"));
        row.promise(growth <= MOST_GROWTH, format!("the memory grew ×{growth:.3}"));
    }
    let most = |windows: &[Window]| {
        windows.iter().map(|window| window.most(|look| look.file_bytes)).max().unwrap_or_default()
    };
    let (before, after) = (most(&table[..table.len() / 2]), most(half));
    let growth = after as f64 / before as f64;
    row.note(format!("files at most ×{growth:.3} of the first half"));
    row.promise(growth <= MOST_GROWTH, format!("the files grew ×{growth:.3}"));
}

/// The table of the windows. A task belongs to the window in which it is due.
fn markdown(on: &str, table: &[Window], successes: &[Seen]) -> String {
    let mut first: BTreeMap<u64, &Seen> = BTreeMap::new();
    for call in successes {
        let known = first.entry(call.id).or_insert(call);
        if call.arrived_ms < known.arrived_ms {
            *known = call;
        }
    }
    let mut text = format!(
        "\n{on}\n\n| window | fault | adds | late p50 / p99 / p99.9 / most, ms \
         | memory of delayd, MiB | of Redis | descriptors | files, MiB |\n\
         |---|---|---|---|---|---|---|---|\n"
    );
    let mut from = i64::MIN;
    for (number, window) in table.iter().enumerate() {
        let due = first.values().filter(|call| (from..window.ends_ms).contains(&call.due_ms));
        let mut late: Vec<i64> = due.map(|call| call.lateness_ms()).collect();
        late.sort_unstable();
        from = window.ends_ms;
        let instances = window.looks.first().map_or(0, |look| look.resident_kib.len());
        let resident: Vec<String> = (0..instances)
            .map(|instance| format!("{:.1}", window.resident_kib(instance) as f64 / 1024.0))
            .collect();
        let server = window.median(|look| look.server_kib.unwrap_or_default()) as f64 / 1024.0;
        let thousandth = late.len().saturating_sub(1 + late.len() / 1_000);
        text += &format!(
            "| {} | {} | {} | {} / {} / {} / {} | {} | {server:.1} | {} | {:.1} |\n",
            number + 1,
            window.trouble.map_or("", Trouble::name),
            window.accepted,
            percentile(&late, 50),
            percentile(&late, 99),
            late.get(thousandth).copied().unwrap_or_default(),
            late.last().copied().unwrap_or_default(),
            resident.join(", "),
            window.most(|look| look.descriptors as u64),
            window.most(|look| look.file_bytes) as f64 / f64::from(1 << 20),
        );
    }
    text
}
