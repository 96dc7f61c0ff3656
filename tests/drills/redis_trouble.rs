//! A Redis that answers, but refuses: memory at its limit, a disk that it cannot write to, still
//! loading, settings that lose data.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::account::{Account, Cause};
use crate::fleet::{self, Fleet};
use crate::load::{Load, Plan};
use crate::program::StoreAt;
use crate::receiver::{Answer, Receiver};
use crate::redis_server::Server;
use crate::row::Row;
use crate::verdict::Verdict;
use crate::{is_long, quick_settings};

pub const LEASE: Duration = Duration::from_secs(2);
pub const WHILE: Duration = Duration::from_millis(800);

/// Everything that such a drill needs.
pub struct Scene {
    pub row: Row,
    pub account: Arc<Account>,
    receiver: Receiver,
    pub fleet: Fleet,
    load: Load,
}

impl Scene {
    pub async fn set(drill: &str, server: &Server) -> Self {
        let row = Row::new(drill);
        let receiver =
            Receiver::answering(|call| Answer::After(Duration::from_millis(call.id % 60))).await;
        let account = Account::open();
        let fleet =
            Fleet::start(fleet::redis(server), quick_settings(&receiver.endpoint(), LEASE), 1)
                .await;
        let load = Load::start(&account, &fleet.endpoints(), Plan::default());
        tokio::time::sleep(WHILE).await;
        Self { row, account, receiver, fleet, load }
    }

    /// Waits until adds are refused.
    pub async fn is_refused(&mut self, why: &str) {
        let before = self.account.refusals();
        let refused = crate::wait_until(|| self.account.refusals() > before + 10).await;
        self.row.promise(refused, format!("adds were not refused: {why}"));
    }

    /// Waits until everything confirmed by now has been called.
    pub async fn goes_out(&mut self, why: &str) {
        let ids: Vec<u64> =
            self.account.adds().values().filter_map(|added| Some(added.confirmed?.0)).collect();
        let went_out = crate::wait_until(|| {
            let called: std::collections::HashSet<u64> =
                self.receiver.seen().iter().map(|call| call.id).collect();
            ids.iter().all(|id| called.contains(id))
        });
        let went_out = went_out.await;
        self.row.promise(went_out, format!("existing tasks were not delivered: {why}"));
    }

    /// Waits until adds are accepted again.
    pub async fn is_accepted_again(&mut self) {
        let before = self.account.accepted();
        let back = crate::wait_until(|| self.account.accepted() > before + 10).await;
        self.row.promise(back, "adds still failed after the fault");
    }

    pub async fn end(mut self) {
        self.load.stop().await;
        self.row.note(format!("{} adds refused", self.account.refusals()));
        let seen = || self.receiver.seen();
        self.row.settle(Verdict::of(&self.account, self.fleet.member(0), seen).await);
        self.row.finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_at_its_limit() {
    let server = Server::start();
    let mut scene = Scene::set("Redis at maxmemory", &server).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    scene.is_refused("memory is at its limit").await;
    scene.goes_out("memory is at its limit").await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    scene.is_accepted_again().await;
    scene.end().await;
}

/// A failed snapshot makes Redis answer MISCONF to every write, including settles and claims.
/// Nothing can be delivered, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_cannot_be_written() {
    let server = Server::with_options(&["--enable-protected-configs", "yes"]);
    let home = server.command(&["CONFIG", "GET", "dir"]).lines().nth(1).unwrap().to_owned();
    let mut scene = Scene::set("Redis answers MISCONF", &server).await;
    server.command(&["CONFIG", "SET", "save", "3600 1"]);
    // No user can make a file there, not even root.
    server.command(&["CONFIG", "SET", "dir", "/proc"]);
    let account = scene.account.clone();
    let away = account.fault(Cause::StoreAway);
    server.command(&["BGSAVE"]);
    scene.is_refused("Redis answers MISCONF").await;
    tokio::time::sleep(if is_long() { 2 * LEASE } else { WHILE }).await;
    server.command(&["CONFIG", "SET", "dir", &home]);
    server.command(&["CONFIG", "SET", "save", ""]);
    scene.is_accepted_again().await;
    drop(away);
    scene.end().await;
}

/// A Redis that reads its AOF answers LOADING for a while, even to a PING.
#[tokio::test(flavor = "multi_thread")]
async fn still_loading() {
    // Each key takes a moment to load, as in a large AOF.
    let mut server = Server::with_options(&["--key-load-delay", "1500"]);
    let mut scene = Scene::set("Redis answers LOADING", &server).await;
    let far: Vec<Value> = (0..if is_long() { 3_000 } else { 800 })
        .map(|_| {
            json!({
                "topic": "far", "delay": "1h", "content": {"sn": crate::SERVICE, "url": "/"},
            })
        })
        .collect();
    scene.fleet.member(0).add_all(&far).await;
    let account = scene.account.clone();
    let away = account.fault(Cause::StoreAway);
    let refused = account.refusals();
    let loading = tokio::task::block_in_place(|| {
        server.kill();
        let since = Instant::now();
        server.restart();
        since.elapsed()
    });
    scene.row.promise(account.refusals() > refused, "no add was refused while Redis was loading");
    scene.row.note(format!("loading took {} ms", loading.as_millis()));
    scene.is_accepted_again().await;
    drop(away);
    scene.end().await;
}

/// Without AOF, an answer promises nothing. With an eviction policy, the service does not start.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_keep_nothing() {
    let mut row = Row::new("Redis without AOF; with allkeys-lru");
    let server = Server::with_options(&["--appendonly", "no"]);
    let receiver = Receiver::start().await;
    let sets = quick_settings(&receiver.endpoint(), LEASE);
    let account = Account::open();
    let fleet = Fleet::start(fleet::redis(&server), sets.clone(), 1).await;
    let task = json!({"topic": "t", "delay": 0, "content": {"sn": crate::SERVICE, "url": "/"}});
    let answer = fleet.member(0).add(task).await;
    row.promise(
        answer.body["durability"] == "volatile",
        format!("an add without AOF was answered {}", answer.body),
    );
    let load = Load::start(&account, &fleet.endpoints(), Plan::default());
    tokio::time::sleep(WHILE).await;
    load.stop().await;
    let numbered =
        || receiver.seen().into_iter().filter(|call| call.body.contains("\"n\"")).collect();
    row.settle(Verdict::of(&account, fleet.member(0), numbered).await);

    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let (code, said) = refused_start(StoreAt::Redis(server.port(), "evicted".into())).await;
    row.promise(
        code == 78 && said.contains("allkeys-lru"),
        format!("with allkeys-lru the start ended with {code}: {said}"),
    );
    row.finish();
}

/// A start that must fail. Returns its exit code and its output.
async fn refused_start(store: StoreAt) -> (i32, String) {
    let StoreAt::Redis(port, prefix) = store else { unreachable!("the store is a Redis") };
    let mut command = crate::program::command(&[
        "store.kind=\"redis\"".into(),
        format!("store.redis.urls=[\"redis://127.0.0.1:{port}/0\"]"),
        format!("store.redis.key_prefix={prefix:?}"),
        "http.bind=\"127.0.0.1:0\"".into(),
    ]);
    command.arg("serve");
    let ended = tokio::time::timeout(Duration::from_secs(30), crate::program::run(command)).await;
    let (code, _, said) = ended.expect("a start on an evicting Redis did not end at once");
    (code, said)
}
