use futures_util::FutureExt;

use super::*;
use crate::model::clock::Clock;
use crate::store::embedded;

fn registry(folder: &tempfile::TempDir, max_topics: usize) -> Registry<embedded::Embedded> {
    let params = embedded::Params {
        path: folder.path().join("delayd.db"),
        reserve: 0,
        clock: Clock::system(),
    };
    Registry::new(Arc::new(embedded::Embedded::open(params).unwrap()), Params { max_topics })
}

fn topic(n: usize) -> Topic {
    format!("t{n}").parse().unwrap()
}

#[tokio::test]
async fn those_who_come_together_do_not_exceed_the_limit_together() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 3);
    let names: Vec<Topic> = (0..10).map(|n| topic(n % 5)).collect();
    let made =
        futures_util::future::join_all(names.iter().map(|topic| registry.ensure(topic))).await;
    let refused = made.iter().filter(|made| matches!(made, Err(Error::TooMany(3)))).count();
    assert_eq!((refused, registry.store.topics().await.unwrap().len()), (4, 3), "{made:?}");
    assert!(registry.coming.is_empty());
}

/// What one token is refused, another one may create, also at the same time.
#[tokio::test]
async fn the_refusal_of_one_token_is_none_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 10);
    let by = |token: &'static str, most| {
        move |share| {
            assert_eq!(share, 1);
            Some(Creator { token: token.into(), most: Some(most) })
        }
    };
    registry.ensure_for(&topic(0), 1, by("a", 1)).await.unwrap();
    let name = topic(1);
    let refused = registry.ensure_for(&name, 1, by("a", 1)).await;
    assert!(matches!(refused, Err(Error::TooManyOfToken(1))), "{refused:?}");
    let first = loop {
        let mut first = Box::pin(registry.ensure_for(&name, 1, by("a", 1)));
        // The store may answer at once.
        if (&mut first).now_or_never().is_none() {
            break first;
        }
    };
    // The first may find the topic that the second creates.
    let (created, _) = tokio::join!(registry.ensure_for(&name, 1, by("b", 1)), first);
    assert_eq!(created.unwrap().entry.topic, name);
    assert!(registry.ensure_for(&name, 1, by("a", 1)).await.is_ok(), "it is there now");
}

/// Each refused add had the only writer of the store count the topics of all tokens.
#[tokio::test]
async fn a_token_at_its_limit_is_refused_for_a_second_without_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 10);
    let by = |_| Some(Creator { token: "a".into(), most: Some(1) });
    let try_create = async |n| registry.ensure_for(&topic(n), 1, by).await;
    let refuses = |made| matches!(made, Err(Error::TooManyOfToken(1)));
    let delete = async |n| {
        let entry = TopicEntry { topic: topic(n), shards: 1 };
        assert!(registry.store.unregister(&entry).await.unwrap());
    };
    let refused_at = |then| registry.refused.lock().unwrap().insert("a".into(), then);
    try_create(0).await.unwrap();
    assert!(refuses(try_create(1).await));
    // However slow this test is.
    assert!(refused_at(Instant::now() + 3_600 * REFUSED_FOR).is_some());
    // Through another instance.
    delete(0).await;
    assert!(refuses(try_create(1).await));
    refused_at(Instant::now() - REFUSED_FOR);
    try_create(1).await.unwrap();
    assert!(refuses(try_create(2).await));
    delete(1).await;
    registry.forget(&topic(1));
    try_create(2).await.unwrap();
}

/// Without the order of the reads, a poll undid the pause for a second.
#[tokio::test]
async fn a_poll_that_began_before_a_pause_does_not_undo_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 3);
    registry.ensure(&topic(0)).await.unwrap();
    let seen = registry.seen();
    let before = registry.store.topics().await.unwrap();
    registry.store.pause(&topic(0)).await.unwrap();
    registry.refresh().await.unwrap();
    assert!(registry.is_paused(&topic(0)));
    registry.take_in(seen, Revision(7), &before);
    assert!(registry.is_paused(&topic(0)));
    assert_eq!(registry.seen().revision, None, "the next poll reads the registry again");
    // The entry that a later read brings may be the known one.
    let resumed = registry.seen();
    registry.refresh().await.unwrap();
    registry.take_in(resumed, Revision(8), &before);
    assert!(registry.is_paused(&topic(0)));
}

/// The janitor forgot a topic that was created during a poll, with its settings, until the next.
#[tokio::test]
async fn a_topic_that_is_created_during_a_poll_is_not_missing() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 3);
    registry.ensure(&topic(0)).await.unwrap();
    let seen = registry.seen();
    let before = registry.store.topics().await.unwrap();
    registry.ensure(&topic(1)).await.unwrap();
    registry.take_in(seen, Revision(7), &before);
    assert_eq!(registry.missing().now_or_never(), None);
    registry.take_in(registry.seen(), Revision(8), &before);
    let missing = registry.missing().now_or_never().unwrap();
    assert_eq!(missing.iter().map(|known| &known.entry.topic).collect::<Vec<_>>(), [&topic(1)]);
}

/// Another instance has registered the topic since this one's last poll.
#[tokio::test]
async fn a_topic_that_is_there_is_found_at_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(&folder, 1);
    registry.ensure(&topic(0)).await.unwrap();
    registry.forget(&topic(0));
    registry.ensure(&topic(1)).await.unwrap();
    assert_eq!(registry.ensure(&topic(0)).await.unwrap().entry.topic, topic(0));
    assert_eq!(registry.known().len(), 2);
}
