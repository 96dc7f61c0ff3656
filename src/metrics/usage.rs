//! The CPU time and the memory of this process.

/// Processor time and memory of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time since the start, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// What the process uses now; `None` if the system does not say.
#[cfg(target_os = "linux")]
pub fn usage() -> Option<Usage> {
    let stat = procfs::process::Process::myself().ok()?.stat().ok()?;
    let cpu_seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Some(Usage { cpu_seconds, memory: stat.rss * procfs::page_size() })
}

/// What the process uses now; `None` if the system does not say.
#[cfg(not(target_os = "linux"))]
pub fn usage() -> Option<Usage> {
    None
}
