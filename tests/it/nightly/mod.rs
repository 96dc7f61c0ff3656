//! Tests that measure time, or inject a real fault whose end has to be waited for. `scripts/test`
//! leaves them out, and `scripts/nightly` runs them: on a busy machine they may fail without a
//! defect. The other tests wait for an event and have no upper bound of time.

mod bench;
mod clock_jumps;
mod dashboard;
mod disk;
mod dns;
mod https;
mod lateness;
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
