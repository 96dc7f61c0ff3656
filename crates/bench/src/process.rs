//! The resource usage of a process from `/proc`; `None` on systems without it.

use std::fs;

/// Clock ticks per second in `/proc`: always 100 on Linux.
const TICKS_PER_S: f64 = 100.0;

/// The CPU time of a process, in seconds.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything. It is followed by the state; user and system
    // time are the 12th and 13th fields from there.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: Vec<f64> =
        rest.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    (ticks.len() == 2).then(|| ticks.iter().sum::<f64>() / TICKS_PER_S)
}

/// The resident memory of a process in MiB: current (`VmRSS`) or maximum (`VmHWM`).
pub(crate) fn resident_mib(pid: u32, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_something() {
        let pid = std::process::id();
        assert!(cpu_s(pid).is_some());
        assert!(resident_mib(pid, "VmRSS").unwrap() > 1.0);
        assert!(resident_mib(pid, "VmHWM").unwrap() >= resident_mib(pid, "VmRSS").unwrap() / 2.0);
        assert_eq!(cpu_s(u32::MAX), None);
    }
}
