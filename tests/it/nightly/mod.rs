//! Tests that measure time, or inject a real fault whose end has to be waited for. `scripts/test`
//! leaves them out, and `scripts/nightly` runs them: on a busy machine they may fail without a
//! defect. The other tests wait for an event and have no upper bound of time.

mod bench;
mod blocked;
mod clock_jumps;
mod containers;
mod dashboard;
mod disk;
mod dns;
mod drain;
mod go_samples;
mod https;
mod isolation;
mod kubernetes;
mod lateness;
mod long_heads;
mod long_poll;
mod moving_changes;
mod openapi;
mod overload;
mod ownership;
mod redis_cluster;
mod redis_cluster_ids;
mod redis_cluster_schedules;
mod redis_sentinel;
mod redis_tls;
mod two_instances;

/// The processor time that a process has used, in hundredths of a second.
fn processor_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
