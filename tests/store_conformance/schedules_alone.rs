//! What recurring schedules cost those who have none, in commands to Redis.

use std::collections::BTreeMap;

use delayd::model::clock::Clock;
use delayd::store::redis::Redis;
use delayd::store::{
    Asker, Claimed, Delivery, Intake, Look, Planned, ScheduleSet, Schedules, Settle, Settled,
    Topics,
};

use crate::bench::{
    START, at, claim_of, delivered, expiring, ids, lane, new_task, topic, topic_of,
};
use crate::redis_alone::connect_to;
use crate::redis_server::Server;
use crate::schedules::{name, new, plan_for};

/// How often each command ran, in scripts and outside of them.
fn calls(server: &Server) -> BTreeMap<String, u64> {
    let stats = server.command(&["INFO", "commandstats"]);
    let call = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        // The test itself asks, and connections are kept alive.
        let counts = !["info", "ping"].contains(&name);
        counts.then(|| Some((name.to_owned(), rest.split(',').next()?.parse().ok()?)))?
    };
    stats.lines().filter_map(call).collect()
}

/// Two tasks are added, found by the poll, claimed and settled. One has options.
async fn live(store: &Redis) {
    for added in
        store.add(vec![new_task("message.call", 0), expiring("message.call", 0, 60_000)]).await
    {
        added.unwrap();
    }
    let known = store.topics().await.unwrap();
    let known = known.into_iter().find(|known| known.entry == topic()).unwrap();
    let planners = if known.has_schedules { vec![lane()] } else { Vec::new() };
    let look = Look { workers: vec![lane()], consumers: vec![lane()], planners, ..Look::default() };
    let looked = store.look(look).await;
    assert_eq!(looked.next.unwrap().unwrap().lanes, [Some(at(0))]);
    let Claimed::Granted(grant) = store.claim(claim_of(&[("message.call", 9)])).await.unwrap()
    else {
        panic!("nobody else claims");
    };
    let settle =
        |id| Settle { lane: lane(), id, receipt: grant.receipt.clone(), transition: delivered() };
    let settles: Vec<_> = ids(&grant).into_iter().map(settle).collect();
    assert_eq!(settles.len(), 2);
    for settled in store.settle(Asker::Worker, settles).await {
        assert_eq!(settled.unwrap(), Settled::Done);
    }
}

#[tokio::test]
async fn a_schedule_of_another_topic_adds_no_command_to_redis() {
    let server = Server::start();
    let store = connect_to(&server, &Clock::manual(START)).await;
    let other = topic_of("other", 1);
    for entry in [topic(), other.clone()] {
        store.create(entry, None).await.unwrap();
    }
    // The first lives load scripts and open connections.
    live(&store).await;
    live(&store).await;
    // Some lives draw ids or open a connection, as time passes. The one with the fewest commands
    // does not.
    let lived = async || {
        let mut lives = Vec::new();
        for _ in 0..5 {
            let before = calls(&server);
            live(&store).await;
            let mut calls = calls(&server);
            for (name, count) in before {
                *calls.get_mut(&name).unwrap() -= count;
            }
            calls.retain(|_, count| *count > 0);
            lives.push(calls);
        }
        lives.into_iter().min_by_key(|calls| calls.values().sum::<u64>()).unwrap()
    };
    let without = lived().await;
    let ScheduleSet::Created(schedule) = store.set_schedule(&other, new("a", "1")).await.unwrap()
    else {
        panic!("it is new");
    };
    let mut plan = plan_for(&schedule, 0);
    plan.topic = other.clone();
    plan.next.as_mut().unwrap().task.topic = other.clone();
    assert!(matches!(store.plan(plan).await.unwrap(), Planned::Added { .. }));
    assert_eq!(lived().await, without);
    // Nor does one of the topic, except in the poll.
    assert!(store.delete_schedule(&other.lanes().next().unwrap(), &name("a")).await.unwrap());
    store.set_schedule(&topic(), new("a", "1")).await.unwrap();
    let mut with = lived().await;
    let poll = ["evalsha", "zrange"].map(|name| with[name] - without[name]);
    assert_eq!(poll, [1, 1], "the poll asks for the plans of the lane");
    with.insert("evalsha".into(), without["evalsha"]);
    with.insert("zrange".into(), without["zrange"]);
    assert_eq!(with, without);
}
