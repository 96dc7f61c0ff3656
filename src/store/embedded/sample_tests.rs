//! What a sample costs on SQLite.

use std::time::Duration;

use rusqlite::Connection;

use super::*;
use crate::store::Store;
use crate::store::embedded::sql::{destination, lane, schedule};
use crate::store::embedded::testing::{bench, lane as first_lane, new_task};

/// A plan that begins with SCAN reads a whole table or index.
#[tokio::test]
async fn a_sample_scans_no_table() {
    let bench = bench();
    bench.store.close().await;
    let db = Connection::open(bench.folder.path().join("delayd.db")).unwrap();
    for sql in [
        lane::sampled::SQL,
        destination::sampled::SQL,
        destination::sampled_pull::SQL,
        schedule::COUNT_WITHIN,
    ] {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let unknown = vec![rusqlite::types::Null; plan.parameter_count()];
        let steps = plan.query_map(rusqlite::params_from_iter(unknown), |row| row.get("detail"));
        for step in steps.unwrap() {
            let step: String = step.unwrap();
            let is_bounded = step.starts_with("SEARCH") || step.starts_with("CO-ROUTINE");
            assert!(is_bounded || step.starts_with("SCAN (subquery"), "{step} in {sql}");
        }
    }
}

#[tokio::test]
async fn a_count_stops_at_its_limit_and_the_lanes_count_completes_it() {
    let bench = bench();
    let most = MOST_ROWS_OF_ONE + 10;
    let tasks: Vec<_> = (0..most).map(|_| new_task("a", 0)).collect();
    for chunk in tasks.chunks(1_000) {
        bench.store.add(chunk.to_vec()).await.into_iter().for_each(|added| assert!(added.is_ok()));
    }
    bench.add("b", 60_000).await;
    let (late_after, within) = (vec![Duration::ZERO], vec![Duration::ZERO]);
    let query =
        SampleQuery { lanes: vec![first_lane()], late_after, within, ..SampleQuery::default() };
    let sampled = bench.store.sample(query.clone()).await.unwrap();
    let [a, b] =
        <[ScheduleSample; 2]>::try_from(sampled.lanes[0].clone().unwrap().schedules).unwrap();
    assert_eq!((a.due, a.is_cut, a.waiting), (vec![MOST_ROWS_OF_ONE], true, most));
    assert_eq!((b.due, b.is_cut, b.waiting), (vec![0], false, 1));
    let thorough = SampleQuery { is_thorough: true, ..query };
    let counted = bench.store.sample(thorough).await.unwrap().lanes[0].clone().unwrap();
    let a = &counted.schedules[0];
    assert_eq!((&a.due, a.is_cut, a.waiting), (&vec![most], false, most));
    bench.store.close().await;
    let db = Connection::open(bench.folder.path().join("delayd.db")).unwrap();
    let moments = [sampled.now - Duration::from_secs(1), sampled.now];
    let lane =
        of_lane(&db, &first_lane(), UnixMillis(0), &moments, |id| count(&db, id, &moments, 0))
            .unwrap();
    let due: Vec<u64> = lane.schedules.iter().map(|schedule| schedule.due[0]).collect();
    assert_eq!(due, [1, 0], "no rows are left, and the overdue destination is still named");
}
