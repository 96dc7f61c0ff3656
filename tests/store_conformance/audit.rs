//! The audit log.

use delayd::store::{AuditCursor, AuditEntry, MAX_AUDIT, Store};
use delayd_wire::{AuditResult, AuditSource, TaskId, UnixMillis};

use crate::bench::Bench;
use crate::check::assert_in_order;

/// An entry that can be told from others.
fn entry(number: u64) -> AuditEntry {
    let at = UnixMillis(number as i64);
    AuditEntry::new(AuditSource::Api, "topic/pause", AuditResult::Done, at)
}

async fn record(bench: &Bench<impl Store>, numbers: std::ops::Range<u64>) {
    bench.store.record(numbers.map(entry).collect()).await.unwrap();
}

/// The numbers of the entries of a page, and where the next one begins.
async fn page(
    bench: &Bench<impl Store>,
    before: Option<AuditCursor>,
    limit: usize,
) -> (Vec<i64>, Option<AuditCursor>) {
    let logged = bench.store.audit(before, limit).await.unwrap();
    (logged.entries.iter().map(|entry| entry.at_ms.0).collect(), logged.next)
}

pub(crate) async fn entries_are_listed_as_they_were_recorded_the_newest_first(
    bench: Bench<impl Store>,
) {
    assert_eq!(page(&bench, None, 10).await, (vec![], None));
    let full = AuditEntry {
        token: Some("operator".into()),
        topic: Some("orders".parse().unwrap()),
        sn: "message.call".parse().ok(),
        task_id: Some(TaskId(7)),
        tasks: Some(3),
        dry_run: true,
        dm_error: Some(1003),
        request_id: Some("req-1".into()),
        unrecorded: 12,
        ..entry(1).answered(403, None)
    };
    bench.store.record(vec![entry(0), full.clone()]).await.unwrap();
    bench.store.record(vec![]).await.unwrap();
    bench.store.record(vec![entry(2)]).await.unwrap();
    let logged = bench.store.audit(None, 10).await.unwrap();
    assert_eq!((logged.entries, logged.next), (vec![entry(2), full, entry(0)], None));
}

pub(crate) async fn a_page_continues_after_its_cursor_whatever_was_recorded_since(
    bench: Bench<impl Store>,
) {
    record(&bench, 0..5).await;
    let (first, next) = page(&bench, None, 2).await;
    assert_eq!(first, [4, 3]);
    record(&bench, 5..8).await;
    let cursor = next.unwrap().to_string().parse().unwrap();
    let (second, next) = page(&bench, Some(cursor), 2).await;
    assert_eq!(second, [2, 1]);
    assert_eq!(page(&bench, next, 2).await, (vec![0], None));
    assert_eq!(page(&bench, None, 2).await.0, [7, 6]);
}

pub(crate) async fn the_oldest_entries_are_removed_beyond_the_cap(bench: Bench<impl Store>) {
    let all = MAX_AUDIT as u64 + 500;
    for from in (0..all).step_by(250) {
        record(&bench, from..from + 250).await;
    }
    let (mut seen, mut next) = page(&bench, None, 1_000).await;
    while let Some(cursor) = next {
        let (more, after) = page(&bench, Some(cursor), 1_000).await;
        seen.extend(more);
        next = after;
    }
    // Redis removes entries in groups of about a hundred.
    assert!((MAX_AUDIT..MAX_AUDIT + 200).contains(&seen.len()), "{}", seen.len());
    let newest_first: Vec<i64> = (0..all as i64).rev().take(seen.len()).collect();
    assert_eq!(seen, newest_first);
}

/// A check of the store must not take it for the remains of something.
pub(crate) async fn an_audit_log_contradicts_nothing(bench: Bench<impl Store>) {
    record(&bench, 0..3).await;
    bench.add("message.call", 0).await;
    assert_in_order(&bench.store).await;
    assert_eq!(page(&bench, None, 10).await.0, [2, 1, 0]);
}
