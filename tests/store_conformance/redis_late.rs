//! Answers of Redis that come after their caller was refused.

use std::time::Duration;

use delayd::model::breaker;
use delayd::model::clock::Clock;
use delayd::model::task::State;
use delayd::store::redis::{Params, Redis};
use delayd::store::{Admin, Claim, Claimed, Delivery, Error, Intake};

use crate::bench::{claim_of, fresh_prefix, lane, new_task};
use crate::poll;
use crate::redis_server::Server;

/// While Redis stood still, a consumer pulled and was refused. Redis leased the tasks when it went
/// on, and nobody had them until their leases expired, up to 12 hours later.
#[tokio::test]
async fn tasks_of_a_pull_that_is_answered_too_late_are_given_back() {
    let server = Server::start();
    let prefix = fresh_prefix();
    let params = Params {
        key_prefix: prefix.clone(),
        timeout: Duration::from_secs(1),
        clock: Clock::system(),
        ..Params::standalone(server.url())
    };
    let store = Redis::connect(params).await.unwrap();
    let mut ids = Vec::new();
    for added in store.add(vec![new_task("@pull", 0); 3]).await {
        ids.push(added.unwrap().id);
    }
    let pull =
        Claim { holder: None, lease: Duration::from_secs(3_600), ..claim_of(&[("@pull", 2)]) };
    server.signal("STOP");
    let refused = store.claim(pull.clone()).await.unwrap_err();
    server.signal("CONT");
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    let entries = format!("{prefix}:DELAY_ATTEMPTS_TOPIC_TASK-{{orders:0}}");
    let is_claimed = async || server.command(&["HLEN", &entries]).trim() == "2";
    assert!(poll::until(is_claimed).await, "Redis has not executed the late claim");
    let all_wait = async || {
        let found = store.summaries(&lane(), ids.clone()).await.unwrap_or_default();
        let waits = |state, attempts| (state, attempts) == (State::Scheduled, 0);
        found.len() == 3 && found.iter().flatten().all(|task| waits(task.state, task.attempts))
    };
    assert!(poll::until(all_wait).await, "a task is leased to nobody");
    let Claimed::Granted(grant) = store.claim(pull).await.unwrap() else { panic!("refused") };
    assert_eq!(grant.tasks.iter().map(|task| task.attempt).collect::<Vec<_>>(), [1, 1]);
}

/// Each late claim keeps its connection until it is answered. Eight of them used to take all places
/// of the pool, and nothing more reached the server.
#[tokio::test]
async fn late_claims_leave_room_for_new_connections() {
    let server = Server::start();
    let patient =
        breaker::Params { consecutive_failures: 100, min_calls: 100, ..breaker::Params::default() };
    let params = Params {
        key_prefix: fresh_prefix(),
        timeout: Duration::from_secs(1),
        breaker: patient,
        ..Params::standalone(server.url())
    };
    let store = Redis::connect(params).await.unwrap();
    store.add(vec![new_task("@pull", 0)]).await.remove(0).unwrap();
    // New connections are served. Commands that may write are not.
    server.command(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    let are_many = async || {
        store.claim(claim_of(&[("@pull", 1)])).await.unwrap_err();
        server.command(&["CLIENT", "LIST"]).matches(" cmd=evalsha").count() >= 10
    };
    assert!(poll::until(are_many).await, "a claim got no connection");
    server.command(&["CLIENT", "UNPAUSE"]);
}
