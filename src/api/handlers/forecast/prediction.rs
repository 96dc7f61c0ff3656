//! How many callbacks the deployment can make, and when no task is overdue any more. Both are
//! estimates, by the limits and by the mean duration of the successful callbacks so far.

use std::time::Duration;

/// The called services, each with its callbacks per second and the mean duration of one in seconds,
/// share `slots`. Returns the callbacks per second of all together: the services lose equal shares
/// if they could use more slots than there are.
pub(super) fn shared(services: &[(f64, f64)], slots: f64) -> f64 {
    let all: f64 = services.iter().map(|(per_second, _)| per_second).sum();
    let used: f64 = services.iter().map(|(per_second, mean)| per_second * mean).sum();
    if used > slots { all * slots / used } else { all }
}

/// The time until no task is overdue, at a number of callbacks per second. The tasks of a bucket
/// fall due evenly over its `length`. `None` if some task is still overdue after the last bucket.
pub(super) fn drain(
    overdue: u64,
    buckets: &[u64],
    length: Duration,
    per_second: f64,
) -> Option<Duration> {
    if overdue == 0 {
        return Some(Duration::ZERO);
    }
    let length = length.as_secs_f64();
    let (mut backlog, mut begin) = (overdue as f64, 0.0);
    for &due in buckets {
        let shrinks_by = per_second - due as f64 / length;
        if shrinks_by > 0.0 && backlog <= shrinks_by * length {
            return Some(Duration::from_secs_f64(begin + backlog / shrinks_by));
        }
        backlog -= shrinks_by * length;
        begin += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_share_the_slots_equally() {
        let check = |services: &[(f64, f64)], slots: f64, expected: f64| {
            assert!((shared(services, slots) - expected).abs() < 1e-9, "{services:?}");
        };
        check(&[], 10.0, 0.0);
        // Five slots are in use: 10 × 0.5.
        check(&[(10.0, 0.5)], 10.0, 10.0);
        check(&[(10.0, 0.5), (2.0, 2.5)], 10.0, 12.0);
        check(&[(10.0, 0.5), (6.0, 2.5)], 10.0, 8.0);
        // The duration is unknown, so only the rate of the service is a limit.
        check(&[(100.0, 0.0), (0.0, 3.0)], 1.0, 100.0);
    }

    #[test]
    fn a_backlog_shrinks_by_what_is_called_beyond_what_falls_due() {
        let check = |overdue, buckets: &[u64], per_second, expected: Option<f64>| {
            let found = drain(overdue, buckets, Duration::from_secs(60), per_second);
            let found = found.map(|time| time.as_secs_f64());
            let is_near = match (found, expected) {
                (Some(found), Some(expected)) => (found - expected).abs() < 1e-6,
                (found, expected) => found == expected,
            };
            assert!(is_near, "{overdue} {buckets:?} {per_second}: {found:?}");
        };
        check(0, &[600], 0.0, Some(0.0));
        check(20, &[0], 2.0, Some(10.0));
        check(20, &[60, 0], 2.0, Some(20.0));
        check(120, &[0, 0], 2.0, Some(60.0));
        check(121, &[0, 0], 2.0, Some(60.5));
        check(20, &[240, 0, 0], 2.0, Some(130.0));
        check(20, &[120, 120], 2.0, None);
        check(20, &[0, 0], 0.0, None);
        check(20, &[], 2.0, None);
    }
}
