//! Samples: counts at a bounded cost.

use delayd::model::task::Lane;
use delayd::store::{LaneSample, MAX_SAMPLED, NewTask, SampleQuery, ScheduleSample, Store};

use crate::bench::{Bench, at, lane, ms, new_task, topic_of};

async fn sample(bench: &Bench<impl Store>, lanes: Vec<Lane>, within: &[u64]) -> Vec<LaneSample> {
    let late_after = vec![ms(60), ms(60), ms(99)];
    let within = within.iter().map(|span| ms(*span)).collect();
    let query = SampleQuery { lanes, late_after, within, ..SampleQuery::default() };
    let sampled = bench.store.sample(query).await.unwrap();
    assert_eq!(sampled.now, bench.now());
    sampled.lanes.into_iter().map(|lane| lane.expect("its server answers")).collect()
}

pub(crate) async fn a_sample_counts_lanes_by_state_and_by_destination(bench: Bench<impl Store>) {
    let other = topic_of("others", 1);
    for after_ms in [0, 500, 60_000] {
        bench.add("b", after_ms + 1).await;
        bench.add("@pull", after_ms).await;
    }
    bench.add("a", 0).await;
    bench.add_task(NewTask { topic: other.clone(), ..new_task("b", 7) }).await;
    bench.claim(&[("a", 1)]).await;
    bench.advance(100);
    let lanes = vec![lane(), "nobody:3".parse().unwrap(), other.lanes().next().unwrap()];
    let found = sample(&bench, lanes, &[0, 1_000, 3_600_000]).await;
    let schedule = |name: &str, earliest: i64, next, due: [u64; 3], late| ScheduleSample {
        destination: name.parse().unwrap(),
        earliest: at(earliest),
        next,
        waiting: due[2],
        due: due.to_vec(),
        late,
        is_cut: false,
    };
    assert_eq!(
        found[0].schedules,
        [
            schedule("@pull", 0, Some(at(500)), [1, 2, 3], 1),
            schedule("b", 1, Some(at(501)), [1, 2, 3], 1)
        ]
    );
    assert_eq!(found[0].next_due(), Some(at(500)));
    assert_eq!(found[0].counts, bench.counts().await);
    assert_eq!(found[1], LaneSample::default());
    assert_eq!(found[2].schedules, [schedule("b", 7, None, [1, 1, 1], 0)]);
}

/// Callers may name any number of hosts.
pub(crate) async fn a_sample_names_the_earliest_destinations(bench: Bench<impl Store>) {
    let last = MAX_SAMPLED as u64 + 3;
    for after_ms in (0..=last).rev() {
        bench.add(&format!("d{after_ms}"), after_ms).await;
    }
    bench.add("@pull", 90_000).await;
    let [found] = sample(&bench, vec![lane()], &[0]).await.try_into().unwrap();
    let names = found.schedules.iter().map(|schedule| schedule.destination.as_str().to_owned());
    let expected = (0..MAX_SAMPLED).map(|number| format!("d{number}"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        std::iter::once("@pull".to_owned()).chain(expected).collect::<Vec<_>>()
    );
    assert_eq!(found.counts.scheduled, last + 2, "the counts by state are of all");
    assert_eq!(found.counts.earliest, Some(at(0)));
}

pub(crate) async fn a_sample_of_nothing_is_empty(bench: Bench<impl Store>) {
    assert!(sample(&bench, vec![], &[0]).await.is_empty());
}
