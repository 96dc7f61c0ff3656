use std::sync::Arc;
use std::time::Duration;

use futures_util::poll;

use crate::api::long_poll::claim::take;
use crate::api::long_poll::delivery::{PullParams, PulledTasks};
use crate::api::long_poll::dispatcher::wait;
use crate::api::long_poll::queue::PullQueue;
use crate::api::state::Api;
use crate::api::testing::{edge_with_store, edge_without_store};
use crate::api::wire::error::Error;
use crate::model::task::{Destination, Lane, Options, TaskId, Topic};
use crate::store::{Intake, Moment, NewTask};

const PARAMS: PullParams = PullParams { slots: 1, lease: Some(Duration::from_secs(60)) };
const LONG: Duration = Duration::from_secs(30);

fn topic() -> Topic {
    "t".parse().unwrap()
}

async fn add(api: &Api) -> TaskId {
    let topic = api.topics.ensure(&topic()).await.unwrap().entry;
    let (destination, moment, options) =
        (Destination::pull(), Moment::After(Duration::ZERO), Options::default());
    let content = "{}".into();
    let task =
        NewTask { topic, destination, moment, options, content, idempotency: None, quota: None };
    api.store.add(vec![task]).await.remove(0).unwrap().id
}

fn id_of(taken: Result<Option<PulledTasks>, Error>) -> TaskId {
    let taken = taken.unwrap().expect("a task");
    taken.held.written();
    TaskId(taken.tasks[0].task_id.unwrap().0)
}

#[tokio::test]
async fn who_came_first_is_served_first() {
    let (api, _draining, _folder) = edge_with_store();
    let (api, topic) = (Arc::new(api), topic());
    let mut waiting: Vec<_> =
        (0..5).map(|_| Box::pin(wait(&api.pulls, &topic, PARAMS, LONG))).collect();
    for waiting in &mut waiting {
        assert!(poll!(waiting).is_pending());
    }
    drop(waiting.remove(1));
    for waiting in waiting {
        let id = add(&api).await;
        assert_eq!(id_of(waiting.await), id, "another waiter was served before");
    }
}

#[tokio::test]
async fn what_came_for_someone_who_left_goes_to_the_next_unspent() {
    let (api, _draining, _folder) = edge_with_store();
    let (api, topic) = (Arc::new(api), topic());
    let id = add(&api).await;
    let mut first = Box::pin(wait(&api.pulls, &topic, PARAMS, LONG));
    assert!(poll!(&mut first).is_pending());
    let queue = api.pulls.waiters.queue_of(&topic).unwrap();
    while !queue.is_empty() {
        tokio::task::yield_now().await;
    }
    // It is claimed, and on its way to the first pull.
    drop(first);
    let taken = wait(&api.pulls, &topic, PARAMS, LONG).await.unwrap().expect("the task");
    assert_eq!((taken.tasks[0].task_id, taken.tasks[0].attempt), (Some(id.into()), Some(1)));
}

/// Only the first task's lane once got a hint, and the others waited for the next poll.
#[tokio::test]
async fn what_is_given_back_is_told_of_in_each_lane() {
    let (api, _draining, _folder) = edge_with_store();
    let (api, topic) = (Arc::new(api), topic());
    let known = api.topics.ensure_for(&topic, 3, |_| None).await.unwrap();
    for _ in 0..3 {
        add(&api).await;
    }
    let lanes: Vec<Lane> = known.entry.lanes().collect();
    let taken = take(&api.pulls, &known, lanes, PullParams { slots: 3, ..PARAMS }).await.unwrap();
    let mut shards: Vec<u16> =
        taken.tasks.iter().map(|task| (task.task_id.unwrap().0 % 3) as u16).collect();
    shards.sort_unstable();
    shards.dedup();
    assert!(shards.len() > 1, "all tasks are in one lane");
    // A queue whose hints nobody uses up.
    let queue = Arc::new(PullQueue::default());
    api.pulls.waiters.queues().insert(topic.clone(), queue.clone());
    drop(taken);
    api.pending.close();
    api.pending.wait().await;
    let told = async {
        while queue.state().hinted.keys().copied().collect::<Vec<_>>() != shards {
            queue.news.notified().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("a hint for each lane");
}

#[tokio::test]
async fn a_line_is_gone_with_the_last_who_stood_in_it() {
    let (api, _draining, _folder) = edge_with_store();
    let (api, topic) = (Arc::new(api), topic());
    let mut waiting = Box::pin(wait(&api.pulls, &topic, PARAMS, LONG));
    assert!(poll!(&mut waiting).is_pending());
    drop(waiting);
    while api.pulls.waiters.queue_of(&topic).is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(wait(&api.pulls, &topic, PARAMS, Duration::from_millis(50)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_drain_and_a_failing_store_end_all_waits() {
    let (api, draining, _folder) = edge_with_store();
    let (api, topic) = (Arc::new(api), topic());
    let mut waiting = Box::pin(wait(&api.pulls, &topic, PARAMS, LONG));
    assert!(poll!(&mut waiting).is_pending());
    draining.send_replace(true);
    assert!(waiting.await.unwrap().is_none());
    let (api, _draining) = edge_without_store().await;
    let api = Arc::new(api);
    assert!(wait(&api.pulls, &topic, PARAMS, LONG).await.unwrap_err().is_unavailable());
}
