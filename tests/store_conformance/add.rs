//! `add`: (nothing) → scheduled.

use delayd::model::task::{Headers, Options, State, TaskId};
use delayd::store::{Hint, Moment, NewTask, Reader, Spread, Store};
use delayd_wire::Backoff;
use delayd_wire::Span;

use crate::bench::{Bench, Held, START, at, dead, hear, lane, ms, new_task, topic_of};

/// The first id that may be drawn in a second of the bench's clock.
fn floor(second: i64) -> u64 {
    (START.0 / 1_000 + second).unsigned_abs() * TaskId::PER_SECOND
}

pub(crate) async fn ids_grow_and_start_at_the_clock_times_a_million(bench: Bench<impl Store>) {
    let first = bench.add("message.call", 0).await;
    // The first draw in a run of Redis skips the ids of seven seconds.
    assert!(
        (floor(0)..floor(8)).contains(&first.0),
        "{first} does not begin with the second in which it was drawn"
    );
    let second = bench.add("message.call", 0).await;
    assert!(second > first);

    bench.advance(3_600_000);
    let mut batch = Vec::new();
    // A slow store has drawn more than one batch ahead.
    for _ in 0..4 {
        let added = bench.store.add(vec![new_task("message.call", 0); 2_000]).await;
        batch = added.into_iter().map(|added| added.unwrap().id).collect::<Vec<TaskId>>();
        if batch[1_999].0 >= floor(3_600) {
            break;
        }
    }
    assert!(batch.is_sorted_by(|a, b| a < b));
    assert!(
        (floor(3_600)..floor(3_601)).contains(&batch[1_999].0),
        "{} does not begin with the second in which it was drawn",
        batch[1_999]
    );

    bench.clock.set(START);
    assert!(
        bench.add("message.call", 0).await > batch[1_999],
        "an id was repeated after the clock was set back"
    );
}

pub(crate) async fn an_add_answers_the_due_moment_and_clamps_the_past(bench: Bench<impl Store>) {
    bench.advance(5_000);
    let check = async |moment: Moment, due_ms: i64| {
        let task = NewTask { moment, ..new_task("message.call", 0) };
        let added = bench.store.add(vec![task]).await.remove(0).unwrap();
        assert_eq!(added.due, at(due_ms), "{moment:?}");
        let task = bench.get(added.id).await;
        assert_eq!((task.due, task.created), (at(due_ms), at(5_000)), "{moment:?}");
    };
    check(Moment::After(ms(0)), 5_000).await;
    check(Moment::After(ms(1_234)), 6_234).await;
    check(Moment::At(at(9_999)), 9_999).await;
    check(Moment::At(at(5_000)), 5_000).await;
    check(Moment::At(at(4_999)), 5_000).await;
    check(Moment::At(at(-1_000_000)), 5_000).await;
    check(Moment::After(ms(3_650 * 86_400_000)), 5_000 + 3_650 * 86_400_000).await;
}

pub(crate) async fn content_and_options_are_kept_byte_for_byte(bench: Bench<impl Store>) {
    let options = Options {
        max_attempts: Some(3),
        timeout: Some(Span(ms(1_500))),
        backoff: Some(Backoff::List { steps: vec![Span::seconds(5), Span::seconds(300)] }),
        headers: Headers::new([("x-note".into(), "two  words \"\\\t- @pull".into())]).unwrap(),
        ..Options::default()
    };
    let contents = ["", "{}", " { \"a\" : 1.0 }\n", "订单 🦀\u{0}\r\n", "a\nb c - @pull\n\n"];
    for content in contents {
        for (destination, options) in [
            ("message.call", options.clone()),
            ("hooks.example.com:8443", options.clone()),
            ("@pull", Options::default()),
        ] {
            let task = NewTask {
                options: options.clone(),
                content: content.into(),
                ..new_task(destination, 0)
            };
            let id = bench.add_task(task).await;
            let kept = bench.get(id).await;
            assert_eq!((kept.content.as_str(), &kept.options), (content, &options));
            assert_eq!(kept.destination.as_str(), destination);
            assert_eq!((kept.state, kept.attempts, kept.finished), (State::Scheduled, 0, None));
            assert_eq!(kept.last_outcome, "");

            let grant = bench.claim(&[(destination, 1)]).await;
            let leased = &grant.tasks[0];
            assert_eq!(
                (leased.id, leased.content.as_str(), &leased.options),
                (id, content, &options)
            );
        }
    }
}

pub(crate) async fn a_batch_is_answered_in_order_and_stored_once(bench: Bench<impl Store>) {
    let batch = (0..700).map(|i| new_task(["a", "b", "@pull"][i % 3], i as u64)).collect();
    let added = bench.store.add(batch).await;
    assert_eq!(added.len(), 700);
    for (i, added) in added.into_iter().enumerate() {
        assert_eq!(added.unwrap().due, at(i as i64));
    }
    assert_eq!(bench.counts().await.scheduled, 700);
    assert!(bench.store.add(Vec::new()).await.is_empty());
}

pub(crate) async fn an_id_names_the_lane_of_its_task(bench: Bench<impl Store>) {
    let topic = topic_of("sharded", 4);
    let batch = vec![NewTask { topic: topic.clone(), ..new_task("message.call", 0) }; 40];
    let added: Vec<TaskId> =
        bench.store.add(batch).await.into_iter().map(|added| added.unwrap().id).collect();
    let mut seen = 0;
    for lane in topic.lanes() {
        let count = bench.store.stats(&lane).await.unwrap().scheduled;
        let named = added.iter().filter(|id| topic.lane_of(**id) == lane).count() as u64;
        assert_eq!(count, named, "lane {lane}");
        seen += count;
    }
    assert_eq!(seen, 40);
    let here = topic.lane_of(added[0]);
    let elsewhere = topic.lane_of(TaskId(added[0].0 + 1));
    assert!(bench.store.get(Reader::Worker, &here, added[0]).await.unwrap().is_some());
    assert!(
        bench.store.get(Reader::Worker, &elsewhere, added[0]).await.unwrap().is_none(),
        "a task was found in another lane"
    );
}

pub(crate) async fn tasks_spread_over_the_lanes_of_their_topic(bench: Bench<impl Store>) {
    let topic = topic_of("sharded", 4);
    let batch =
        |tasks| vec![NewTask { topic: topic.clone(), ..new_task("message.call", 0) }; tasks];
    // A store that draws a new block of ids starts the rotation again, which may happen every
    // second. So 40 adds need not be distributed evenly.
    for (adds, tasks, least) in [(40, 1, 5), (1, 40, 10)] {
        let mut met = [0; 4];
        for _ in 0..adds {
            for added in bench.store.add(batch(tasks)).await {
                met[usize::from(topic.lane_of(added.unwrap().id).shard)] += 1;
            }
        }
        assert!(
            met.iter().all(|&count| count >= least),
            "{adds} adds of {tasks} went to the lanes as {met:?}"
        );
    }
}

pub(crate) async fn hints_name_the_earliest_moment_for_workers_and_for_consumers(
    bench: Bench<impl Store>,
) {
    let hint = |due, is_pull| Hint { lane: lane(), due: at(due), is_pull };
    let mut hints = bench.store.hints();
    bench
        .store
        .add(vec![
            new_task("@pull", 20),
            new_task("a", 500),
            new_task("b", 300),
            new_task("@pull", 10),
        ])
        .await;
    let mut heard = [hear(&mut hints).await, hear(&mut hints).await];
    heard.sort_by_key(|hint| hint.is_pull);
    assert_eq!(heard, [hint(300, false), hint(10, true)]);
    bench.add("a", 7).await;
    assert_eq!(
        hear(&mut hints).await,
        hint(7, false),
        "a hint for consumers without a task for them"
    );
    bench.add("@pull", 5).await;
    assert_eq!(hear(&mut hints).await, hint(5, true));
}

pub(crate) async fn a_task_for_consumers_is_hinted_when_an_admin_verb_moves_it(
    bench: Bench<impl Store>,
) {
    let mut hints = bench.store.hints();
    let id = bench.add("@pull", 60_000).await;
    assert_eq!(hear(&mut hints).await.due, at(60_000));
    bench.store.reschedule(&lane(), id, None, Moment::At(at(30_000)), None).await.unwrap();
    while !matches!(hear(&mut hints).await, Hint { due, is_pull: true, .. } if due == at(30_000)) {}
    bench.advance(30_000);
    let grant = bench.claim(&[("@pull", 1)]).await;
    bench.settle(&Held { id, receipt: grant.receipt }, dead()).await;
    assert_eq!(bench.store.replay(&lane(), vec![id], None, Spread::default()).await.unwrap(), 1);
    while !matches!(hear(&mut hints).await, Hint { due, is_pull: true, .. } if due == at(30_000)) {}
}

pub(crate) async fn the_store_answers_with_its_own_now(bench: Bench<impl Store>) {
    assert_eq!(bench.store.ping().await.unwrap(), START);
    bench.advance(17);
    assert_eq!(bench.store.ping().await.unwrap(), at(17));
}
