//! Tasks and requests for the tests of this folder.

use std::time::Duration;

use tokio::sync::oneshot;

use super::queue::{Request, RequestAnswer};
use crate::model::clock::UnixMillis;
use crate::model::task::Options;
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

/// A plain task without content, with options.
pub(super) fn with_options() -> NewTask {
    let options = Options { max_attempts: Some(3), ..Options::default() };
    NewTask { moment: Moment::At(UnixMillis(0)), options, content: String::new(), ..task() }
}

/// A request, and the receiver of its answer.
pub(super) fn request(tasks: usize) -> (Request, oneshot::Receiver<RequestAnswer>) {
    Request::of(vec![task(); tasks], Vec::new())
}
