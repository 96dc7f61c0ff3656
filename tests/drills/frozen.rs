//! The disk under the embedded store stands still for seconds: no write and no sync ends.

use std::time::{Duration, Instant};

use crate::account::Account;
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::nested::Nested;
use crate::program::folder;
use crate::receiver::{Receiver, now_ms};
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{is_long, quick_settings};

/// Adds are refused, and nobody waits for the disk. When it goes on, so does the service. All that
/// was confirmed is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn the_disk_stands_still() {
    let (spans, name) = if is_long() { (&[3, 10][..], "3 and 10") } else { (&[3][..], "3") };
    let mut row = Row::new(format!("disk frozen for {name} s, embedded"));
    let (folder, receiver, account) = (folder(), Receiver::start().await, Account::open());
    let mut disk = Nested::within(folder.path());
    // No lease runs out and no call is given up, so there is no cause for a duplicate.
    let mut sets = quick_settings(&receiver.endpoint(), Duration::from_secs(60));
    sets.push("callback.timeout=\"30s\"".into());
    let fleet = Fleet::start(fleet::embedded(disk.folder()), sets, 1).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for &span in spans {
        let span = Duration::from_secs(span);
        let before = account.accepted();
        crate::wait_until(|| account.accepted() > before + 100).await;

        let (began, began_ms, refused) = (Instant::now(), now_ms(), account.refusals());
        let frozen = disk.freeze();
        let saw = crate::wait_until(|| account.refusals() > refused).await;
        let first = began.elapsed();
        tokio::time::sleep(span.saturating_sub(first)).await;
        let calls = receiver.seen().into_iter().filter(|call| call.arrived_ms >= began_ms);
        let last = calls.clone().map(|call| call.arrived_ms - began_ms).max();
        row.note(format!(
            "{} s: first refusal after {} ms, {} refused, {} called, the last after {} ms",
            span.as_secs(),
            first.as_millis(),
            account.refusals() - refused,
            calls.count(),
            last.unwrap_or_default(),
        ));
        drop(frozen);
        row.promise(saw && first < span, "no add was refused while the disk stood still");

        let before = account.accepted();
        let back = crate::wait_until(|| account.accepted() > before + 20).await;
        row.promise(back, "adds still failed when the disk went on");
    }
    load.stop().await;
    // A caller that waits for the disk waits for the rest of the shortest span.
    let slowest = account.slowest_answer();
    row.promise(slowest < Duration::from_millis(2_900), "an add waited for the disk");
    row.promise_in_time(slowest < Duration::from_millis(1_200), "a refusal took too long");
    row.note(format!("slowest answer {} ms", slowest.as_millis()));
    row.promise(account.without_answer() == 0, "connections broke");
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    // The file system can be unmounted once nothing uses it.
    drop(fleet);
    row.finish();
}
