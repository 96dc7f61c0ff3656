//! The account of all tasks: compares what was accepted with what arrived.
//!
//! # Invariant
//!
//! - There are figures only if all tasks arrived exactly once, and none before its due time.

use std::collections::HashSet;

use anyhow::ensure;
use hdrhistogram::Histogram;
use memchr::memmem;

/// The maximum of histograms, in microseconds: ten minutes.
const LONGEST_US: u64 = 600_000_000;

/// A task that the service accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Accepted {
    pub(crate) id: u64,
    pub(crate) due_ms: i64,
}

/// A callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    pub(crate) id: u64,
    /// In microseconds since 1970.
    pub(crate) at_us: i64,
}

/// An empty histogram of microseconds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_US, 3).expect("bounds and digits that it allows")
}

/// A percentile, in milliseconds.
pub(crate) fn percentile_ms(histogram: &Histogram<u64>, percentile: f64) -> f64 {
    histogram.value_at_percentile(percentile) as f64 / 1_000.0
}

/// The lateness of all tasks.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// In microseconds.
    pub(crate) late: Histogram<u64>,
    /// The smallest lateness, exactly.
    pub(crate) earliest_us: i64,
    /// The last arrival, in microseconds since 1970.
    pub(crate) last_us: i64,
}

/// Compares the arrivals with the accepted tasks.
///
/// # Errors
/// A list of the broken promises.
pub(crate) fn check(accepted: &[Accepted], arrivals: &[Arrival]) -> anyhow::Result<Arrived> {
    let mut accepted = accepted.to_vec();
    accepted.sort_unstable();
    check_ids(&accepted)?;
    let mut arrivals = arrivals.to_vec();
    arrivals.sort_unstable();
    let (mut missing, mut again, mut early, mut strange) = (0, 0, 0, 0);
    let (mut late, mut earliest_us, mut last_us) = (histogram(), i64::MAX, i64::MIN);
    let mut next = arrivals.iter().peekable();
    for task in &accepted {
        while next.next_if(|arrival| arrival.id < task.id).is_some() {
            strange += 1;
        }
        let Some(first) = next.next_if(|arrival| arrival.id == task.id) else {
            missing += 1;
            continue;
        };
        while next.next_if(|arrival| arrival.id == task.id).is_some() {
            again += 1;
        }
        let late_us = first.at_us - task.due_ms * 1_000;
        early += usize::from(late_us < 0);
        earliest_us = earliest_us.min(late_us);
        last_us = last_us.max(first.at_us);
        late.saturating_record(u64::try_from(late_us).unwrap_or(0).max(1));
    }
    strange += next.count();
    let told = [
        (missing, "never arrived"),
        (again, "callbacks were repeats"),
        (early, "came before their moment"),
        (strange, "callbacks were of tasks that nobody was told of"),
    ];
    let told = told.iter().filter(|(count, _)| *count > 0);
    let told: Vec<String> = told.map(|(count, what)| format!("{count} {what}")).collect();
    let of = accepted.len();
    kept(told.is_empty(), || format!("of {of} tasks: {}", told.join("; ")))?;
    Ok(Arrived { late, earliest_us, last_us })
}

/// The arrivals of these tasks.
pub(crate) fn of(accepted: &[Accepted], arrivals: &[Arrival]) -> Vec<Arrival> {
    let ids: HashSet<u64> = accepted.iter().map(|task| task.id).collect();
    arrivals.iter().filter(|arrival| ids.contains(&arrival.id)).copied().collect()
}

/// Checks that ids are unique.
///
/// # Errors
/// If an id was given twice.
pub(crate) fn check_ids(sorted: &[Accepted]) -> anyhow::Result<()> {
    let twice = sorted.windows(2).find(|pair| pair[0].id == pair[1].id);
    kept(twice.is_none(), || {
        format!("the id {} was given to two tasks", twice.map_or(0, |pair| pair[0].id))
    })
}

/// Checks a promise. If the service broke it, there are no figures.
pub(crate) fn kept(is_kept: bool, broken: impl FnOnce() -> String) -> anyhow::Result<()> {
    ensure!(is_kept, "BROKEN PROMISE: {}; so there are no figures", broken());
    Ok(())
}

/// Reads the accepted tasks from the answer to an add or a batch; `None` if it is malformed.
pub(crate) fn accepted_in(body: &[u8], into: &mut Vec<Accepted>) -> Option<()> {
    let mut rest = body;
    let before = into.len();
    while let Some(at) = memmem::find(rest, b"\"task_id\":") {
        let id = number(&rest[at + 10..])?;
        rest = &rest[at + 10..];
        let at = memmem::find(rest, b"\"due_ms\":")?;
        into.push(Accepted { id, due_ms: i64::try_from(number(&rest[at + 9..])?).ok()? });
        rest = &rest[at + 9..];
    }
    (into.len() > before).then_some(())
}

/// The number at the beginning of `text`.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(ids: &[u64]) -> Vec<Accepted> {
        ids.iter().map(|id| Accepted { id: *id, due_ms: 1_000 }).collect()
    }

    fn arrivals(of: &[(u64, i64)]) -> Vec<Arrival> {
        of.iter().map(|(id, at_us)| Arrival { id: *id, at_us: *at_us }).collect()
    }

    #[test]
    fn what_came_once_and_not_early_is_told_with_its_lateness() {
        let arrived =
            check(&accepted(&[2, 1]), &arrivals(&[(1, 1_000_000), (2, 1_002_500)])).unwrap();
        assert_eq!((arrived.earliest_us, arrived.last_us), (0, 1_002_500));
        assert_eq!(percentile_ms(&arrived.late, 100.0).round(), 3.0);
    }

    #[test]
    fn every_defect_is_named() {
        let check = |ids: &[u64], came: &[(u64, i64)], expected: &str| {
            let error = check(&accepted(ids), &arrivals(came)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(&[1, 2], &[(1, 1_000_000)], "of 2 tasks: 1 never arrived");
        check(&[1], &[(1, 1_000_000), (1, 1_000_001)], "of 1 tasks: 1 callbacks were repeats");
        check(&[1], &[(1, 999_999)], "1 came before their moment");
        check(
            &[1],
            &[(0, 1_000_000), (1, 1_000_000), (3, 1)],
            "2 callbacks were of tasks that nobody was told of",
        );
        check(&[1, 1], &[(1, 1_000_000)], "the id 1 was given to two tasks");
    }

    #[test]
    fn the_answers_of_adds_and_batches_are_read() {
        let mut read = Vec::new();
        accepted_in(br#"{"dm_error":0,"task_id":7,"due_ms":8}"#, &mut read).unwrap();
        let batch =
            br#"{"failed":0,"results":[{"task_id":1,"due_ms":2},{"task_id":3,"due_ms":4}]}"#;
        accepted_in(batch, &mut read).unwrap();
        assert_eq!(
            read.iter().map(|task| (task.id, task.due_ms)).collect::<Vec<_>>(),
            [(7, 8), (1, 2), (3, 4)]
        );
        assert!(accepted_in(br#"{"dm_error":2003}"#, &mut read).is_none());
    }
}
