//! Two instances on one Redis, replaced one after the other under load, without any effect on
//! callers.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::account::Account;
use crate::fleet::{self, By, Fleet};
use crate::load::{Load, Plan};
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{quick_settings, rounds};

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_restarted_in_turn() {
    let restarts = rounds(2, 20);
    let mut row = Row::new(format!("rolling restart ×{restarts}, two on Redis"));
    let server = Server::start();
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let sets = quick_settings(&receiver.endpoint(), Duration::from_secs(30));
    let mut fleet = Fleet::start(fleet::redis(&server), sets, 2).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    for round in 0..restarts {
        tokio::time::sleep(Duration::from_millis(rand::random_range(300..700))).await;
        let (code, log) = fleet.retire(round % 2).await;
        row.promise(code == Some(0), format!("a drain ended with {code:?}: {log}"));
        fleet.raise(round % 2).await;
    }
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.promise(row.duplicates() == 0, "an orderly restart caused duplicates");
    let unanswered = account.without_answer();
    // A request may be sent on an idle connection while the server closes it, as everywhere in
    // HTTP/1.1. More than one per restart is a bug.
    row.promise(
        unanswered <= restarts as u64,
        format!("{unanswered} adds were neither answered nor refused"),
    );
    row.note(format!("{unanswered} adds met a closing connection"));
    row.note(format!("{} adds refused and repeated", account.refusals()));
    row.finish();
}

/// The file of the environment variable `OLDER_DELAYD` with an earlier version. Without it, this
/// program, which shows only that the drill works.
fn older() -> By {
    let program = std::env::var_os("OLDER_DELAYD");
    Box::new(move |serve| match &program {
        None => serve,
        Some(program) => {
            let mut older = Command::new(program);
            older.env_clear().args(serve.get_args()).stdin(Stdio::null());
            older
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_upgraded_in_turn_and_back() {
    /// How long two versions work beside each other, before and after each replacement.
    const BESIDE: Duration = Duration::from_secs(3);
    let mut row = Row::new("rolling upgrade and back, two on Redis");
    let server = Server::start();
    let receiver =
        Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
    let account = Account::open();
    let sets = quick_settings(&receiver.endpoint(), Duration::from_secs(30));
    let mut fleet = Fleet::start_by(fleet::redis(&server), sets, 2, older()).await;
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    let newer: By = Box::new(|serve| serve);
    for version in [newer, older()] {
        fleet.start_others_by(version);
        for index in 0..2 {
            tokio::time::sleep(BESIDE).await;
            let (code, log) = fleet.retire(index).await;
            row.promise(code == Some(0), format!("a drain ended with {code:?}: {log}"));
            fleet.raise(index).await;
        }
    }
    tokio::time::sleep(BESIDE).await;
    load.stop().await;
    row.settle(Verdict::of(&account, fleet.member(0), || receiver.seen()).await);
    row.promise(row.duplicates() == 0, "a replacement caused duplicates");
    row.note(format!("{} adds met a closing connection", account.without_answer()));
    row.note(format!("{} adds refused and repeated", account.refusals()));
    row.finish();
}
