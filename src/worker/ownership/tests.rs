use tokio::time::advance;

use super::*;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn instance(id: &str) -> Instance {
    Instance { id: id.into(), seen: NOW, has_workers: true, ..Instance::default() }
}

fn lane(n: usize) -> Lane {
    format!("topic.{n}:0").parse().unwrap()
}

fn lanes() -> Vec<Lane> {
    (0..100).map(lane).collect()
}

/// The view of `a`, which knows `b` and `c`.
fn among_three() -> Ownership {
    let ownership = Ownership::new("a", true);
    assert!(ownership.heard(Some(&["a", "b", "c"].map(instance))), "there are others");
    ownership
}

/// A lane that `a` owns, and one that another instance owns.
fn own_and_anothers(ownership: &Ownership) -> (Lane, Lane) {
    let find = |is_own| lanes().into_iter().find(|lane| ownership.owns(lane) == is_own).unwrap();
    (find(true), find(false))
}

#[tokio::test(start_paused = true)]
async fn an_instance_alone_looks_at_all_lanes_and_asks_nobody() {
    let ownership = Ownership::new("a", true);
    assert!(ownership.concerns_others(&lane(0)), "others are not known yet");
    assert_eq!(ownership.to_look_at(lanes(), NOW), lanes());
    assert!(!ownership.heard(Some(&[instance("a")])), "its poll is not repeated");
    assert!(!ownership.is_shared() && ownership.is_open(&lane(0)) && ownership.owns(&lane(0)));
    assert_eq!(ownership.to_look_at(lanes(), NOW), lanes());
    assert!(!ownership.asks(&lane(0)) && !ownership.concerns_others(&lane(0)));
    assert!(ownership.saw(&lane(0), NOW, NOW));
}

#[tokio::test(start_paused = true)]
async fn three_instances_look_at_their_lanes_each_second_and_at_others_in_turn() {
    let views = ["a", "b", "c"].map(|id| Ownership::new(id, true));
    for view in &views {
        assert_eq!(view.to_look_at(lanes(), NOW), lanes(), "the first look has all lanes");
        view.heard(Some(&["a", "b", "c"].map(instance)));
        view.looked(NOW);
    }
    let mut looks = 0;
    for second in 1..=6 {
        let now = NOW + second * SECOND;
        for view in &views {
            let looked = view.to_look_at(lanes(), now);
            assert!(lanes().iter().all(|lane| !view.owns(lane) || looked.contains(lane)));
            looks += looked.len();
            view.looked(now);
        }
    }
    assert_eq!(looks, 6 * 100 + 2 * 100, "each second by the owner, each third by another");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_loses_no_turn() {
    let view = among_three();
    view.looked(NOW);
    // The look of NOW + 5 s failed.
    for late in [5, 6] {
        assert_eq!(view.to_look_at(lanes(), NOW + late * SECOND).len() == 100, late == 6);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_lane_is_open_to_the_instance_that_looks_at_it() {
    let view = among_three();
    let (own, anothers) = own_and_anothers(&view);
    assert!(view.saw(&own, NOW, NOW), "its own lane is open at once");
    assert!(!view.saw(&anothers, NOW, NOW + Duration::from_millis(499)));
    assert!(!view.is_open(&anothers));
    assert!(view.saw(&anothers, NOW, NOW + OPEN_AFTER));
    advance(4 * SECOND).await;
    assert!(view.is_open(&anothers) && !view.owns(&anothers));
    view.looked(NOW);
    assert!(view.to_look_at(lanes(), NOW).contains(&anothers), "it is looked at each second");
    assert!(view.saw(&anothers, NOW, NOW), "an open lane is worked at its due moment");
    advance(SECOND).await;
    assert!(!view.is_open(&anothers), "it stands in for 5 s after the last reason");
}

#[tokio::test(start_paused = true)]
async fn an_owner_asks_for_help_every_second_poll() {
    let view = among_three();
    let (own, anothers) = own_and_anothers(&view);
    assert!(view.asks(&own));
    advance(SECOND).await;
    assert!(!view.asks(&own));
    advance(SECOND).await;
    assert!(view.asks(&own));
    assert!(!view.asks(&anothers), "its owner sees the same");
}

#[tokio::test(start_paused = true)]
async fn who_was_asked_does_not_ask() {
    let view = among_three();
    let (own, anothers) = own_and_anothers(&view);
    view.was_asked(&anothers);
    assert!(view.is_open(&anothers));
    advance(3 * SECOND).await;
    view.saw(&anothers, NOW, NOW + SECOND);
    assert!(!view.asks(&anothers), "also if it then finds the lane overdue");
    view.was_asked(&own);
    assert!(!view.asks(&own), "another has asked already");
    advance(2 * SECOND).await;
    assert!(view.asks(&own), "its owner knows best");
}

#[tokio::test(start_paused = true)]
async fn who_stands_in_by_its_own_look_asks() {
    let view = among_three();
    let (_, anothers) = own_and_anothers(&view);
    view.saw(&anothers, NOW, NOW + SECOND);
    assert!(view.asks(&anothers));
    view.withdraw(&anothers);
    assert!(!view.is_open(&anothers));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_heartbeats_works_all_lanes_after_two_seconds() {
    let view = among_three();
    let (_, anothers) = own_and_anothers(&view);
    advance(OWNS_FOR - SECOND / 1_000).await;
    assert!(!view.heard(None) && !view.is_open(&anothers), "one answer may be lost");
    advance(SECOND / 1_000).await;
    assert!(view.heard(None) && view.is_open(&anothers));
    assert!(!view.heard(None), "the poll is repeated once");
    assert!(view.heard(Some(&["a", "b", "c"].map(instance))));
    assert!(!view.is_open(&anothers));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_workers_owns_nothing() {
    let view = Ownership::new("a", false);
    let own = Instance { has_workers: false, ..instance("a") };
    view.heard(Some(&[own, instance("b")]));
    assert!(lanes().iter().all(|lane| !view.owns(lane) && view.concerns_others(lane)));
}
