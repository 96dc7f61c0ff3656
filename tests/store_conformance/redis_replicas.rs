//! `wait_replicas` with a replica that does not answer.

use std::time::Duration;

use delayd::model::clock::Clock;
use delayd::store::redis::{Params, Redis};
use delayd::store::{Admin, Intake, Store};

use crate::bench::{fresh_prefix, new_task};
use crate::redis_server::Server;
use crate::transfer::stranger;

/// Moves and health checks shared the connection of adds. Each waited for the replica, one after
/// the other, until the last of them took the connection for silent: adds failed, and the circuit
/// breaker opened.
#[tokio::test]
async fn adds_do_not_wait_behind_moves_and_health_checks() {
    let server = Server::start();
    let params = Params {
        key_prefix: fresh_prefix(),
        timeout: Duration::from_secs(2),
        clock: Clock::system(),
        wait_replicas: 1,
        ..Params::standalone(server.url())
    };
    let store = Redis::connect(params).await.unwrap();
    for round in 0..2_u64 {
        let adds = store.add(vec![new_task("message.call", 0)]);
        let moves = |n: u64| store.adopt(vec![stranger(1_700_000_000_000_000 + 10 * round + n)]);
        let (added, ..) = tokio::join!(adds, moves(0), moves(1), moves(2), moves(3), store.ping());
        let error = added[0].as_ref().unwrap_err().to_string();
        assert!(error.contains("0 of 1 replicas"), "{error}");
    }
}
