//! Tasks and requests for the tests of this folder.

use std::time::Duration;

use tokio::sync::oneshot;

use super::request::{Answer, Request};
use crate::store::{Moment, NewTask, TopicEntry};

/// A plain task.
pub(super) fn task() -> NewTask {
    NewTask {
        topic: TopicEntry { topic: "t".parse().unwrap(), shards: 1 },
        destination: "sn".parse().unwrap(),
        moment: Moment::After(Duration::ZERO),
        options: Default::default(),
        content: "{}".into(),
        idempotency: None,
        quota: None,
    }
}

/// A request, and the receiver of its answer.
pub(super) fn request(tasks: usize) -> (Request, oneshot::Receiver<Answer>) {
    Request::of(vec![task(); tasks], Vec::new())
}
