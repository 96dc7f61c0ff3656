//! What a drill does to the machine under the program, and reads from it: memory, CPU time,
//! signals.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::watch;
use tokio::time::Instant;

/// Resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The CPU time that a process has used. The kernel counts it in hundredths of a second.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets may contain spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// The CPU time of a process's living threads, in nanoseconds.
pub fn exact_cpu_time(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let of_one = |thread: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(of_one).sum())
}

/// Sends a signal by name, such as `STOP` and `CONT`.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// The first and the last core that this process may use: one for the service and one for the load,
/// so that they do not compete.
pub fn two_cores() -> (String, String) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a process has cores");
    let cores: Vec<&str> = allowed.trim().split([',', '-']).collect();
    (cores[0].to_owned(), cores[cores.len() - 1].to_owned())
}

/// Runs `work` on a thread of its own, which stays on one core.
pub async fn on_core<T: Send + 'static>(
    core: String,
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let (done, outcome) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let thread = fs::read_link("/proc/thread-self").unwrap();
        let thread = thread.file_name().expect("the path ends with the thread's number").to_owned();
        let pinned = Command::new("taskset")
            .args(["-p", "-c", &core])
            .arg(thread)
            .stdout(Stdio::null())
            .status();
        assert!(pinned.expect("these drills need taskset; scripts/nightly installs it").success());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        // The receiver is gone if the drill has failed meanwhile.
        let _ = done.send(runtime.block_on(work));
    });
    outcome.await.expect("the thread does not panic")
}

/// The most memory that a process had, measured ten times a second until this is asked.
#[derive(Debug)]
pub struct Memory(watch::Sender<()>, tokio::task::JoinHandle<Vec<(Instant, u64)>>);

impl Memory {
    pub fn watch(pid: u32) -> Self {
        let (stop, mut stopped) = watch::channel(());
        let looks = tokio::spawn(async move {
            let mut looks = Vec::new();
            while tokio::time::timeout(Duration::from_millis(100), stopped.changed()).await.is_err()
            {
                looks.push((Instant::now(), resident_kib(pid)));
            }
            looks
        });
        Self(stop, looks)
    }

    /// The maximum in KiB before a moment, and from then on.
    pub async fn most_before_and_after(self, moment: Instant) -> (u64, u64) {
        drop(self.0);
        let looks = self.1.await.unwrap();
        let most = |is: &dyn Fn(Instant) -> bool| {
            looks.iter().filter(|(at, _)| is(*at)).map(|(_, kib)| *kib).max().unwrap_or_default()
        };
        (most(&|at| at < moment), most(&|at| at >= moment))
    }
}

/// A process that is stopped until this is dropped.
#[derive(Debug)]
pub struct Paused(u32);

impl Paused {
    pub fn now(pid: u32) -> Self {
        signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

/// A slower machine for one process: the process runs only a part of the time. So a load generator
/// on the same cores can ask for several times its capacity.
#[derive(Debug)]
pub struct Slowed {
    stop: Arc<AtomicBool>,
    ticking: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    /// Lets the process run `run` of every `of`.
    pub fn to(pid: u32, run: Duration, of: Duration) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let ticking = std::thread::spawn(move || {
            let process = Pid::from_raw(pid.try_into().unwrap()).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // The process may have ended already.
                let _ = kill_process(process, Signal::STOP);
                std::thread::sleep(of - run);
                let _ = kill_process(process, Signal::CONT);
                std::thread::sleep(run);
            }
        });
        Self { stop, ticking: Some(ticking) }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.ticking.take().map(std::thread::JoinHandle::join);
    }
}
