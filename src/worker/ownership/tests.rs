use tokio::time::advance;

use super::*;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const SECOND: Duration = Duration::from_secs(1);

fn instance(id: &str) -> Instance {
    Instance { id: id.into(), seen: NOW, has_workers: true, divides: true, ..Instance::default() }
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
    assert!(
        ownership.update_members(Some(&["a", "b", "c"].map(instance)), true),
        "there are others"
    );
    ownership.may_claim();
    ownership.to_look_at(Vec::new(), NOW);
    ownership
}

/// A lane that `a` owns, and one that another instance owns.
fn own_and_anothers(ownership: &Ownership) -> (Lane, Lane) {
    let find = |is_own| lanes().into_iter().find(|lane| ownership.owns(lane) == is_own).unwrap();
    (find(true), find(false))
}

#[tokio::test(start_paused = true)]
async fn an_instance_alone_looks_at_all_lanes() {
    let ownership = Ownership::new("a", true);
    assert!(ownership.concerns_others(&lane(0)), "others are not known yet");
    assert_eq!(ownership.to_look_at(lanes(), NOW), lanes());
    assert!(!ownership.update_members(Some(&[instance("a")]), true), "its poll is not repeated");
    assert!(!ownership.is_shared() && ownership.is_open(&lane(0)) && ownership.owns(&lane(0)));
    assert_eq!(ownership.to_look_at(lanes(), NOW), lanes());
    assert!(!ownership.concerns_others(&lane(0)));
    assert!(ownership.note_due(&lane(0), NOW, NOW));
}

#[tokio::test(start_paused = true)]
async fn three_instances_look_at_their_lanes_each_second_and_at_others_in_turn() {
    let views = ["a", "b", "c"].map(|id| Ownership::new(id, true));
    for view in &views {
        assert_eq!(view.to_look_at(lanes(), NOW), lanes(), "the first look has all lanes");
        view.update_members(Some(&["a", "b", "c"].map(instance)), true);
        view.to_look_at(lanes(), NOW);
        view.looked(NOW, Vec::new());
    }
    let mut looks = 0;
    for second in 1..=6 {
        let now = NOW + second * SECOND;
        for view in &views {
            let looked = view.to_look_at(lanes(), now);
            assert!(lanes().iter().all(|lane| !view.owns(lane) || looked.contains(lane)));
            looks += looked.len();
            view.looked(now, Vec::new());
        }
    }
    assert_eq!(looks, 6 * 100 + 3 * 100, "each second by the owner, each second second by another");
}

#[tokio::test(start_paused = true)]
async fn a_look_that_fails_loses_no_turn() {
    let view = among_three();
    view.looked(NOW, Vec::new());
    // The look of NOW + 3 s failed.
    for late in [3, 4] {
        assert_eq!(view.to_look_at(lanes(), NOW + late * SECOND).len() == 100, late == 4);
    }
}

#[tokio::test(start_paused = true)]
async fn an_overdue_lane_is_open_to_the_instance_that_looks_at_it() {
    let view = among_three();
    let (own, anothers) = own_and_anothers(&view);
    assert!(view.note_due(&own, NOW, NOW), "its own lane is open at once");
    assert!(!view.note_due(&anothers, NOW, NOW + Duration::from_millis(499)));
    assert!(!view.is_open(&anothers));
    view.to_look_at(lanes(), NOW);
    assert!(view.view().again.contains(&anothers), "the next look has it again");
    assert!(view.note_due(&anothers, NOW, NOW + OPEN_AFTER));
    advance(4 * SECOND).await;
    assert!(view.is_open(&anothers) && !view.owns(&anothers));
    view.looked(NOW, Vec::new());
    assert!(view.to_look_at(lanes(), NOW).contains(&anothers), "it is looked at each second");
    assert!(view.note_due(&anothers, NOW, NOW), "an open lane is worked at its due moment");
    advance(SECOND).await;
    assert!(!view.is_open(&anothers), "it stands in for 5 s after the last reason");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_can_do_nothing_for_a_lane_leaves_it() {
    let view = among_three();
    let (_, anothers) = own_and_anothers(&view);
    assert!(view.note_due(&anothers, NOW, NOW + SECOND));
    view.withdraw(&anothers);
    assert!(!view.is_open(&anothers));
}

#[tokio::test(start_paused = true)]
async fn lanes_without_an_answer_are_looked_at_again_and_others_are_not() {
    let view = among_three();
    view.looked(NOW, Vec::new());
    let now = NOW + 60 * SECOND;
    let (_, anothers) = own_and_anothers(&view);
    view.looked(now, vec![anothers.clone()]);
    let again = view.to_look_at(lanes(), now);
    assert!(again.len() < 100);
    let again = view.to_look_at(lanes(), now);
    assert!(again.contains(&anothers));
}

/// An instance whose polls came at the border of two seconds took the earlier one for its turns and
/// the later one for what it had looked at. It never had a turn.
#[tokio::test(start_paused = true)]
async fn polls_at_the_border_of_a_second_have_their_turns() {
    let view = among_three();
    view.to_look_at(lanes(), NOW);
    view.looked(NOW, Vec::new());
    let mut seen = std::collections::HashSet::new();
    for second in 1..=4_u32 {
        // 999 ms and 1 ms of the store's seconds in turn, and a second and 2 ms between two polls.
        let at = NOW + second * SECOND - SECOND / 1_000 * (second % 2);
        seen.extend(view.to_look_at(lanes(), at));
        view.looked(at, Vec::new());
    }
    seen.extend(view.to_look_at(lanes(), NOW + 5 * SECOND));
    assert_eq!(seen.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn after_a_change_of_the_members_the_last_turns_are_repeated() {
    let views = ["a", "b", "c"].map(|id| Ownership::new(id, true));
    for view in &views {
        view.update_members(Some(&["a", "b", "c", "d"].map(instance)), true);
        view.to_look_at(lanes(), NOW);
        view.looked(NOW, Vec::new());
    }
    let mut seen = std::collections::HashSet::new();
    // They notice in different seconds that `d` has gone.
    for (second, view) in (0..).zip(&views) {
        view.update_members(Some(&["a", "b", "c"].map(instance)), true);
        view.looked(NOW + second * SECOND, Vec::new());
        let looked = view.to_look_at(lanes(), NOW + second * SECOND);
        seen.extend(looked.into_iter().filter(|lane| !view.owns(lane)));
    }
    assert_eq!(seen.len(), 100, "another instance than the owner looks at each lane");
}

#[tokio::test(start_paused = true)]
async fn an_instance_announces_what_it_can() {
    let view = Ownership::new("a", true);
    let said = || {
        let said = view.announce(instance("a"));
        (said.divides, said.lacks_lanes)
    };
    assert_eq!(said(), (false, false), "it may not claim yet");
    view.may_claim();
    assert_eq!(said(), (true, false));
    view.looked(NOW, vec![lane(1)]);
    advance(OWNS_FOR - SECOND / 1_000).await;
    view.look_failed();
    assert_eq!(said(), (true, false));
    advance(SECOND / 1_000).await;
    assert_eq!(said(), (true, true));
    view.looked(NOW, Vec::new());
    assert_eq!(said(), (true, false));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_heartbeats_works_all_lanes_after_two_seconds() {
    let view = among_three();
    let (_, anothers) = own_and_anothers(&view);
    advance(OWNS_FOR - SECOND / 1_000).await;
    assert!(!view.update_members(None, true) && !view.is_open(&anothers), "one answer may be lost");
    advance(SECOND / 1_000).await;
    assert!(view.update_members(None, true) && view.is_open(&anothers));
    assert!(!view.update_members(None, true), "the poll is repeated once");
    assert!(view.update_members(Some(&["a", "b", "c"].map(instance)), true));
    assert!(!view.is_open(&anothers));
}

/// The heartbeats of all are as old as its own. Otherwise each instance would claim in all lanes.
#[tokio::test(start_paused = true)]
async fn after_a_silence_of_the_whole_store_the_members_are_the_same() {
    let view = among_three();
    let (_, anothers) = own_and_anothers(&view);
    advance(60 * SECOND).await;
    assert!(!view.update_members(None, false) && !view.is_open(&anothers), "nothing is answered");
    assert!(!view.update_members(Some(&[instance("a")]), true), "it is the first to be answered");
    advance(SECOND).await;
    assert!(view.update_members(Some(&[instance("a")]), true), "the others have gone");
    assert!(view.is_open(&anothers));
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_workers_owns_nothing() {
    let view = Ownership::new("a", false);
    let own = Instance { has_workers: false, ..instance("a") };
    view.update_members(Some(&[own, instance("b")]), true);
    assert!(lanes().iter().all(|lane| !view.owns(lane) && view.concerns_others(lane)));
}
