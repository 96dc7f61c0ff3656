//! Batches of adds: gathered from the queue of a server, sent, and answered. A batch is calls of
//! `lua/add.lua` over its lanes, and for each lane one of `lua/add_with_options.lua` for tasks that
//! ask for more than their delivery.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use deadpool_redis::redis::Cmd;
use tokio::sync::mpsc;

use super::call::{BatchPlace, LaneTasks, ScriptCall, asks_more};
use super::pacing::{MOST_UNDER_WAY, UnderWay, at_once};
use super::queue::{KeptResult, Request};
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::redis::arguments::chunks;
use crate::store::redis::ids;
use crate::store::redis::ids::pool::{Drawn, IdRequest};
use crate::store::redis::registry::opening::{self, LaneRefusal};
use crate::store::redis::registry::reconcile;
use crate::store::redis::session::Session;
use crate::store::redis::transport::link::Repeat;
use crate::store::redis::transport::node::Purpose;
use crate::store::{Error, Hint, NewTask, Novelty, Result, TopicEntry};

/// The most requests in one batch.
const MOST_REQUESTS: usize = 512;

/// Sends the requests for a server until no more will come. Ids are drawn by batches in the order
/// of the queue, so they grow in that order.
pub(super) async fn run(session: Arc<Session>, server: u64, mut requests: mpsc::Receiver<Request>) {
    let most = if session.wait_replicas > 0 { 1 } else { MOST_UNDER_WAY };
    let mut under_way = UnderWay::new(most);
    loop {
        under_way.room(at_once(session.servers.round_trip(server))).await;
        let Some(gathered) = gather(&mut requests, under_way.most_bytes()).await else { break };
        let batch = AddBatch::with_ids(&session, gathered).await;
        under_way.start(send(session.clone(), batch));
    }
    under_way.end().await;
}

async fn send(session: Arc<Session>, mut batch: AddBatch) {
    batch.send_all(&session).await;
    batch.answer();
    if !batch.refused.is_empty() {
        // The registry may be on another server, which may be unreachable. The next batch and the
        // rest of this one must not wait for it.
        tokio::spawn(async move { batch.open_lanes(&session).await });
    }
}

/// Waits for a request, and takes those behind it up to the size of one batch. Leaves out requests
/// whose callers were refused meanwhile: their tasks must not be stored. Returns `None` when no
/// more requests will come.
async fn gather(requests: &mut mpsc::Receiver<Request>, most_bytes: usize) -> Option<Vec<Request>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    // If all requests are abandoned there is no batch: it would draw ids without use, while other
    // requests wait for theirs.
    while batch.is_empty() {
        let mut next = Some(requests.recv().await?);
        // Lets callers that are about to add enter the queue. If there are none, this takes no
        // time.
        tokio::task::yield_now().await;
        while let Some(request) = next {
            if !request.is_abandoned() {
                bytes += request.tasks.iter().map(|task| task.content.len()).sum::<usize>();
                batch.push(request);
            }
            next = if batch.len() < MOST_REQUESTS && bytes < most_bytes {
                requests.try_recv().ok()
            } else {
                None
            };
        }
    }
    Some(batch)
}

/// Requests that are sent together, and what is known of each so far.
#[derive(Debug)]
pub(crate) struct AddBatch {
    /// `None` once it is answered.
    requests: Vec<Option<Request>>,
    kept: Vec<Vec<Result<KeptResult>>>,
    /// Tasks that are not stored because their lanes are not open to them.
    pub(crate) refused: Vec<(LaneTasks, LaneRefusal)>,
    /// The ids of the tasks, in order, until they are sent. Tasks without ids have failed.
    drawn: Vec<Option<Drawn>>,
}

impl AddBatch {
    fn of(requests: Vec<Request>) -> Self {
        // Tasks without an entry were not sent: their caller disconnected before ids were
        // allocated. All others are answered, or have failed.
        let kept = requests
            .iter()
            .map(|request| vec![Ok(KeptResult::Taken); request.tasks.len()])
            .collect();
        let requests = requests.into_iter().map(Some).collect();
        Self { requests, kept, refused: Vec::new(), drawn: Vec::new() }
    }

    /// What each task asks of its ids, in order.
    fn id_requests(&self) -> Vec<IdRequest> {
        let requests = self.requests.iter().flatten();
        requests
            .flat_map(|request| (0..request.tasks.len()).map(|place| request.id_request(place)))
            .collect()
    }

    /// The position of each task that has ids, in order.
    fn places(&self, drawn: Vec<Option<Drawn>>) -> impl Iterator<Item = BatchPlace> {
        let requests = self.kept.iter().enumerate();
        let places = requests
            .flat_map(|(request, kept)| (0..kept.len()).map(move |member| (request, member)));
        places.zip(drawn).filter_map(|((request, member), drawn)| {
            drawn.map(|drawn| BatchPlace { request, member, drawn })
        })
    }

    fn task(&self, place: BatchPlace) -> &NewTask {
        &self.requests[place.request].as_ref().expect("its caller waits").tasks[place.member]
    }

    /// Sets the result of a task.
    pub(crate) fn note(&mut self, place: BatchPlace, kept: Result<KeptResult>) {
        self.kept[place.request][place.member] = kept;
    }

    /// Sets the ids of all tasks, in order, and the errors of those without ids.
    fn note_ids(&mut self, drawn: Vec<Result<Drawn>>) {
        let tasks = drawn.into_iter().zip(self.kept.iter_mut().flatten());
        self.drawn =
            tasks.map(|(drawn, kept)| drawn.map_err(|error| *kept = Err(error)).ok()).collect();
    }

    /// Answers all callers that still wait, except those with refused tasks.
    pub(crate) fn answer(&mut self) {
        let refused: HashSet<usize> = self
            .refused
            .iter()
            .flat_map(|(lane, _)| &lane.places)
            .map(|place| place.request)
            .collect();
        let waiting = self
            .requests
            .iter_mut()
            .zip(&mut self.kept)
            .enumerate()
            .filter(|(at, _)| !refused.contains(at));
        waiting.for_each(|(_, (request, kept))| {
            request.take().into_iter().for_each(|asked| asked.answer(std::mem::take(kept)));
        });
    }

    /// The tasks to send: first the plain ones of each lane, sorted by destination, then the others
    /// of each lane; in several parts if there are many. A quota counts the tasks before, so in a
    /// lane with one, all tasks are sent in their order.
    fn by_lane(&self, drawn: Vec<Option<Drawn>>) -> Vec<LaneTasks> {
        let mut lanes: HashMap<(Lane, u16), Vec<BatchPlace>> = HashMap::new();
        // Callers that were refused while ids were allocated are left out, with all of their tasks.
        // If a caller leaves later, all of its tasks are stored.
        let waits: Vec<bool> = self
            .requests
            .iter()
            .map(|request| request.as_ref().is_some_and(|asked| !asked.is_abandoned()))
            .collect();
        for place in self.places(drawn).filter(|place| waits[place.request]) {
            let topic = &self.task(place).topic;
            lanes.entry((topic.lane_of(place.drawn.own), topic.shards)).or_default().push(place);
        }
        let mut all_plain = Vec::with_capacity(lanes.len());
        let mut all_special = Vec::new();
        for ((lane, shards), places) in lanes {
            let is_limited = places.iter().any(|&place| self.task(place).quota.is_some());
            let (special, mut plain): (Vec<_>, Vec<_>) =
                places.into_iter().partition(|&place| is_limited || asks_more(self.task(place)));
            plain.sort_by(|&a, &b| self.task(a).destination.cmp(&self.task(b).destination));
            let parts = [(&mut all_plain, false, plain), (&mut all_special, true, special)];
            for (all, asks_more, places) in parts {
                let chunks = chunks(places, |&place| self.task(place).content.len()).into_iter();
                all.extend(chunks.map(|places| {
                    let lane = lane.clone();
                    LaneTasks { lane, shards, token: None, asks_more, places }
                }));
            }
        }
        all_plain.append(&mut all_special);
        all_plain
    }
}

impl AddBatch {
    /// A batch of requests, whose tasks have ids or have failed.
    pub(crate) async fn with_ids(session: &Arc<Session>, requests: Vec<Request>) -> Self {
        let mut batch = Self::of(requests);
        let drawn = ids::draw(session, &batch.id_requests()).await;
        batch.note_ids(drawn);
        batch
    }

    /// Sends all tasks. [`AddBatch::answer`] returns the results to the callers.
    pub(crate) async fn send_all(&mut self, session: &Session) {
        let drawn = std::mem::take(&mut self.drawn);
        let lanes = self.by_lane(drawn);
        self.send(session, lanes).await;
    }

    /// Sends tasks, and notes the results.
    async fn send(&mut self, session: &Session, lanes: Vec<LaneTasks>) {
        let over_lanes = !session.servers.is_cluster();
        let calls = ScriptCall::group(lanes, over_lanes, |place| self.task(place).content.len());
        let commands: Vec<Cmd> =
            calls.iter().map(|call| call.command(session, |place| self.task(place))).collect();
        let replies = session.servers.run(Purpose::Adding, &commands, Repeat::InRun).await;
        for (call, reply) in calls.into_iter().zip(replies) {
            let stored = call.read(reply, |place| self.task(place));
            for (lane, stored) in call.lanes.into_iter().zip(stored) {
                match stored {
                    Ok(Ok(kept)) => {
                        hint(session, &lane, &kept, self);
                        let places = lane.places.iter().zip(kept);
                        places.for_each(|(&place, kept)| self.note(place, kept));
                    }
                    Ok(Err(refusal)) => self.refused.push((lane, refusal)),
                    Err(error) => self.note_lane(&lane, &error),
                }
            }
        }
    }

    /// Opens the lanes that refused tasks, as far as the registry agrees, and sends their tasks
    /// again. Then answers all callers.
    pub(crate) async fn open_lanes(mut self, session: &Session) {
        for _ in 0..opening::ATTEMPTS {
            let refused = std::mem::take(&mut self.refused);
            if refused.is_empty() {
                break;
            }
            let entries: Vec<TopicEntry> = refused.iter().map(|(lane, _)| lane.entry()).collect();
            let asked = entries.iter().zip(refused.iter().map(|(_, refusal)| refusal));
            let confirmed = reconcile::confirm(session, asked).await;
            let mut again = Vec::new();
            for ((mut lane, refusal), entry) in refused.into_iter().zip(&entries) {
                match (&confirmed[entry], refusal) {
                    (Ok(()), LaneRefusal::Closed(token)) => {
                        // Tasks of callers that were refused meanwhile must not be stored. A call
                        // without tasks still opens the lane. Otherwise the lane would stay closed
                        // if Redis is so far away that callers are refused before it is open.
                        lane.places.retain(|place| self.is_awaited(*place));
                        again.push(LaneTasks { token: Some(token), ..lane });
                    }
                    (Ok(()), LaneRefusal::Stale) => self.note_lane(&lane, &Error::StaleEntry),
                    (Err(error), _) => self.note_lane(&lane, error),
                }
            }
            self.send(session, again).await;
        }
        // The topic is deleted again and again.
        for (lane, _) in std::mem::take(&mut self.refused) {
            self.note_lane(&lane, &Error::StaleEntry);
        }
        self.answer();
    }

    fn is_awaited(&self, place: BatchPlace) -> bool {
        self.requests[place.request].as_ref().is_some_and(|asked| !asked.is_abandoned())
    }

    /// Sets the same error for all tasks of a lane.
    fn note_lane(&mut self, lane: &LaneTasks, error: &Error) {
        lane.places.iter().for_each(|&place| self.note(place, Err(error.clone())));
    }
}

/// Sends hints about new tasks of the lane.
fn hint(session: &Session, lane: &LaneTasks, kept: &[Result<KeptResult>], batch: &AddBatch) {
    let mut earliest: [Option<UnixMillis>; 2] = [None; 2];
    for (&place, kept) in lane.places.iter().zip(kept) {
        if let Ok(KeptResult::Added(added)) = kept
            && !matches!(added.novelty, Novelty::Duplicate { .. })
        {
            let due = &mut earliest[usize::from(batch.task(place).destination.is_pull())];
            *due = Some(due.map_or(added.due, |due| due.min(added.due)));
        }
    }
    for (is_pull, due) in [false, true].into_iter().zip(earliest) {
        if let Some(due) = due {
            session.hints.tell(Hint { lane: lane.lane.clone(), due, is_pull });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::task::TaskId;
    use crate::store::redis::add::testing::{request, task};
    use crate::store::redis::arguments::MOST_BYTES;

    #[tokio::test]
    async fn there_is_no_batch_of_those_who_have_gone() {
        let (sender, mut receiver) = mpsc::channel(8);
        for _ in 0..3 {
            sender.try_send(request(1).0).unwrap();
        }
        let (stays, _answered) = request(2);
        let (gathered, ()) = tokio::join!(gather(&mut receiver, MOST_BYTES), async {
            // The three have been read by now.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            sender.try_send(stays).unwrap();
        });
        assert_eq!(
            gathered.unwrap().iter().map(|request| request.tasks.len()).collect::<Vec<_>>(),
            [2]
        );
        sender.try_send(request(1).0).unwrap();
        drop(sender);
        assert!(gather(&mut receiver, MOST_BYTES).await.is_none());
    }

    /// One caller has an old number of lanes, the other the current one. In one call, the tasks of
    /// one would be stored by the number of the other, where their ids do not lead.
    #[test]
    fn tasks_placed_by_different_numbers_of_lanes_go_in_different_calls() {
        let request = |shards| {
            let topic = TopicEntry { topic: "t".parse().unwrap(), shards };
            Request::of(vec![NewTask { topic, ..task() }], Vec::new())
        };
        let (old, _waits) = request(1);
        let (new, _waits_too) = request(4);
        let drawn = [4, 8].map(|id| Some(Drawn { own: TaskId(id), call: None }));
        let mut lanes: Vec<_> = AddBatch::of(vec![old, new]).by_lane(drawn.to_vec());
        lanes.sort_by_key(|lane| lane.shards);
        let seen: Vec<_> =
            lanes.iter().map(|lane| (lane.lane.shard, lane.shards, lane.places.len())).collect();
        assert_eq!(seen, [(0, 1, 1), (0, 4, 1)]);
    }
}
