//! Several lanes in one call of a Redis script.

use delayd::model::clock::Clock;
use delayd::model::task::State;
use delayd::store::{Admin, Error, Intake, NewTask, Reader, Result, Topics};

use crate::bench::{START, connect, fresh_prefix, new_task, topic_of};
use crate::redis_alone::raw;

/// All three tasks go in one call.
#[tokio::test]
async fn a_broken_lane_does_not_affect_the_others_of_its_call() {
    let prefix = fresh_prefix();
    let store = connect(&prefix, &Clock::manual(START)).await;
    let topics = ["first", "broken", "last"].map(|name| topic_of(name, 1));
    let tasks = || {
        let task = |topic| NewTask { topic, ..new_task("message.call", 50) };
        topics.clone().map(task).to_vec()
    };
    for topic in topics.clone() {
        store.create(topic, None).await.unwrap();
    }
    assert!(store.add(tasks()).await.iter().all(Result::is_ok));
    let bodies = format!("{prefix}:DELAY_REALL_TOPIC_TASK-{{broken:0}}");
    raw::<()>(&["SET", &bodies, "not a hash"]);

    let added = store.add(tasks()).await;

    assert!(
        matches!(&added[1], Err(Error::Corrupt(why)) if why.contains("WRONGTYPE")),
        "{added:?}"
    );
    for place in [0, 2] {
        let id = added[place].as_ref().unwrap().id;
        let task = store.get(Reader::Worker, &topics[place].lane_of(id), id).await;
        assert_eq!(task.unwrap().unwrap().state, State::Scheduled, "{place}");
    }
}
