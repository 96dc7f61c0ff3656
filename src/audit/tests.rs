use std::sync::atomic::AtomicUsize;

use super::*;
use crate::store::{AuditCursor, AuditLogged, Error, Result};

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// A store that can be away.
#[derive(Default)]
struct Kept {
    is_away: AtomicBool,
    entries: Mutex<Vec<AuditEntry>>,
    writes: AtomicUsize,
}

impl Audit for Kept {
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<()> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_away.load(Ordering::Relaxed) {
            return Err(Error::Unavailable("away".into()));
        }
        self.entries.lock().unwrap().extend(entries);
        Ok(())
    }

    async fn audit(&self, _: Option<AuditCursor>, _: usize) -> Result<AuditLogged> {
        Ok(AuditLogged::default())
    }
}

impl Kept {
    fn actions(&self) -> Vec<String> {
        self.entries.lock().unwrap().iter().map(|entry| entry.action.clone()).collect()
    }
}

fn log_over(store: &Arc<Kept>) -> (Arc<AuditLog>, Arc<Metrics>) {
    let metrics = Metrics::new([]);
    (AuditLog::start(store.clone(), metrics.clone(), Clock::system()), metrics)
}

fn record(log: &AuditLog, action: &str) {
    log.record(log.entry(AuditSource::Api, action, AuditResult::Done));
}

fn dropped(metrics: &Metrics, reason: &str) -> usize {
    let series = format!("delayd_audit_dropped_total{{reason=\"{reason}\"}} ");
    let text = metrics.encode();
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn entries_are_written_together_and_in_order() {
    let store = Arc::new(Kept::default());
    let (log, _) = log_over(&store);
    let actions: Vec<String> = (0..300).map(|n| n.to_string()).collect();
    actions.iter().for_each(|action| record(&log, action));
    log.finish(far()).await;
    assert_eq!(store.actions(), actions);
    assert_eq!(store.writes.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn entries_wait_for_a_store_that_is_away() {
    let store = Arc::new(Kept::default());
    let (log, metrics) = log_over(&store);
    store.is_away.store(true, Ordering::Relaxed);
    record(&log, "a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    // It is asked once a second.
    assert!((59..=62).contains(&store.writes.load(Ordering::Relaxed)));
    record(&log, "b");
    store.is_away.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.actions(), ["a", "b"]);
    assert_eq!(dropped(&metrics, "queue"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_delays_nobody_and_its_losses_are_counted() {
    let store = Arc::new(Kept::default());
    let (log, metrics) = log_over(&store);
    store.is_away.store(true, Ordering::Relaxed);
    // The writer takes the first one before the queue fills.
    record(&log, "first");
    tokio::time::sleep(Duration::from_millis(1)).await;
    (0..QUEUE + 10).for_each(|n| record(&log, &n.to_string()));
    assert_eq!(dropped(&metrics, "queue"), 10);
    store.is_away.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(store.actions().len(), QUEUE + 1);
    record(&log, "next");
    log.finish(far()).await;
    assert_eq!(store.actions().last().unwrap(), "next");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_delays_the_stop_only_a_little() {
    let store = Arc::new(Kept::default());
    let (log, metrics) = log_over(&store);
    store.is_away.store(true, Ordering::Relaxed);
    (0..QUEUE).for_each(|n| record(&log, &n.to_string()));
    let began = tokio::time::Instant::now();
    log.finish(far()).await;
    assert!(began.elapsed() <= LAST_ENTRIES);
    assert_eq!(dropped(&metrics, "stop"), QUEUE);
}
