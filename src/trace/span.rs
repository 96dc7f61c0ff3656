//! A span before it is exported.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Uri;
use tokio::time::Instant;

use crate::metrics::AddResult;
use crate::model::task::{Destination, TaskId, Topic};
use crate::model::trace::TraceContext;

/// A span that has ended.
#[derive(Debug)]
pub struct EndedSpan {
    /// The span itself.
    pub context: TraceContext,
    /// Its parent in the same trace; none: it is the root.
    pub parent: Option<u64>,
    /// Whether another process made the parent.
    pub has_remote_parent: bool,
    /// The span of another trace that it follows.
    pub link: Option<TraceContext>,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// The topic of its task.
    pub topic: Topic,
    /// Its task, if the add was confirmed.
    pub task: Option<TaskId>,
    /// What it is about.
    pub kind: SpanKind,
}

/// What a span is about.
#[derive(Debug)]
pub enum SpanKind {
    /// An add: what the store did, or the code of the error.
    Add(Result<AddResult, u16>),
    /// An attempt to call back.
    Attempt {
        /// The destination.
        destination: Destination,
        /// The number of the attempt, from 1.
        number: u32,
        /// What was called, and what it answered.
        called: Called,
        /// The result.
        ended: AttemptEnd,
    },
}

/// How an attempt ended.
#[derive(Debug)]
pub enum AttemptEnd {
    /// The receiver took the task.
    Succeeded,
    /// It did not: the outcome, without content or URL.
    Failed(String),
}

/// What a call was to, and what came back. Filled by the client.
#[derive(Debug, Default)]
pub struct Called {
    url: OnceLock<Uri>,
    status: OnceLock<u16>,
    trouble: OnceLock<&'static str>,
}

impl Called {
    /// Keeps the URL of the call.
    pub fn aimed(&self, url: &Uri) {
        // A call has one URL, one response and one failure.
        let _ = self.url.set(url.clone());
    }

    /// Keeps the status of the response.
    pub fn answered(&self, status: u16) {
        let _ = self.status.set(status);
    }

    /// Keeps what went wrong, as one of a few words.
    pub fn failed(&self, trouble: &'static str) {
        let _ = self.trouble.set(trouble);
    }

    /// The URL, if the call had one.
    pub fn url(&self) -> Option<&Uri> {
        self.url.get()
    }

    /// The status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        self.status.get().copied()
    }

    /// What went wrong, if a status does not tell it.
    pub fn trouble(&self) -> Option<&'static str> {
        self.trouble.get().copied()
    }
}

/// When a span began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) unix_micros: i64,
    pub(super) at: Instant,
}

impl Begin {
    /// The moment as the system's clock tells it.
    pub(super) fn moment(self) -> SystemTime {
        let micros = u64::try_from(self.unix_micros).unwrap_or_default();
        UNIX_EPOCH + Duration::from_micros(micros)
    }
}
