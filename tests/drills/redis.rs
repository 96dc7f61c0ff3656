//! kill -9 of Redis under load.

use std::time::Duration;

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_syncs_every_second() {
    kill_again_and_again("everysec").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_syncs_always() {
    kill_again_and_again("always").await;
}

/// With `everysec` nothing is lost either, as long as the machine stays up: what Redis wrote is in
/// the page cache.
async fn kill_again_and_again(fsync: &str) {
    let kills = rounds(2, 20);
    let mut row = Row::new(format!("kill -9 of Redis ×{kills}, {fsync}"));
    let mut server = Server::with_options(&["--appendfsync", fsync]);
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let fleet =
        Fleet::start(fleet::redis(&server), quick_settings(&receiver.endpoint(), LEASE), 1).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(rand::random_range(300..900))).await;
        let away = account.fault(Cause::StoreAway);
        tokio::task::block_in_place(|| server.kill());
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..400))).await;
        tokio::task::block_in_place(|| server.restart());
        // A settle whose answer was lost is repeated only now.
        fleet.member(0).wait_until_ready(200).await;
        drop(away);
    }
    load.stop().await;
    row.note(format!("{} adds refused", account.refusals()));
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.finish();
}
