//! What a drill does to the machine under the program, and reads from it: memory, CPU time, signals.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Resident memory of a process, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU time that a process has used. The kernel counts it in hundredths of a second.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in brackets may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

/// Sends a signal by name, such as `STOP` and `CONT`.
pub fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// A process that is stopped, until this is dropped.
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

/// A slower machine for one process: it runs a part of the time. So a load generator on the same cores can ask for several times what
/// the process can do.
#[derive(Debug)]
pub struct Slowed {
    stop: Arc<AtomicBool>,
    ticking: Option<std::thread::JoinHandle<()>>,
}

impl Slowed {
    /// Runs `run` of every `of`.
    pub fn to(pid: u32, run: Duration, of: Duration) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let ticking = std::thread::spawn(move || {
            let process = Pid::from_raw(pid.try_into().unwrap()).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // A process that has gone needs no brake.
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
