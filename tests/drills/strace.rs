//! Faults of system calls, injected into a running process by strace.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The command started in such a way that each of its fsyncs takes `by` longer, and nothing else is
/// slower. (A process that strace attaches to is stopped at every system call.) The command stays
/// the child, and the drill its parent.
pub fn with_slow_fsyncs(command: &Command, by: Duration) -> Command {
    let mut strace = Command::new("strace");
    strace.args([
        "-D",
        "-f",
        "--seccomp-bpf",
        "-q",
        "-o",
        "/dev/null",
        "-e",
        "trace=fsync,fdatasync",
    ]);
    strace.args(["-e", &format!("inject=fsync,fdatasync:delay_enter={}", by.as_micros())]);
    strace.arg(command.get_program()).args(command.get_args());
    strace
}

/// A current injection. Dropping it ends it, and the process runs on.
#[derive(Debug)]
pub struct Injected(Child);

impl Injected {
    /// Injects into every fsync of all threads of the process, such as `error=EIO` or
    /// `delay_enter=20000` (microseconds).
    pub fn into_fsyncs(pid: u32, what: &str) -> Self {
        Self::into_calls(
            pid,
            &["-e", "trace=fsync,fdatasync", "-e", &format!("inject=fsync,fdatasync:{what}")],
        )
    }

    /// Injects with strace's own arguments.
    pub fn into_calls(pid: u32, words: &[&str]) -> Self {
        let mut strace = Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null"])
            .args(words)
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("these drills need strace; scripts/nightly installs it");
        let deadline = Instant::now() + Duration::from_secs(10);
        while !is_traced(pid) {
            if strace.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let _ = strace.kill();
                let said = std::io::read_to_string(strace.stderr.take().unwrap()).unwrap();
                panic!(
                    "strace cannot attach to process {pid}; \
                     the drill needs ptrace to be allowed: {said}"
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(strace)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        // With SIGTERM, strace detaches from the process. SIGKILL might leave a stopped process
        // behind.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

/// Whether all threads of the process have a tracer.
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    })
}
