//! What is counted of the calls of a store.

use delayd::metrics::Metrics;
use delayd::store::{
    Admin, AnyStore, Claim, Claimed, Delivery, Error, Idempotency, Intake, LockToken, NewTask,
    Store,
};

use crate::bench::{self, Bench, claim_of, expiring, lane, new_task};

/// The value of a series.
fn value(store: &AnyStore, series: &str) -> f64 {
    let text = Metrics::with_store([], store.metrics().clone()).encode();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("{series} is absent")).trim().parse().unwrap()
}

/// Asserts the values of some series, and that other series exist.
fn check(store: &AnyStore, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        assert_eq!(value(store, series), *expected, "{series}");
    }
}

async fn the_ends_that_a_claim_finds_are_counted(bench: Bench<AnyStore>) {
    let store = &bench.store;
    let ends = [
        r#"delayd_tasks_ended_total{state="expired",cause="expires_after"}"#,
        r#"delayd_tasks_ended_total{state="cancelled",cause="pending_cancel"}"#,
        r#"delayd_leases_expired_total{mode="push"}"#,
        r#"delayd_leases_expired_total{mode="pull"}"#,
    ];
    check(store, &ends.map(|series| (series, 0.0)));
    bench.add_task(expiring("message.call", 0, 0)).await;
    bench.advance(1);
    let held = bench.add_held().await;
    store.cancel(&lane(), held.id, None).await.unwrap();
    bench.add("@pull", 0).await;
    bench.claim(&[("@pull", 1)]).await;
    bench.let_lease_run_out();
    bench.sweep().await;
    check(store, &ends.map(|series| (series, 1.0)));
}

async fn each_call_is_measured_and_each_error_is_counted(bench: Bench<AnyStore>) {
    let store = &bench.store;
    let reused = r#"delayd_store_errors_total{op="add",kind="key_reused"}"#;
    check(
        store,
        &[
            (r#"delayd_store_operation_duration_seconds_count{op="add"}"#, 0.0),
            (r#"delayd_store_operation_duration_seconds_count{op="ping"}"#, 0.0),
            (reused, 0.0),
        ],
    );
    let task = |fingerprint| NewTask {
        idempotency: Some(Idempotency {
            key: "one".into(),
            fingerprint,
            window: std::time::Duration::from_secs(60),
        }),
        ..new_task("message.call", 0)
    };
    store.add(vec![task(1)]).await.remove(0).unwrap();
    let refused = store.add(vec![task(2), new_task("message.call", 0)]).await;
    assert!(matches!(refused[..], [Err(Error::KeyReused), Ok(_)]), "{refused:?}");
    store.ping().await.unwrap();
    check(
        store,
        &[
            (r#"delayd_store_operation_duration_seconds_count{op="add"}"#, 2.0),
            (r#"delayd_store_operation_duration_seconds_count{op="ping"}"#, 1.0),
            (reused, 1.0),
        ],
    );
}

async fn has_only_the_series_of_its_store(bench: Bench<AnyStore>) {
    let text = Metrics::with_store([], bench.store.metrics().clone()).encode();
    let is_embedded = matches!(bench.store, AnyStore::Embedded(_));
    for (family, expected) in [
        ("delayd_disk_free_bytes ", is_embedded),
        ("delayd_disk_reserve_bytes ", is_embedded),
        ("delayd_fsync_duration_seconds_count ", is_embedded),
        ("delayd_store_breaker{server=", !is_embedded),
        ("delayd_id_reserve ", !is_embedded),
    ] {
        assert_eq!(text.contains(&format!("\n{family}")), expected, "{family} in\n{text}");
    }
}

async fn a_full_disk_is_seen_coming(bench: Bench<AnyStore>) {
    assert!(value(&bench.store, "delayd_disk_free_bytes") > 0.0);
    assert_eq!(value(&bench.store, "delayd_disk_reserve_bytes"), f64::from(1 << 20));
    let syncs = || value(&bench.store, "delayd_fsync_duration_seconds_count");
    let before = syncs();
    bench.add("message.call", 0).await;
    assert_eq!(syncs(), before + 1.0);
    // A worker's claim is answered before it is on disk.
    let holder = Some(LockToken("me".into()));
    let claim = Claim { holder, ..claim_of(&[("message.call", 1)]) };
    bench.grant(claim).await;
    assert_eq!(syncs(), before + 1.0);
}

/// One instance keeps the lane's lock between two claims of a burst.
async fn a_claim_that_finds_the_lane_locked_is_counted(bench: Bench<AnyStore>) {
    let store = &bench.store;
    check(store, &[("delayd_claims_denied_total", 0.0)]);
    bench.add("message.call", 0).await;
    bench.add("message.call", 0).await;
    let claim = |name: &str| Claim {
        holder: Some(LockToken(name.into())),
        more: true,
        ..claim_of(&[("message.call", 1)])
    };
    bench.grant(claim("one")).await;
    let other = store.claim(claim("other")).await.unwrap();
    assert!(matches!(other, Claimed::Refused { .. }), "{other:?}");
    check(store, &[("delayd_claims_denied_total", 1.0)]);
}

/// A test for each sentence and store.
macro_rules! counted {
    ($($store:ident: $($sentence:ident),+;)+) => {
        $(mod $store {
            $(#[tokio::test]
            async fn $sentence() {
                super::$sentence(super::bench::$store().await).await;
            })+
        })+
    };
}

counted! {
    embedded:
        the_ends_that_a_claim_finds_are_counted,
        each_call_is_measured_and_each_error_is_counted,
        has_only_the_series_of_its_store,
        a_full_disk_is_seen_coming;
    redis:
        the_ends_that_a_claim_finds_are_counted,
        each_call_is_measured_and_each_error_is_counted,
        has_only_the_series_of_its_store,
        a_claim_that_finds_the_lane_locked_is_counted;
}
