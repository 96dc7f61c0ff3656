//! What a reading counts, and when it is made again.

use super::*;
use crate::api::testing::edge_with_store;
use crate::store::{Counts, ScheduleSample};

fn sample(destination: &str, due: &[u64], waiting: u64) -> ScheduleSample {
    ScheduleSample {
        destination: destination.parse().unwrap(),
        earliest: UnixMillis(1),
        next: None,
        waiting,
        due: due.to_vec(),
        late: 0,
        is_cut: false,
    }
}

fn lane(schedules: Vec<ScheduleSample>, scheduled: u64) -> Option<LaneSample> {
    Some(LaneSample { counts: Counts { scheduled, ..Counts::default() }, schedules })
}

fn topic(lanes: Vec<Option<LaneSample>>) -> Option<TopicReading> {
    Some(TopicReading::new(lanes.into_iter()))
}

#[test]
fn a_bucket_has_what_falls_due_after_the_one_before() {
    let tally = WaitingTally::new(&[2, 2, 5, 9], 12, false);
    let expected = WaitingTally { overdue: 2, buckets: vec![0, 3, 4], rest: 3, is_cut: false };
    assert_eq!((tally.within(), tally), (9, expected));
    assert_eq!(
        WaitingTally::new(&[], 0, true),
        WaitingTally { is_cut: true, ..WaitingTally::default() }
    );
}

#[test]
fn sums_are_those_of_the_topics_that_match() {
    let name = |name: &str| name.parse::<Topic>().unwrap();
    let mut counted = ForecastReading::default();
    let a = lane(vec![sample("s", &[1, 3], 4), sample("@pull", &[0, 1], 1)], 5);
    counted.topics.insert(name("a"), topic(vec![a, lane(vec![sample("s", &[1, 1], 1)], 1)]));
    counted.topics.insert(name("b"), topic(vec![lane(vec![sample("s", &[0, 7], 7)], 7), None]));
    counted.topics.insert(name("c"), None);
    let of = |sums: &Sums, sn: &str| {
        sums.by_destination.get(&sn.parse().unwrap()).map(|tally| (tally.overdue, tally.within()))
    };
    let one = counted.sums(|topic| topic.as_str() == "a");
    assert_eq!((one.topics, one.seen, one.is_complete), (1, 1, true));
    assert_eq!((of(&one, "s"), of(&one, "@pull")), (Some((2, 4)), Some((0, 1))));
    let all = counted.sums(|_| true);
    assert_eq!((all.topics, all.seen, all.is_complete), (3, 2, false));
    assert_eq!(of(&all, "s"), Some((2, 11)));
    assert!(!counted.sums(|topic| topic.as_str() == "b").is_complete, "a server was away");
}

#[test]
fn a_lane_with_more_destinations_than_are_named_is_counted_in_part() {
    let schedules = || (0..MAX_SAMPLED).map(|n| sample(&format!("s{n}"), &[1], 1)).collect();
    let named = MAX_SAMPLED as u64;
    assert!(!TopicReading::new([lane(schedules(), named)].into_iter()).is_partial);
    assert!(TopicReading::new([lane(schedules(), named + 1)].into_iter()).is_partial);
}

#[tokio::test]
async fn a_reading_is_bounded_and_counts_some_lanes_at_least() {
    let (api, _draining, _folder) = edge_with_store();
    let empty =
        ForecastReading::read(api.forecast_sources(), ForecastSpan::Hour, &BOUNDS).await.unwrap();
    assert!(empty.at.0 > 0 && empty.sums(|_| true).is_complete);
    for name in ["a", "b", "c"] {
        api.topics.ensure(&name.parse().unwrap()).await.unwrap();
    }
    let seen = async |bounds: ReadingBounds| {
        let sums = ForecastReading::read(api.forecast_sources(), ForecastSpan::Hour, &bounds)
            .await
            .unwrap()
            .sums(|_| true);
        (sums.topics, sums.seen, sums.is_complete)
    };
    assert_eq!(seen(BOUNDS).await, (3, 3, true));
    assert_eq!(seen(ReadingBounds { lanes: 2, ..BOUNDS }).await, (3, 2, false));
    assert_eq!(seen(ReadingBounds { lanes: 0, ..BOUNDS }).await, (3, 1, false));
    assert_eq!(seen(ReadingBounds { time: Duration::ZERO, ..BOUNDS }).await, (3, 3, true));
}

#[tokio::test]
async fn callers_share_a_reading_until_it_is_old() {
    let (api, _draining, _folder) = edge_with_store();
    let read = async |span| api.forecasts.of(api.forecast_sources(), span).await.unwrap();
    let first = read(ForecastSpan::Hour).await;
    assert!(Arc::ptr_eq(&first, &read(ForecastSpan::Hour).await));
    assert!(!Arc::ptr_eq(&first, &read(ForecastSpan::Day).await), "each span has its own");
    let age = async |span: ForecastSpan| {
        api.forecasts.spans[span as usize].lock().await.as_mut().unwrap().until = Instant::now();
    };
    age(ForecastSpan::Hour).await;
    assert!(!Arc::ptr_eq(&first, &read(ForecastSpan::Hour).await));
}
