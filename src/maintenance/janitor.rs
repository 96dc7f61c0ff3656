//! The janitor: removes old history, and repairs the registry.
//!
//! Delivered, cancelled and expired tasks are kept for `history.keep`, at most
//! `history.max_per_topic` per topic; then the oldest go first. The policy of a topic can set other
//! values. All topics together keep at most `history.max`: the longest histories are cut to one
//! length, so a busy topic does not remove the history of others. Dead tasks stay until they are
//! replayed or purged.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::contents::Progress;
use super::{HISTORY, Parts, ROUND, misfires};
use crate::model::clock::UnixMillis;
use crate::model::task::{Lane, State, Topic};
use crate::store::{
    Counts, Creator, Error, Histories, LaneHistory, ListQuery, Maintenance, Registered, Result,
    TopicEntry, Topics,
};
use crate::topic;

/// A search for unregistered lanes takes place every so many rounds.
const ROUNDS_A_SEARCH: u32 = 10;
/// The most tasks that one call purges.
const CHUNK: usize = 500;

/// The shortest time between two warnings about the capped history of one topic.
const SAID_EVERY: Duration = Duration::from_secs(3600);

/// When each topic's capped history was logged last.
type Said = HashMap<Topic, Instant>;

/// Runs until it is dropped.
pub(super) async fn run(parts: &Parts<impl Topics + Maintenance>) {
    futures_util::join!(rounds(parts), searches(parts), restore_missing(parts));
}

async fn rounds(parts: &Parts<impl Topics + Maintenance>) {
    let (mut said, mut contents) = (Said::new(), Progress::default());
    loop {
        if let Err(error) = keep_house(parts, &mut said, &mut contents).await {
            tracing::debug!(%error, "A janitor round failed; trying again in a minute");
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Searches for unregistered lanes. A search may take longer than a round.
async fn searches(parts: &Parts<impl Topics + Maintenance>) {
    let mut round = 0_u32;
    loop {
        // If a topic has another number of lanes, a failover may have lost its old entry. Then
        // tasks may still be in lanes of the old number.
        let is_due = parts.topics.take_recounted() || round == 0;
        round = (round + 1) % ROUNDS_A_SEARCH;
        if is_due && let Err(error) = search(parts).await {
            tracing::debug!(%error, "A search for lanes failed; trying again in a minute");
            round = 0;
        }
        tokio::time::sleep(ROUND).await;
    }
}

/// Registers topics again as soon as a poll did not find them, even during a long round.
async fn restore_missing(parts: &Parts<impl Topics + Maintenance>) {
    loop {
        let missing = parts.topics.missing().await;
        if let Err(error) = restore(parts, missing).await {
            tracing::debug!(%error, "Could not register topics again that the registry has lost");
        }
    }
}

async fn search(parts: &Parts<impl Topics + Maintenance>) -> Result<()> {
    let read = parts.topics.begin_read();
    let found = parts.store.recover_topics().await?;
    parts.topics.learn(read, &found.into_iter().map(Registered::plain).collect::<Vec<_>>());
    Ok(())
}

async fn keep_house(
    parts: &Parts<impl Topics + Maintenance>,
    said: &mut Said,
    contents: &mut Progress,
) -> Result<()> {
    let params = parts.params;
    restore_topics(parts).await?;
    // One request finds the lanes that have something to remove. Most lanes have nothing.
    let topics = parts.topics.known();
    let lanes: Vec<Lane> = topics.iter().flat_map(|known| known.entry.lanes()).collect();
    if params.remove_contents.is_some() {
        contents.begin_round(&lanes);
    }
    let Histories { now, lanes } = parts.store.histories(lanes).await?;
    let mut histories = lanes.into_iter();
    let mut found = Vec::with_capacity(topics.len());
    for known in topics {
        let of_topic: Vec<_> = known.entry.lanes().zip(histories.by_ref()).collect();
        let ended = of_topic.iter().flat_map(|(_, history)| history).map(|history| history.ended);
        let most = known.policy.history.max.unwrap_or(params.keep_of_topic);
        found.push((ended.sum::<u64>().min(most), most, known, of_topic));
    }
    let share = fair_share(found.iter().map(|(ended, ..)| *ended).collect(), params.keep_in_all);
    for (_, of_topic, known, lanes) in found {
        let keep = known.policy.history.keep.map_or(params.keep, |keep| keep.0);
        let most = of_topic.min(share).div_ceil(u64::from(known.entry.shards));
        let mut capped = 0;
        mark_schedules(&*parts.store, &known, &lanes).await;
        for (lane, history) in lanes {
            // A lane whose server is away keeps its history until the next round.
            let Some(history) = history else { continue };
            let LaneHistory { ended, oldest, has_leftovers, has_schedules: _ } = history;
            let forgotten = async {
                if has_leftovers || oldest.is_some_and(|end| end < now - keep) {
                    forget(&*parts.store, &lane, now - keep).await?;
                }
                let store = &*parts.store;
                let capped = if ended > most { cap(store, &lane, most, now).await? } else { 0 };
                if let Some(after) = params.remove_contents {
                    contents.remove(store, &lane, &history, now, after).await?;
                }
                Ok::<_, Error>(capped)
            };
            match forgotten.await {
                Ok(count) => capped += count,
                Err(error) => {
                    tracing::debug!(%lane, %error, "Could not remove old history")
                }
            }
        }
        if let Err(error) = misfires::forget(&*parts.store, &known, now).await {
            tracing::debug!(
                topic = %known.entry.topic, %error,
                "Could not check whether a pause can be forgotten"
            );
        }
        if capped > 0 {
            say_capped(&known.entry.topic, capped, share < of_topic, said);
        }
    }
    Ok(())
}

/// Marks a topic again whose lanes have recurring schedules: a failover may lose the mark, and no
/// planner looks at a topic without it.
async fn mark_schedules(
    store: &impl Maintenance,
    known: &Registered,
    lanes: &[(Lane, Option<LaneHistory>)],
) {
    let topic = &known.entry.topic;
    let has_schedules = lanes.iter().any(|(_, history)| history.is_some_and(|h| h.has_schedules));
    if known.has_schedules || !has_schedules {
        return;
    }
    match store.mark_schedules(topic).await {
        // This instance may not have read the mark of a new schedule yet.
        Ok(false) => {}
        Ok(true) => tracing::warn!(
            %topic,
            "Topic {topic} has recurring schedules that the registry did not note; it notes them \
             again"
        ),
        Err(error) => tracing::debug!(%topic, %error, "Could not mark a topic with schedules"),
    }
}

/// The most that each may keep, so that all together keep at most `most`.
fn fair_share(mut counts: Vec<u64>, most: u64) -> u64 {
    counts.sort_unstable();
    let (mut left, mut sharers) = (most, counts.len() as u64);
    for count in counts {
        let share = left / sharers;
        if count > share {
            return share;
        }
        left -= count;
        sharers -= 1;
    }
    u64::MAX
}

fn say_capped(topic: &Topic, count: u64, by_share: bool, said: &mut Said) {
    if said.get(topic).is_some_and(|last| last.elapsed() < SAID_EVERY) {
        return;
    }
    said.insert(topic.clone(), Instant::now());
    match by_share {
        false => tracing::warn!(
            %topic, count,
            "Topic {topic} ends more tasks than its history may hold: {count} were removed early"
        ),
        true => tracing::warn!(
            %topic, count,
            "All topics together end more tasks than history.max: {count} of topic {topic} were \
                removed early"
        ),
    }
}

/// Registers known topics again that the registry has lost.
async fn restore_topics(parts: &Parts<impl Topics + Maintenance>) -> Result<()> {
    let read = parts.topics.begin_read();
    let registered = parts.topics.refresh().await.map_err(topic::Error::into_store)?;
    restore(parts, parts.topics.not_among(read, &registered)).await
}

/// Registers topics again that are missing in the registry: a failover may lose an entry while the
/// tasks survive. A topic without tasks and recurring schedules was deleted, and is forgotten.
async fn restore(parts: &Parts<impl Topics + Maintenance>, missing: Vec<Registered>) -> Result<()> {
    for Registered { entry, created_by, .. } in missing {
        let lanes = entry.lanes().collect();
        let Histories { lanes, .. } = parts.store.histories(lanes).await?;
        let has_schedules = lanes.into_iter().flatten().any(|history| history.has_schedules);
        if has_schedules {
            parts.store.mark_schedules(&entry.topic).await?;
        }
        if !has_schedules && is_empty(&*parts.store, &entry).await? {
            parts.topics.forget(&entry.topic);
        } else {
            let creator = created_by.map(|token| Creator { token, most: None });
            parts.store.create(entry, creator).await?;
        }
    }
    Ok(())
}

async fn is_empty(store: &impl Topics, topic: &TopicEntry) -> Result<bool> {
    for lane in topic.lanes() {
        let Counts { scheduled, leased, delivered, dead, cancelled, expired, .. } =
            store.stats(&lane).await?;
        if scheduled + leased + delivered + dead + cancelled + expired > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the ended tasks of a lane that are older. The requests for the states share a round
/// trip.
async fn forget(store: &impl Maintenance, lane: &Lane, before: UnixMillis) -> Result<()> {
    let of_state = async |state| {
        while store.purge(lane, 0, state, before, CHUNK).await? == CHUNK {
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    let [delivered, cancelled, expired] = HISTORY.map(of_state);
    futures_util::try_join!(delivered, cancelled, expired).map(drop)
}

/// Removes the oldest of a lane's history, so that `most` tasks stay. Returns how many it removed.
async fn cap(
    store: &(impl Topics + Maintenance),
    lane: &Lane,
    most: u64,
    now: UnixMillis,
) -> Result<u64> {
    let mut forgotten = 0;
    loop {
        let Counts { delivered, cancelled, expired, .. } = store.stats(lane).await?;
        let excess = (delivered + cancelled + expired).saturating_sub(most);
        let limit = usize::try_from(excess).unwrap_or(usize::MAX).min(CHUNK);
        let Some((state, until)) = oldest(store, lane, now).await?.filter(|_| limit > 0) else {
            return Ok(forgotten);
        };
        forgotten += store.purge(lane, most, state, until, limit).await? as u64;
    }
}

/// The state that has the oldest ended task, and the moment before which its tasks are older than
/// those of the other states.
async fn oldest(
    store: &impl Topics,
    lane: &Lane,
    now: UnixMillis,
) -> Result<Option<(State, UnixMillis)>> {
    let mut heads = Vec::new();
    for state in HISTORY {
        let (from, to) = (UnixMillis(i64::MIN), UnixMillis(i64::MAX));
        let query = ListQuery { lane: lane.clone(), state, from, to, after: None, limit: 1 };
        heads.extend(store.list(query).await?.first().map(|head| (head.moment, state)));
    }
    heads.sort_by_key(|(moment, _)| *moment);
    let moment = Duration::from_millis(1);
    Ok(heads.first().map(|(first, state)| {
        let next = heads.get(1).map_or(now, |(next, _)| *next);
        (*state, next.max(*first) + moment)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_histories_are_cut_to_one_length() {
        for (counts, most, share) in [
            (vec![], 10, u64::MAX),
            (vec![3, 4], 7, u64::MAX),
            (vec![3, 4], 6, 3),
            (vec![100, 1, 50], 21, 10),
            (vec![100, 2, 8], 21, 11),
            (vec![5, 5, 5], 2, 0),
        ] {
            assert_eq!(fair_share(counts.clone(), most), share, "{counts:?}");
        }
    }
}
