use futures_util::FutureExt;

use super::*;
use crate::api::testing::edge_with_store;

/// Four filtered lists of one token once made nearly all changes of an operator fail.
#[tokio::test]
async fn changes_and_other_tokens_do_not_wait_for_the_scans_of_a_token() {
    let (api, _draining, _folder) = edge_with_store();
    let [reader, operator] = ["reader", "operator"].map(|name| Caller::named(name, &[]));
    let begin = |places, caller| api.place(places, caller).boxed();
    let _running = begin(&api.scans, &reader).await.unwrap();
    let mut waiting: Vec<_> = (0..4).map(|_| begin(&api.scans, &reader)).collect();
    assert!(waiting.iter_mut().all(|scan| scan.now_or_never().is_none()));
    let refused = begin(&api.scans, &reader).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "too many wait");
    let list = begin(&api.scans, &operator).now_or_never().expect("a place").unwrap();
    let change = begin(&api.changes, &operator).now_or_never().expect("a place").unwrap();
    drop((list, change));
    // Named tasks are few, so they need no place.
    let topic = TopicEntry { topic: "t".parse().unwrap(), shards: 1 };
    let named = Selection::merged(topic, TaskRange::all(State::Dead)).named(Some(vec![TaskId(7)]));
    let mut named = Scan::begin(None, named, BOUNDS, None).unwrap();
    assert!(matches!(named.next(&api, PAGE).await.unwrap()[..], [(_, None)]));
}

/// The cursor once stood behind a page that was read when the time ended, so nobody saw its tasks.
#[tokio::test]
async fn a_page_that_was_read_too_late_comes_with_the_next_scan() {
    let (api, _draining, _folder) = edge_with_store();
    let topic = TopicEntry { topic: "t".parse().unwrap(), shards: 1 };
    let begin = |from: Option<String>| {
        let ids = (1..=PAGE as u64 + 1).map(TaskId).collect();
        let named = Selection::merged(topic.clone(), TaskRange::all(State::Dead)).named(Some(ids));
        Scan::begin(None, named, BOUNDS, from.map(|from| from.parse().unwrap())).unwrap()
    };
    let mut scan = begin(None);
    assert_eq!(scan.next(&api, PAGE).await.unwrap().len(), PAGE);
    scan.read_page(&api).await.unwrap();
    scan.began -= BOUNDS.time;
    assert!(scan.next(&api, PAGE).await.unwrap().is_empty(), "its time is over");
    let rest = begin(scan.cursor()).next(&api, PAGE).await.unwrap();
    assert!(matches!(rest[..], [(Listed { id: TaskId(501), .. }, None)]), "{rest:?}");
}

#[test]
fn a_cursor_reads_back_what_it_writes() {
    let last = Listed { moment: UnixMillis(1_795_236_367_000), id: TaskId(1_795_234_567_000_042) };
    for after in [None, Some(last)] {
        let cursor = ScanCursor { group: 3, to: UnixMillis(1_795_236_367_001), after };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
    }
    for text in [
        "",
        ".",
        "1",
        "1.",
        "1.x",
        "-1.5",
        "1.5.",
        "1.5.6",
        "1.5.6.0",
        "1.5.6.7.8",
        "65536.5",
        "1-5",
    ] {
        assert!(text.parse::<ScanCursor>().is_err(), "{text}");
    }
}

/// Eight connections of one token once made a Redis server refuse everything.
#[tokio::test]
async fn reads_of_a_token_wait_for_one_another_and_leave_places_to_others() {
    let (api, _draining, _folder) = edge_with_store();
    let [viewer, other] = ["viewer", "other"].map(|name| Caller::named(name, &[]));
    let mut reads: Vec<_> = (0..33).map(|_| api.reading(&viewer).boxed()).collect();
    let begun = reads.iter_mut().map(|read| read.now_or_never());
    let begun: Vec<_> = begun.flatten().map(Result::unwrap).collect();
    assert_eq!(begun.len(), 1);
    let refused = api.reading(&viewer).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "too many wait");
    api.reading(&other).now_or_never().expect("a place").unwrap();
}

/// Each of 256 lanes was once asked for the whole page.
#[test]
fn lanes_are_asked_for_their_share_and_the_page_is_that_of_all_lanes() {
    let sorted = |ids: &[u64], order| {
        let listed = |&id: &u64| Listed { moment: UnixMillis(id as i64 / 3), id: TaskId(id) };
        let mut all: Vec<Listed> = ids.iter().map(listed).collect();
        all.sort_unstable();
        if order == ListOrder::Newest {
            all.reverse();
        }
        all
    };
    let check = |of_lanes: Vec<Vec<u64>>, most: usize, most_asked: usize| {
        for order in [ListOrder::Oldest, ListOrder::Newest] {
            let lane = |shard| (Lane { topic: "t".parse().unwrap(), shard }, None);
            let mut merge = Merge::new((0..of_lanes.len() as u16).map(lane), order, most);
            let mut asked_for = 0;
            while !merge.asked.is_empty() {
                asked_for += merge.limit * merge.asked.len();
                let page = |(lane, after): &(Lane, Option<Listed>)| {
                    let all = sorted(&of_lanes[usize::from(lane.shard)], order);
                    let place = after.map(|last| all.iter().position(|at| *at == last));
                    let behind = place.map_or(0, |place| place.unwrap() + 1);
                    all[behind..].iter().copied().take(merge.limit).collect()
                };
                let pages = merge.asked.iter().map(page).collect();
                merge.take_in(pages);
            }
            let mut all = sorted(&of_lanes.concat(), order);
            let is_all = all.len() <= most;
            all.truncate(most);
            assert_eq!((merge.all, merge.is_all), (all, is_all), "{order:?} {most}");
            assert!(asked_for <= most_asked, "{asked_for} for a page of {most}");
        }
    };
    let even = |lanes: u64, each: u64| -> Vec<Vec<u64>> {
        (0..lanes).map(|lane| (0..each).map(|n| n * lanes + lane).collect()).collect()
    };
    check(even(256, 400), 1000, 256 * 10);
    check(even(256, 400), 100, 256 * 5);
    check(even(1, 400), 100, 100);
    check(even(3, 5), 100, 3 * 55);
    check(even(4, 0), 10, 4 * 8);
    // Nearly all are in one lane.
    let mut skewed = even(64, 0);
    skewed[7] = (0..900).collect();
    skewed[9] = vec![50];
    check(skewed, 100, 64 * 7 + 14 + 28 + 56 + 100);
}
