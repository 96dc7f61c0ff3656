//! The registry's record of a topic: its policy and its pauses.

use delayd::model::task::{
    MisfirePolicy, Mode, State, Topic, TopicHistory, TopicPolicy, TopicRetry,
};
use delayd::store::{
    Asker, Claim, Idempotency, MAX_MISFIRES, Misfire, Misfired, NewTask, Novelty, Registered,
    Store, TopicEntry,
};
use delayd_wire::Backoff;
use delayd_wire::Rate;
use delayd_wire::Span;

use crate::bench::{
    Bench, at, claim_of, dead, delivered, ids, lane, ms, new_task, topic, topic_of,
};

fn orders() -> Topic {
    topic().topic
}

fn nobody() -> Topic {
    "nobody".parse().unwrap()
}

/// The only topic.
async fn registered(bench: &Bench<impl Store>) -> Registered {
    let mut topics = bench.store.topics().await.unwrap();
    assert_eq!(topics.len(), 1, "{topics:?}");
    let topic = topics.remove(0);
    assert_eq!(
        bench.store.topic(&topic.entry.topic).await.unwrap().as_ref(),
        Some(&topic),
        "the topic alone differs from the topic in the list"
    );
    topic
}

fn policy() -> TopicPolicy {
    TopicPolicy {
        retry: TopicRetry {
            max_attempts: Some(7),
            backoff: Some(Backoff::List { steps: vec![Span::seconds(5), Span(ms(1_500))] }),
            final_statuses: Some(vec![410, 422]),
        },
        timeout: Some(Span(ms(2_500))),
        mode: Some(Mode::Pull),
        rate: Some("100/s".parse::<Rate>().unwrap()),
        concurrency: Some(12),
        quota: Some(u64::from(u32::MAX) + 5),
        history: TopicHistory { keep: Some(Span::seconds(3_600)), max: Some(1_000) },
        misfire: Some(MisfirePolicy::Dead),
        lateness_objective: Some(Span(ms(250))),
    }
}

pub(crate) async fn a_policy_is_kept_as_it_was_set(bench: Bench<impl Store>) {
    assert!(
        !bench.store.set_policy(&orders(), &policy()).await.unwrap(),
        "a policy was set for an unknown topic"
    );
    assert!(bench.store.topics().await.unwrap().is_empty(), "setting a policy made a topic");
    bench.store.create(topic(), None).await.unwrap();
    bench.store.create(topic_of("others", 3), None).await.unwrap();
    assert!(bench.store.set_policy(&orders(), &policy()).await.unwrap());
    // Neither another registration nor the first task of a lane removes it.
    assert_eq!(bench.store.create(topic_of("orders", 5), None).await.unwrap(), topic());
    bench.add("message.call", 0).await;
    let mut topics = bench.store.topics().await.unwrap();
    topics.sort_by_key(|topic| topic.entry.topic.clone());
    assert_eq!(topics[0], Registered { policy: policy().into(), ..Registered::plain(topic()) });
    assert_eq!(topics[1], Registered::plain(topic_of("others", 3)));
    assert!(bench.store.set_policy(&orders(), &TopicPolicy::default()).await.unwrap());
    assert_eq!(
        bench
            .store
            .topics()
            .await
            .unwrap()
            .iter()
            .filter(|topic| *topic.policy != TopicPolicy::default())
            .count(),
        0
    );
}

pub(crate) async fn a_pause_lasts_until_it_is_ended(bench: Bench<impl Store>) {
    assert_eq!(bench.store.pause(&nobody()).await.unwrap(), None);
    assert_eq!(bench.store.resume(&nobody(), Some(Misfired::Dead)).await.unwrap(), None);
    assert!(bench.store.topics().await.unwrap().is_empty());
    bench.store.create(topic(), None).await.unwrap();
    bench.store.set_policy(&orders(), &policy()).await.unwrap();
    assert_eq!(bench.store.resume(&orders(), Some(Misfired::Dead)).await.unwrap(), Some(false));
    assert_eq!(registered(&bench).await.misfires, [], "a pause was recorded without a pause");
    bench.advance(10);
    assert_eq!(bench.store.pause(&orders()).await.unwrap(), Some(at(10)));
    bench.advance(10);
    assert_eq!(
        bench.store.pause(&orders()).await.unwrap(),
        Some(at(10)),
        "a second pause must keep the moment of the first"
    );
    let topic = registered(&bench).await;
    assert_eq!((topic.paused, topic.policy), (Some(at(10)), policy().into()));
    // The store itself goes on.
    bench.add("message.call", 0).await;
    bench.settle(&bench.hold().await, delivered()).await;
    assert_eq!(bench.store.resume(&orders(), None).await.unwrap(), Some(true));
    assert_eq!(bench.store.resume(&orders(), None).await.unwrap(), Some(false));
    let topic = registered(&bench).await;
    assert_eq!((topic.paused, topic.misfires, topic.policy), (None, vec![], policy().into()));
}

pub(crate) async fn the_newest_pauses_are_remembered_with_what_their_tasks_become(
    bench: Bench<impl Store>,
) {
    bench.store.create(topic(), None).await.unwrap();
    let mut expected = Vec::new();
    for n in 0..MAX_MISFIRES + 3 {
        let becomes = [None, Some(Misfired::Expired), Some(Misfired::Dead)][(n + 1) % 3];
        let from = bench.now();
        bench.store.pause(&orders()).await.unwrap();
        bench.advance(n as u64);
        assert_eq!(bench.store.resume(&orders(), becomes).await.unwrap(), Some(true));
        expected.extend(becomes.map(|becomes| Misfire { from, to: bench.now(), becomes }));
        bench.advance(5);
    }
    assert_eq!(registered(&bench).await.misfires, expected);
    for _ in 0..MAX_MISFIRES {
        bench.store.pause(&orders()).await.unwrap();
        bench.store.resume(&orders(), Some(Misfired::Dead)).await.unwrap();
        bench.advance(1);
    }
    let misfires = registered(&bench).await.misfires;
    assert_eq!(misfires.len(), MAX_MISFIRES);
    assert!(misfires.iter().all(|misfire| misfire.becomes == Misfired::Dead), "{misfires:?}");
    assert!(misfires.is_sorted_by_key(|misfire| misfire.to));
}

pub(crate) async fn a_pause_that_is_forgotten_leaves_the_others(bench: Bench<impl Store>) {
    let nothing = Misfire { from: at(0), to: at(1), becomes: Misfired::Dead };
    bench.store.forget_misfire(&nobody(), nothing).await.unwrap();
    assert!(bench.store.topics().await.unwrap().is_empty());
    bench.store.create(topic(), None).await.unwrap();
    bench.store.create(topic_of("others", 1), None).await.unwrap();
    bench.store.forget_misfire(&orders(), nothing).await.unwrap();
    for becomes in [Misfired::Expired, Misfired::Dead, Misfired::Expired] {
        for topic in [orders(), "others".parse().unwrap()] {
            bench.store.pause(&topic).await.unwrap();
            bench.advance(5);
            bench.store.resume(&topic, Some(becomes)).await.unwrap();
        }
    }
    bench.store.unregister(&topic_of("others", 1)).await.unwrap();
    let misfires = registered(&bench).await.misfires;
    assert_eq!(misfires.len(), 3);
    for other in [
        Misfire { becomes: Misfired::Expired, ..misfires[1] },
        Misfire { from: misfires[0].from, ..misfires[1] },
        Misfire { to: misfires[2].to, ..misfires[1] },
    ] {
        bench.store.forget_misfire(&orders(), other).await.unwrap();
    }
    assert_eq!(
        registered(&bench).await.misfires,
        misfires,
        "a pause was removed that differs from the named ones"
    );
    // A current pause is not affected.
    let since = bench.store.pause(&orders()).await.unwrap();
    for _ in 0..2 {
        bench.store.forget_misfire(&orders(), misfires[1]).await.unwrap();
        assert_eq!(registered(&bench).await.misfires, [misfires[0], misfires[2]]);
    }
    assert_eq!(registered(&bench).await.paused, since);
    bench.store.resume(&orders(), None).await.unwrap();
    for misfire in misfires {
        bench.store.forget_misfire(&orders(), misfire).await.unwrap();
    }
    assert_eq!(registered(&bench).await, Registered::plain(topic()));
    bench.store.pause(&orders()).await.unwrap().expect("the topic exists");
}

pub(crate) async fn only_tasks_due_in_a_pause_are_not_delivered_after_it(bench: Bench<impl Store>) {
    let backlog = bench.add("message.call", 10).await;
    let missed = [bench.add("message.call", 20).await, bench.add("message.call", 100).await];
    let after = bench.add("message.call", 101).await;
    bench.advance(20);
    bench.store.pause(&orders()).await.unwrap();
    bench.advance(80);
    bench.store.resume(&orders(), Some(Misfired::Expired)).await.unwrap();
    bench.advance(1);
    let misfires = registered(&bench).await.misfires;
    let grant = bench.grant(Claim { misfires, ..claim_of(&[("message.call", 9)]) }).await;
    assert_eq!(ids(&grant), [backlog, after]);
    for id in missed {
        assert_eq!(bench.state(id).await, State::Expired);
    }
}

pub(crate) async fn a_topic_is_unregistered_only_while_it_holds_nothing(bench: Bench<impl Store>) {
    assert!(
        bench.store.unregister(&topic_of("nobody", 1)).await.unwrap(),
        "the topic still exists"
    );
    let sharded = topic_of("orders", 3);
    bench.store.create(sharded.clone(), None).await.unwrap();
    bench.store.create(topic_of("others", 1), None).await.unwrap();
    bench.store.set_policy(&orders(), &policy()).await.unwrap();
    let unregister = async || bench.store.unregister(&sharded).await.unwrap();
    for shard in 0..3 {
        let id = loop {
            let id = bench
                .add_task(NewTask { topic: sharded.clone(), ..new_task("message.call", 0) })
                .await;
            if sharded.lane_of(id).shard == shard {
                break id;
            }
            bench.store.cancel(&sharded.lane_of(id), id, None).await.unwrap();
            bench
                .store
                .discard(&sharded.lane_of(id), State::Cancelled, vec![id], None)
                .await
                .unwrap();
        };
        let lane = sharded.lane_of(id);
        assert!(!unregister().await, "one waits in lane {shard}");
        let grant =
            bench.grant(Claim { lane: lane.clone(), ..claim_of(&[("message.call", 1)]) }).await;
        assert!(!unregister().await, "one is leased in lane {shard}");
        let receipt = grant.receipt;
        bench
            .store
            .settle(
                Asker::Worker,
                vec![delayd::store::Settle { lane: lane.clone(), id, receipt, transition: dead() }],
            )
            .await;
        assert!(!unregister().await, "one is dead in lane {shard}");
        assert_eq!(bench.store.topics().await.unwrap().len(), 2);
        assert_eq!(bench.store.discard(&lane, State::Dead, vec![id], None).await.unwrap(), 1);
    }
    bench.store.pause(&orders()).await.unwrap();
    assert!(unregister().await);
    assert!(unregister().await, "a repeat");
    assert_eq!(registered(&bench).await.entry, topic_of("others", 1));
    assert_eq!(bench.store.pause(&orders()).await.unwrap(), None);
    assert!(!bench.store.set_policy(&orders(), &policy()).await.unwrap());
}

pub(crate) async fn an_unregistered_topic_loses_its_settings(bench: Bench<impl Store>) {
    let once = Some(Idempotency { key: "k".into(), fingerprint: 1, window: ms(60_000) });
    let add = async |entry: TopicEntry| {
        bench
            .try_add(NewTask {
                topic: entry,
                idempotency: once.clone(),
                ..new_task("message.call", 0)
            })
            .await
    };
    let first = add(topic()).await.unwrap();
    bench.store.set_policy(&orders(), &policy()).await.unwrap();
    bench.store.pause(&orders()).await.unwrap();
    bench.store.resume(&orders(), Some(Misfired::Dead)).await.unwrap();
    bench.store.pause(&orders()).await.unwrap();
    bench.store.cancel(&lane(), first.id, None).await.unwrap();
    assert_eq!(
        bench.store.discard(&lane(), State::Cancelled, vec![first.id], None).await.unwrap(),
        1
    );
    assert!(bench.store.unregister(&topic()).await.unwrap());
    assert!(bench.store.topics().await.unwrap().is_empty());
    // With another number of lanes, as its first task says, and without its old settings.
    let second = add(topic_of("orders", 2)).await.unwrap();
    assert_eq!(second.novelty, Novelty::New);
    assert_eq!(registered(&bench).await, Registered::plain(topic_of("orders", 2)));
    let lane = topic_of("orders", 2).lane_of(second.id);
    assert_eq!(bench.store.stats(&lane).await.unwrap().scheduled, 1);
    assert!(matches!(add(topic_of("orders", 2)).await.unwrap().novelty, Novelty::Duplicate { .. }));
}
