//! kill -9 of the service, again and again, under load.

use std::time::Duration;

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::program::{StoreAt, folder};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_an_embedded_store() {
    let folder = folder();
    kill_again_and_again("embedded", fleet::embedded(folder.path()), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_redis_that_syncs_every_second() {
    let server = Server::start();
    kill_again_and_again("Redis everysec", fleet::redis(&server), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_redis_that_syncs_always() {
    let server = Server::with_options(&["--appendfsync", "always"]);
    kill_again_and_again("Redis always", fleet::redis(&server), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_killed_in_turn() {
    let server = Server::start();
    kill_again_and_again("one of two on Redis", fleet::redis(&server), 2).await;
}

async fn kill_again_and_again(on: &str, store: StoreAt, instances: usize) {
    // The long form kills one instance many times. With two instances, fewer kills show that the
    // other goes on.
    let kills = rounds(3, if instances == 1 { 100 } else { 40 });
    let mut row = Row::new(format!("kill -9 of delayd ×{kills}, {on}"));
    // A call takes a while, so that a kill happens during calls.
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let mut fleet =
        Fleet::start(store, quick_settings(&receiver.endpoint(), LEASE), instances).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for round in 0..kills {
        tokio::time::sleep(Duration::from_millis(rand::random_range(100..600))).await;
        let victim = round % instances;
        let crash = account.fault(Cause::Crash);
        fleet.kill(victim);
        fleet.raise(victim).await;
        drop(crash);
    }
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.promise_redelivery(LEASE);
    row.finish();
}
