//! The disk under the embedded store: full, broken, slow.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::account::{Account, Cause};
use crate::fleet::{self, By, Fleet};
use crate::full::Full;
use crate::load::{Load, Plan};
use crate::program::folder;
use crate::receiver::{Answer, Receiver};
use crate::row::Row;
use crate::strace::Injected;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);

async fn receiver() -> Receiver {
    Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await
}

/// The kernel reports an I/O error for an fsync. It is unknown what the disk holds then. The
/// process stops, and the next one finds everything that was confirmed.
#[tokio::test(flavor = "multi_thread")]
async fn an_fsync_fails() {
    let errors = rounds(1, 5);
    let mut row = Row::new(format!("fsync answers EIO ×{errors}, embedded"));
    let (folder, receiver, account) = (folder(), receiver().await, Account::open());
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let mut fleet = Fleet::start(fleet::embedded(folder.path()), sets, 1).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for _ in 0..errors {
        tokio::time::sleep(Duration::from_millis(rand::random_range(300..900))).await;
        let crash = account.fault(Cause::Crash);
        let pid = fleet.member(0).pid();
        let broken = tokio::task::block_in_place(|| Injected::into_fsyncs(pid, "error=EIO"));
        let (code, log) = fleet.ended(0).await;
        drop(broken);
        row.promise(code == Some(1), format!("the process ended with {code:?}: {log}"));
        fleet.raise(0).await;
        drop(crash);
    }
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.finish();
}

/// Each fsync takes 20 ms longer. Everything is slower, and nothing else changes.
#[tokio::test(flavor = "multi_thread")]
async fn fsyncs_are_slow() {
    let mut row = Row::new("fsyncs slowed by 20 ms, embedded");
    let (folder, receiver, account) = (folder(), receiver().await, Account::open());
    let mut sets = quick_settings(&receiver.endpoint(), Duration::from_secs(30));
    // A traced process is slow in everything, and no call is to be given up for that.
    sets.push("callback.timeout=\"20s\"".into());
    let fleet = Fleet::start(fleet::embedded(folder.path()), sets, 1).await;
    let pid = fleet.member(0).pid();
    let slow = tokio::task::block_in_place(|| Injected::into_fsyncs(pid, "delay_enter=20000"));
    let load = Load::start(&account, &fleet.endpoints(), Plan { adders: 32, ..Plan::default() });
    tokio::time::sleep(Duration::from_secs(rounds(3, 10) as u64)).await;
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    drop(slow);
    row.promise(row.duplicates() == 0, "a slow disk caused duplicates");
    row.note(format!("slowest answer {} ms", account.slowest_answer().as_millis()));
    row.finish();
}

/// The file system is full. Adds are refused and existing tasks are delivered. When there is room
/// again, adds succeed again.
#[tokio::test(flavor = "multi_thread")]
async fn the_disk_is_full() {
    let fills = rounds(1, 3);
    let mut row = Row::new(format!("disk full ×{fills}, embedded"));
    let (folder, receiver, account) = (folder(), receiver().await, Account::open());
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let mut fleet =
        Fleet::start_by(fleet::embedded(folder.path()), sets, 1, small_disk(folder.path())).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for _ in 0..fills {
        tokio::time::sleep(Duration::from_millis(800)).await;
        let full = tokio::task::block_in_place(|| {
            Full::of(&as_seen_by(fleet.member(0).pid(), folder.path()))
        });
        let refused = account.refusals();
        let saw = crate::wait_until(|| account.refusals() > refused + 20).await;
        row.promise(saw, "no add was refused although the disk is full");
        // Everything confirmed until now falls due within a second and a half.
        let confirmed = account.accepted();
        let went_out = delivered_meanwhile(&account, &fleet, &receiver).await;
        row.promise(
            went_out,
            format!("some of {confirmed} tasks were not delivered while the disk was full"),
        );
        drop(full);
        let before = account.accepted();
        let back = crate::wait_until(|| account.accepted() > before + 20).await;
        row.promise(back, "adds still failed when there was room again");
    }
    load.stop().await;
    row.note(format!("{} adds refused", account.refusals()));
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    // A restart would need the process's file system, which is gone with the process. So this drill
    // has none.
    fleet.kill(0);
    row.finish();
}

/// Whether everything accepted until now is called within half a minute.
async fn delivered_meanwhile(account: &Arc<Account>, _fleet: &Fleet, receiver: &Receiver) -> bool {
    let ids: Vec<u64> =
        account.adds().values().filter_map(|added| Some(added.confirmed?.0)).collect();
    crate::wait_until(|| {
        let called: std::collections::HashSet<u64> =
            receiver.seen().iter().map(|call| call.id).collect();
        ids.iter().all(|id| called.contains(id))
    })
    .await
}

/// A file system in memory for the process, at `folder`. It needs no root: the process is root of a
/// user namespace.
pub fn small_disk(folder: &Path) -> By {
    const THEN: &str = r#"mount -t tmpfs -o size=256m drill "$1" && shift && exec "$@""#;
    let possible = Command::new("unshare")
        .args(["-Urm", "true"])
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        possible,
        "this drill mounts a file system in a user namespace (unshare -Urm), \
         which this machine forbids"
    );
    let folder = folder.to_owned();
    Box::new(move |serve| {
        let mut command = Command::new("unshare");
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.args(["-Urm", "sh", "-c", THEN, "small-disk"]).arg(&folder);
        command.arg(serve.get_program()).args(serve.get_args());
        command
    })
}

/// The folder as the process with this id sees it.
pub fn as_seen_by(pid: u32, folder: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root")).join(folder.strip_prefix("/").unwrap())
}
