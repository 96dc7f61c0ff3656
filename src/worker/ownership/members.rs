//! The working instances, and which of them looks at a lane: rendezvous hashing (Thaler and
//! Ravishankar, "Using name-based mappings to increase hit rates", 1998). Pure.
//!
//! Each instance ranks all of them by itself, from the heartbeats. The first-ranked instance owns
//! the lane and looks at it each second. The others take turns: one of them looks at the lane in
//! one of [`ROUND`] seconds of the store's clock, whatever their number is. When an instance comes
//! or leaves, only the lanes that it owns get another owner.

use std::time::Duration;

use crate::model::task::Lane;
use crate::store::Instance;

/// An instance counts as working for this long after its last heartbeat, by the store's clock.
pub(in crate::worker) const OWNS_FOR: Duration = Duration::from_secs(2);
/// The instances that do not own a lane together look at it once in so many seconds.
pub(super) const ROUND: u64 = 2;
/// A look that comes late has the turns of at most so many seconds. After a store that stood still,
/// the looks of all instances come late, and each lane must not get a look of all of them.
const MOST_TURNS: i64 = 2 * ROUND as i64;

/// A name as a number that is the same in all instances, on all platforms and in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hashed(u64);

impl Hashed {
    pub(super) fn lane(lane: &Lane) -> Self {
        Self(mix(fnv1a(lane.topic.as_str()).wrapping_add(u64::from(lane.shard))))
    }

    fn instance(id: &str) -> Self {
        Self(mix(fnv1a(id)))
    }

    /// The weight of an instance at a lane. Two instances never have the same, because [`mix`] is a
    /// bijection.
    fn weight(self, lane: Self) -> u64 {
        mix(self.0 ^ lane.0)
    }
}

/// FNV-1a with 64 bits (<https://datatracker.ietf.org/doc/html/draft-eastlake-fnv>).
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014): each bit of the result depends on all bits of the input.
fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The working instances, as one instance knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Members {
    /// In ascending order.
    all: Vec<Hashed>,
    /// This instance; `None` if it has no workers.
    own: Option<Hashed>,
}

impl Members {
    /// Only this instance, or none if it has no workers.
    pub(super) fn alone(id: &str, works: bool) -> Self {
        let own = works.then(|| Hashed::instance(id));
        Self { all: own.into_iter().collect(), own }
    }

    /// The instances that divide the lanes, by heartbeats younger than [`OWNS_FOR`], and this one
    /// if it has workers. The moment of this instance's own heartbeat is the store's now.
    ///
    /// An instance that reaches all servers does not rely on one that does not. If this one does
    /// not reach them all, perhaps no instance does, so it counts all.
    pub(super) fn of(living: &[Instance], id: &str, works: bool) -> Self {
        let mut members = Self::alone(id, works);
        let Some(now) = living.iter().find(|one| one.id == id).map(|own| own.seen) else {
            return members;
        };
        // A heartbeat ahead of the clock was stored before the clock was set back.
        let is_young = |one: &Instance| {
            u128::from(now.0.abs_diff(one.seen.0)) < OWNS_FOR.as_millis() && one.id != id
        };
        let own_lacks = living.iter().any(|one| one.id == id && one.lacks_lanes);
        let divides =
            |one: &Instance| one.has_workers && one.divides && (own_lacks || !one.lacks_lanes);
        let is_member =
            |one: &&Instance| divides(one) && is_young(one) && !is_replaced(one, living);
        let others = living.iter().filter(is_member);
        members.all.extend(others.map(|one| Hashed::instance(&one.id)));
        members.all.sort_unstable();
        members
    }

    /// These members and the others.
    pub(super) fn joined(mut self, others: &Self) -> Self {
        self.all.extend(&others.all);
        self.all.sort_unstable();
        self.all.dedup();
        self
    }

    /// Whether this instance is the only one that works.
    pub(super) fn is_alone(&self) -> bool {
        self.own.is_some() && self.all.len() == 1
    }

    /// How many instances rank before this one at the lane: 0 if it owns the lane. `None` if it has
    /// no workers.
    fn rank(&self, lane: Hashed) -> Option<usize> {
        let weight = self.own?.weight(lane);
        Some(self.all.iter().filter(|one| one.weight(lane) > weight).count())
    }

    pub(super) fn owns(&self, lane: Hashed) -> bool {
        self.rank(lane) == Some(0)
    }

    /// Whether this instance looks at the lane: it owns the lane, or one of the seconds after
    /// `since` and not after `now` is its turn.
    pub(super) fn looks(&self, lane: Hashed, since: i64, now: i64) -> bool {
        match self.rank(lane) {
            None => false,
            Some(0) => true,
            Some(rank) => self.has_turn(rank, lane, since, now),
        }
    }

    fn has_turn(&self, rank: usize, lane: Hashed, since: i64, now: i64) -> bool {
        let cycle = ROUND * (self.all.len() as u64 - 1);
        let phase = (lane.0 % cycle) as i64;
        // If the clock was set back, only this second counts.
        let since = if since > now { now - 1 } else { since.max(now - MOST_TURNS) };
        let first = ROUND as i64 * (rank as i64 - 1);
        let wait = (first - phase - (since + 1)).rem_euclid(cycle as i64);
        wait < now - since
    }
}

/// Whether another process has started since at the address of this one, on a host of its name.
/// Then this one has ended, although its heartbeat is young.
fn is_replaced(one: &Instance, living: &[Instance]) -> bool {
    let is_at_its_place =
        |other: &Instance| (&other.name, &other.address) == (&one.name, &one.address);
    !one.address.is_empty()
        && living.iter().any(|other| is_at_its_place(other) && other.started > one.started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::clock::UnixMillis;

    fn instance(id: &str, seen: i64) -> Instance {
        let (id, seen) = (id.to_owned(), UnixMillis(seen));
        Instance { id, seen, has_workers: true, divides: true, ..Instance::default() }
    }

    /// The views of several instances that know each other.
    fn views(count: usize) -> Vec<Members> {
        let ids: Vec<String> = (0..count).map(|n| format!("{n:016x}")).collect();
        let living: Vec<Instance> = ids.iter().map(|id| instance(id, 5_000)).collect();
        ids.iter().map(|id| Members::of(&living, id, true)).collect()
    }

    fn lanes(count: usize) -> impl Iterator<Item = Hashed> {
        (0..count).map(|n| {
            let topic = format!("topic.{}", n / 2).parse().unwrap();
            Hashed::lane(&Lane { topic, shard: n as u16 % 2 })
        })
    }

    #[test]
    fn the_hash_never_changes() {
        // Computed with another program. Instances of several versions must agree.
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c, "a published test vector of FNV-1a");
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0xe220_a839_7b1d_cdaf, "SplitMix64 of seed 0");
    }

    #[test]
    fn members_are_the_working_instances_with_young_heartbeats() {
        let own = instance("own", 10_000);
        let without_workers = Instance { has_workers: false, ..instance("takes", 9_900) };
        let of_old_version = Instance { divides: false, ..instance("earlier", 9_900) };
        let living = [
            of_old_version,
            instance("young", 8_001),
            instance("old", 8_000),
            instance("set back", 11_999),
            instance("set far back", 12_000),
            without_workers,
            own.clone(),
        ];
        let expect = |works: bool, names: &[&str]| {
            let mut all: Vec<Hashed> = names.iter().map(|name| Hashed::instance(name)).collect();
            all.sort_unstable();
            let own = works.then(|| Hashed::instance("own"));
            assert_eq!(Members::of(&living, "own", works), Members { all, own });
        };
        expect(true, &["young", "set back", "own"]);
        expect(false, &["young", "set back"]);
        let leaves = Instance { has_workers: false, ..own };
        assert!(Members::of(&[leaves], "own", true).is_alone(), "it still works its lanes");
        assert!(Members::of(&living[..4], "own", true).is_alone(), "the store's now is unknown");
    }

    /// A process that a supervisor starts again does not rely on the one before.
    #[test]
    fn a_process_that_was_replaced_at_its_address_is_no_member() {
        let at = |id: &str, name: &str, address: &str, started: i64| Instance {
            name: name.into(),
            address: address.into(),
            started: UnixMillis(started),
            ..instance(id, 5_000)
        };
        let living = [
            at("killed", "a", "10.0.0.1:7799", 100),
            at("killed again", "a", "10.0.0.1:7799", 200),
            at("own", "a", "10.0.0.1:7799", 300),
            at("other port", "a", "10.0.0.1:7800", 100),
            at("other host", "b", "10.0.0.1:7799", 100),
            at("no address", "a", "", 100),
            at("none either", "a", "", 200),
        ];
        let names = ["own", "other port", "other host", "no address", "none either"];
        let mut all = names.map(Hashed::instance).to_vec();
        all.sort_unstable();
        assert_eq!(Members::of(&living, "own", true).all, all);
        let other = Members::of(&living, "other host", true);
        assert_eq!(other.all, all, "all views agree");
    }

    /// Otherwise every instance would look at all lanes while a server is away for all of them.
    #[test]
    fn an_instance_that_lacks_lanes_is_relied_on_only_by_others_that_do() {
        let lacks = |id: &str| Instance { lacks_lanes: true, ..instance(id, 5_000) };
        let living = [lacks("a"), lacks("b"), instance("c", 5_000), instance("d", 5_000)];
        let count = |id: &str| Members::of(&living, id, true).all.len();
        assert_eq!(["a", "b", "c", "d"].map(count), [4, 4, 2, 2]);
    }

    #[test]
    fn all_views_agree_on_one_owner_of_each_lane() {
        for count in 1..6 {
            let views = views(count);
            for lane in lanes(500) {
                let mut ranks: Vec<usize> =
                    views.iter().map(|view| view.rank(lane).unwrap()).collect();
                ranks.sort_unstable();
                assert_eq!(ranks, (0..count).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn lanes_are_divided_evenly() {
        for (count, lanes_in_all) in [(2, 1_000), (4, 1_000), (10, 10_000)] {
            let even = lanes_in_all / count;
            for view in views(count) {
                let owned = lanes(lanes_in_all).filter(|lane| view.owns(*lane)).count();
                assert!((even * 4 / 5..=even * 6 / 5).contains(&owned), "{owned} of {even}");
            }
        }
    }

    #[test]
    fn when_an_instance_leaves_only_its_lanes_move() {
        let before = views(4);
        let ids: Vec<String> = (0..4).map(|n| format!("{n:016x}")).collect();
        let left: Vec<Instance> = ids[..3].iter().map(|id| instance(id, 5_000)).collect();
        for (view, id) in before[..3].iter().zip(&ids) {
            let after = Members::of(&left, id, true);
            for lane in lanes(500).filter(|lane| !before[3].owns(*lane)) {
                assert_eq!(view.owns(lane), after.owns(lane));
            }
        }
    }

    /// Each second second has a look by one of the others; each of the others has its turn.
    #[test]
    fn one_of_the_others_looks_in_each_second_second() {
        for count in 2..6 {
            let views = views(count);
            for lane in lanes(50) {
                let mut looked = vec![0; count];
                let seconds = 1_000..1_000 + 2 * (count as i64 - 1) * 4;
                let mut by_phase = [0; 2];
                for second in seconds {
                    for (at, view) in views.iter().enumerate() {
                        if !view.owns(lane) && view.looks(lane, second - 1, second) {
                            looked[at] += 1;
                            by_phase[second as usize % 2] += 1;
                        }
                    }
                }
                let expected: Vec<_> =
                    views.iter().map(|view| if view.owns(lane) { 0 } else { 4 }).collect();
                assert_eq!(looked, expected, "{count} instances");
                by_phase.sort_unstable();
                assert_eq!(by_phase, [0, 4 * (count - 1)], "2 s lie between two looks");
            }
        }
    }

    #[test]
    fn a_late_look_has_the_turns_since_the_last_one_of_two_rounds() {
        for view in &views(4) {
            for lane in lanes(50).filter(|lane| !view.owns(*lane)) {
                for since in 1_000..1_009 {
                    for late in 1..12 {
                        let each = (since + late - late.min(MOST_TURNS)..since + late)
                            .any(|second| view.looks(lane, second, second + 1));
                        assert_eq!(view.looks(lane, since, since + late), each);
                    }
                    let looks = (1..=6).filter(|&after| view.looks(lane, since, since + after));
                    assert!(looks.count() > 0, "a turn in each cycle");
                    assert!(!view.looks(lane, since, since), "a second counts once");
                    let set_back = view.looks(lane, since + 3_600, since);
                    assert_eq!(set_back, view.looks(lane, since - 1, since));
                }
            }
        }
    }

    #[test]
    fn an_instance_without_workers_owns_nothing_and_has_no_turns() {
        let living = [instance("own", 5_000), instance("other", 5_000)];
        let view = Members::of(&living, "own", false);
        assert!(lanes(50).all(|lane| !view.owns(lane) && !view.looks(lane, 0, 100)));
        assert!(!view.is_alone());
    }
}
