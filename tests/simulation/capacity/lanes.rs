//! The tasks of a simulated Redis: schedules, leases and locks, as `claim.lua` and `settle.lua`
//! treat them.
//!
//! The specification in `tests/store_conformance` looks at all tasks in each call, which is too
//! slow for millions of calls. Here a lane has its tasks in order. All tasks have one destination
//! and succeed, so a task only has a due moment and a lease. A test compares both.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use delayd::model::clock::UnixMillis;
use delayd::model::task::{Destination, Lane, Options, Receipt, State, TaskId};
use delayd::store::{
    Claim, Claimed, Grant, LeasedTask, LockToken, Outlook, Settle, Settled, Swept, Transition,
};

/// How long the lock of a lane lasts.
const LOCK: Duration = Duration::from_secs(2);

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    destination: Destination,
    content: String,
    lanes: HashMap<Lane, Tasks>,
}

/// The tasks of one lane that have not ended.
#[derive(Debug, Default)]
struct Tasks {
    waiting: BTreeSet<(UnixMillis, TaskId)>,
    leased: HashMap<TaskId, Lease>,
    /// The ends of the leases.
    deadlines: BTreeSet<(UnixMillis, TaskId)>,
    lock: Option<(LockToken, UnixMillis)>,
    attempts: HashMap<TaskId, u32>,
}

#[derive(Debug)]
struct Lease {
    receipt: Receipt,
    until: UnixMillis,
}

impl Lanes {
    /// Empty lanes, whose tasks all have this destination and content.
    pub(crate) fn new(lanes: &[Lane], destination: Destination, content: String) -> Self {
        let lanes = lanes.iter().map(|lane| (lane.clone(), Tasks::default())).collect();
        Self { destination, content, lanes }
    }

    fn of(&mut self, lane: &Lane) -> &mut Tasks {
        self.lanes.get_mut(lane).expect("workers name registered lanes")
    }

    pub(crate) fn add(&mut self, lane: &Lane, id: TaskId, due: UnixMillis) {
        self.of(lane).waiting.insert((due, id));
    }

    /// The next moment at which a claim of the lane has something to do.
    pub(crate) fn next_due(&mut self, lane: &Lane) -> Option<UnixMillis> {
        let tasks = self.of(lane);
        [tasks.first_due(), tasks.first_deadline()].into_iter().flatten().min()
    }

    pub(crate) fn claim(&mut self, claim: &Claim, receipt: Receipt, now: UnixMillis) -> Claimed {
        let (destination, content) = (self.destination.clone(), self.content.clone());
        let tasks = self.of(&claim.lane);
        if let Some(retry_in) = tasks.locked(claim, now) {
            return Claimed::Refused { retry_in };
        }
        tasks.sweep(now);
        let slots = claim
            .wants
            .iter()
            .find(|want| want.destination == destination)
            .map_or(0, |want| want.slots);
        let taken: Vec<_> =
            tasks.waiting.iter().take_while(|(due, _)| *due <= now).take(slots).copied().collect();
        let until = now + claim.lease;
        let leased = taken.iter().map(|&(due, id)| LeasedTask {
            id,
            destination: destination.clone(),
            attempt: tasks.lease((due, id), &receipt, until),
            due,
            created: due,
            held_until: None,
            options: Options::default(),
            content: content.clone(),
        });
        let leased: Vec<_> = leased.collect();
        let is_due = tasks.first_due().is_some_and(|due| due <= now);
        tasks.keep_lock(claim, slots > 0 && taken.len() == slots && is_due, now);
        let later = tasks.first_due().filter(|due| *due > now);
        let outlook = Outlook {
            due: if is_due { vec![destination] } else { Vec::new() },
            end: None,
            next: [later, tasks.first_deadline()].into_iter().flatten().min(),
        };
        Claimed::Granted(Grant { now, receipt, tasks: leased, outlook, swept: Swept::default() })
    }

    pub(crate) fn settle(&mut self, settle: &Settle, now: UnixMillis) -> Settled {
        let tasks = self.of(&settle.lane);
        let Some(lease) = tasks.leased.remove(&settle.id) else {
            let waits = tasks.waiting.iter().any(|(_, id)| *id == settle.id);
            return if waits { STALE } else { Settled::Done };
        };
        if lease.receipt != settle.receipt {
            tasks.leased.insert(settle.id, lease);
            return Settled::Stale { state: State::Leased };
        }
        tasks.deadlines.remove(&(lease.until, settle.id));
        match &settle.transition {
            Transition::Delivered { .. } => drop(tasks.attempts.remove(&settle.id)),
            Transition::Release => {
                *tasks.attempts.entry(settle.id).or_insert(1) -= 1;
                tasks.waiting.insert((now, settle.id));
            }
            other => unreachable!("the receiver takes every task, and there is no {other:?}"),
        }
        Settled::Done
    }

    pub(crate) fn extend(
        &mut self,
        (lane, id): (&Lane, TaskId),
        receipt: &Receipt,
        until: UnixMillis,
    ) -> Settled {
        let tasks = self.of(lane);
        match tasks.leased.get_mut(&id) {
            Some(lease) if lease.receipt == *receipt => {
                tasks.deadlines.remove(&(lease.until, id));
                tasks.deadlines.insert((until, id));
                lease.until = until;
                Settled::Done
            }
            _ => STALE,
        }
    }
}

/// The answer about a task whose lease has ended.
const STALE: Settled = Settled::Stale { state: State::Scheduled };

impl Tasks {
    fn first_due(&self) -> Option<UnixMillis> {
        self.waiting.first().map(|(due, _)| *due)
    }

    fn first_deadline(&self) -> Option<UnixMillis> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The rest of another holder's lock. A claim that wants nothing ignores it.
    fn locked(&self, claim: &Claim, now: UnixMillis) -> Option<Duration> {
        let (holder, until) = self.lock.as_ref()?;
        let is_anothers = claim.holder.as_ref().is_some_and(|claimer| claimer != holder);
        (is_anothers && !claim.wants.is_empty() && now < *until).then(|| until.since(now))
    }

    /// The holder keeps the lock if it will claim again at once, and gives its lock back if not.
    fn keep_lock(&mut self, claim: &Claim, is_cut: bool, now: UnixMillis) {
        let Some(holder) = &claim.holder else { return };
        let is_own = self.lock.as_ref().is_some_and(|(own, _)| own == holder);
        let has_ended = self.lock.as_ref().is_none_or(|(_, until)| *until <= now);
        if claim.more && is_cut {
            self.lock = Some((holder.clone(), now + LOCK));
        } else if is_own || has_ended {
            self.lock = None;
        }
    }

    /// Tasks whose leases have run out wait again, from the ends of these leases.
    fn sweep(&mut self, now: UnixMillis) {
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.leased.remove(&id);
            self.waiting.insert((deadline, id));
        }
    }

    /// Leases a waiting task. Returns the number of the attempt.
    fn lease(
        &mut self,
        (due, id): (UnixMillis, TaskId),
        receipt: &Receipt,
        until: UnixMillis,
    ) -> u32 {
        self.waiting.remove(&(due, id));
        self.leased.insert(id, Lease { receipt: receipt.clone(), until });
        self.deadlines.insert((until, id));
        let attempt = self.attempts.entry(id).or_default();
        *attempt += 1;
        *attempt
    }
}

#[cfg(test)]
mod tests {
    use delayd::store::{Moment, NewTask, TopicEntry, Want};

    use super::*;
    use crate::dice::Dice;
    use crate::model::Model;

    /// Random adds, claims, settles and steps of time, on these lanes and on the specification. The
    /// specification has no lock, so one holder claims.
    #[test]
    fn lanes_do_what_the_specification_says() {
        let entry = TopicEntry { topic: "t".parse().unwrap(), shards: 1 };
        let lane = Lane { topic: entry.topic.clone(), shard: 0 };
        let destination: Destination = "s".parse().unwrap();
        let start = UnixMillis(1_800_000_000_000);
        let mut model = Model::new(start);
        model.register(entry.clone());
        let mut lanes = Lanes::new(std::slice::from_ref(&lane), destination.clone(), "c".into());
        let dice = Dice::new(1);
        let mut throw = dice.throw("lanes");
        let mut held: Vec<(TaskId, Receipt)> = Vec::new();
        for n in 0..4_000 {
            let now = model.now;
            match throw.between(0, 9) {
                0..=2 => {
                    let task = NewTask {
                        topic: entry.clone(),
                        destination: destination.clone(),
                        moment: Moment::After(throw.millis(0, 400)),
                        options: Options::default(),
                        content: "c".into(),
                        idempotency: None,
                        quota: None,
                    };
                    let added = model.add(task).unwrap();
                    lanes.add(&lane, added.id, added.due);
                }
                3..=5 => {
                    let slots = throw.between(1, 4) as usize;
                    let receipt: Receipt = format!("r{n}").parse().unwrap();
                    let claim = Claim {
                        lane: lane.clone(),
                        wants: vec![Want { destination: destination.clone(), slots }],
                        lease: Duration::from_millis(500),
                        holder: Some(LockToken("h".into())),
                        more: throw.per_mille(500),
                        after: None,
                        in_hand: 0,
                        misfires: Vec::new(),
                    };
                    let expected = model.claim(&claim, receipt.clone());
                    let Claimed::Granted(grant) = lanes.claim(&claim, receipt.clone(), now) else {
                        panic!("the only holder is never refused");
                    };
                    let ids = |tasks: &[LeasedTask]| -> Vec<_> {
                        tasks.iter().map(|task| (task.id, task.attempt)).collect()
                    };
                    assert_eq!(ids(&grant.tasks), ids(&expected.tasks), "step {n}");
                    assert_eq!(grant.outlook, expected.outlook, "step {n}");
                    held.extend(grant.tasks.iter().map(|task| (task.id, receipt.clone())));
                }
                6..=8 if !held.is_empty() => {
                    let place = throw.number() as usize % held.len();
                    let (id, receipt) = held.swap_remove(place);
                    let transition = match throw.per_mille(100) {
                        true => Transition::Release,
                        false => Transition::Delivered { outcome: String::new() },
                    };
                    let settle = Settle { lane: lane.clone(), id, receipt, transition };
                    // A lease that has run out may be settled as well: the workers here never do.
                    let is_held = model.receipts_of(id).first() == Some(&settle.receipt)
                        && model.stats(&lane).leased > 0
                        && lanes.of(&lane).leased.contains_key(&id);
                    if is_held {
                        assert_eq!(lanes.settle(&settle, now), model.settle(&settle), "step {n}");
                    }
                }
                _ => model.now = now + throw.millis(0, 60),
            }
            let expected = model.next_due(std::slice::from_ref(&lane)).lanes[0];
            assert_eq!(lanes.next_due(&lane), expected, "step {n}");
        }
    }
}
