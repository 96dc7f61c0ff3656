//! The trace of an attempt to call back.

use std::time::Duration;

use super::span::Begin;
use super::{AttemptEnd, Called, EndedSpan, Exporting, SpanKind, Tracer};
use crate::model::task::{Destination, Options, StoreId, TaskId, Topic};
use crate::model::trace::{TraceContext, TraceId};

/// The trace of one attempt.
#[derive(Debug)]
pub struct TracedAttempt {
    /// The context for the callback, unless the task's own headers have one.
    pub sent: TraceContext,
    /// The trace that the receiver sees, or that of the exported span.
    pub trace_id: TraceId,
    /// The span, if it is exported. In a box, because few attempts of many in flight have one.
    pub span: Option<Box<AttemptSpan>>,
}

/// The span of an attempt that runs.
#[derive(Debug)]
pub struct AttemptSpan {
    context: TraceContext,
    /// The span of the add, if the attempt continues its trace.
    parent: Option<u64>,
    /// The span of the add, if the attempt has a trace of its own.
    link: Option<TraceContext>,
    began: Begin,
    /// Filled by the client.
    pub called: Called,
}

/// The task of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The store that accepted the task first.
    pub store: StoreId,
    /// Its id.
    pub id: TaskId,
    /// Its options.
    pub options: &'a Options,
    /// The time from its add to its due time.
    pub delay: Duration,
}

impl Tracer {
    /// Begins an attempt.
    pub fn attempt(&self, task: Traced<'_>) -> TracedAttempt {
        let Traced { store, id, options, delay } = task;
        let own = options.headers.trace();
        let stored = options.traceparent.or(own);
        let continues = delay < self.0.continue_below;
        let span = self.0.exporting.as_ref().and_then(|exporting| {
            let samples = |trace| exporting.sampler.samples(trace);
            let add = stored.unwrap_or_else(|| TraceContext::of_add(store, id, samples));
            add.is_sampled.then(|| Box::new(AttemptSpan::begin(exporting, add, continues)))
        });
        let sent = match (&span, stored) {
            (Some(span), _) => span.context,
            (None, Some(stored)) if continues => stored,
            (None, _) => TraceContext::random(false),
        };
        let logged = match &span {
            Some(_) => sent,
            None => own.unwrap_or(sent),
        };
        TracedAttempt { sent, trace_id: logged.trace_id(), span }
    }

    /// Ends an attempt.
    pub fn ended(
        &self,
        span: AttemptSpan,
        (topic, id): (&Topic, TaskId),
        (destination, number): (&Destination, u32),
        ended: AttemptEnd,
    ) {
        let Some(exporting) = &self.0.exporting else { return };
        let AttemptSpan { context, parent, link, began, called } = span;
        exporting.export(EndedSpan {
            context,
            parent,
            // The add may have been on another instance.
            has_remote_parent: parent.is_some(),
            link,
            began: began.moment(),
            took: began.at.elapsed(),
            topic: topic.clone(),
            task: Some(id),
            kind: SpanKind::Attempt { destination: destination.clone(), number, called, ended },
        });
    }
}

impl AttemptSpan {
    fn begin(exporting: &Exporting, add: TraceContext, continues: bool) -> Self {
        let (context, parent, link) = match continues {
            true => (add.sibling(), Some(add.span), None),
            false => (TraceContext::random(true), None, Some(add)),
        };
        Self { context, parent, link, began: exporting.begin(), called: Called::default() }
    }
}
