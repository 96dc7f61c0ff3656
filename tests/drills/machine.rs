//! What a drill does to the machine under the program, and reads from it: memory, CPU time, signals.

use std::fs;
use std::time::Duration;

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
