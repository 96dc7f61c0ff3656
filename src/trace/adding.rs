//! The trace of a request that adds tasks.

use http::HeaderMap;

use super::span::Begin;
use super::{EndedSpan, Exporting, SpanKind, Tracer};
use crate::metrics::AddResult;
use crate::model::task::{Options, TaskId, Topic};
use crate::model::trace::TraceContext;

/// The trace of a request that adds tasks. Each of its tasks has a span.
#[derive(Debug)]
pub struct Adding<'a> {
    tracer: &'a Tracer,
    /// The context that the request came with.
    caller: Option<TraceContext>,
    /// When the request began, if its spans may be exported.
    began: Option<Begin>,
}

/// The span of one task's add, while the store works on it.
#[derive(Debug)]
pub struct AddSpan {
    topic: Topic,
    /// The caller's span, and the span of the add. None: the caller sent no context.
    known: Option<(TraceContext, TraceContext)>,
}

impl Tracer {
    /// The trace of a request with these headers.
    pub fn adding(&self, headers: &HeaderMap) -> Adding<'_> {
        Adding {
            tracer: self,
            caller: TraceContext::of_headers(headers),
            began: self.0.exporting.as_ref().map(Exporting::begin),
        }
    }
}

impl Adding<'_> {
    /// Begins the add of a task, and sets the context that the task stores. Returns the span, if it
    /// may be exported.
    ///
    /// The caller's context is that of the request, otherwise that of the task's own headers, which
    /// are never changed.
    pub fn begin(&self, topic: &Topic, options: &mut Options) -> Option<AddSpan> {
        let own = options.headers.trace();
        let caller = self.caller.or(own);
        let is_exported = self.began.is_some();
        match caller {
            Some(caller) if is_exported && caller.is_sampled => {
                let span = caller.sibling();
                options.traceparent = Some(span);
                Some(AddSpan { topic: topic.clone(), known: Some((caller, span)) })
            }
            // An attempt reads it, unless nothing is exported and no trace is continued. The task's
            // own headers are stored already.
            Some(caller) => {
                let is_read = is_exported || !self.tracer.0.continue_below.is_zero();
                options.traceparent = Some(caller).filter(|caller| is_read && own != Some(*caller));
                None
            }
            None => is_exported.then(|| AddSpan { topic: topic.clone(), known: None }),
        }
    }

    /// Ends the add of a task: with its id and what the store did, or with the code of the error.
    pub fn end(&self, span: AddSpan, added: Result<(TaskId, AddResult), u16>) {
        let (Some(began), Some(exporting)) = (self.began, &self.tracer.0.exporting) else {
            return;
        };
        let AddSpan { topic, known } = span;
        let own = known.map_or_else(|| exporting.root(), |(_, span)| span);
        let span = EndedSpan {
            context: own,
            parent: known.map(|(caller, _)| caller.span),
            has_remote_parent: known.is_some(),
            link: None,
            began: began.moment(),
            took: began.at.elapsed(),
            topic,
            task: added.ok().map(|(id, _)| id),
            kind: SpanKind::Add(added.map(|(_, result)| result)),
        };
        match added {
            // The derived span belongs to the add that made the task.
            Ok((id, AddResult::New)) if known.is_none() => exporting.export_derived(span, id),
            _ => exporting.export(span),
        }
    }
}
