//! Tests of spans and their export.

use super::export::{BATCH, Collector};
use super::*;
use crate::metrics::AddResult;
use crate::model::clock::UnixMillis;
use crate::model::task::{Headers, Options, StoreId, TaskId, Topic};
use crate::model::trace::TraceContext;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// A collector that hands each batch to the test, and answers as the test says.
struct ByHand {
    batches: mpsc::UnboundedSender<Vec<EndedSpan>>,
    answer: fn() -> Result<(), String>,
    /// Whether it never answers.
    hangs: bool,
}

impl Collector for ByHand {
    async fn send(&self, spans: Vec<EndedSpan>) -> Result<(), String> {
        let _ = self.batches.send(spans);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        (self.answer)()
    }
}

struct Bench {
    tracer: Tracer,
    batches: mpsc::UnboundedReceiver<Vec<EndedSpan>>,
    metrics: Arc<Metrics>,
}

impl Bench {
    fn start(ratio: f64, answer: fn() -> Result<(), String>, hangs: bool) -> Self {
        let continue_below = Duration::from_secs(10);
        let (taken, batches) = mpsc::unbounded_channel();
        let (queue, spans) = mpsc::channel(QUEUE);
        let (metrics, stopping) = (Metrics::new([]), CancellationToken::new());
        let exporter = Exporter {
            collector: ByHand { batches: taken, answer, hangs },
            spans,
            timeout: Duration::from_secs(10),
            stopping: stopping.clone(),
            metrics: metrics.clone(),
        };
        let exporting = Exporting {
            queue,
            sampler: TraceSampler::new(ratio),
            metrics: metrics.clone(),
            clock: Clock::manual(UnixMillis(1_795_236_367_000)),
            store: Mutex::default(),
            stopping,
            exporter: Mutex::new(Some(tokio::spawn(exporter.run()))),
        };
        let tracer = Tracer(Arc::new(Inner { continue_below, exporting: Some(exporting) }));
        Self { tracer, batches, metrics }
    }

    /// The spans of the next batch.
    async fn batch(&mut self) -> Vec<EndedSpan> {
        self.batches.recv().await.expect("the exporter runs")
    }

    #[track_caller]
    fn counts(&self, counter: &str, count: u64) {
        let text = self.metrics.encode();
        let line = format!("\ndelayd_trace_spans_{counter} {count}\n");
        assert!(text.contains(&line), "no {line:?} in {text}");
    }
}

fn taken() -> Result<(), String> {
    Ok(())
}

fn refused() -> Result<(), String> {
    Err("status 500".into())
}

fn topic() -> Topic {
    "orders".parse().unwrap()
}

fn headers(traceparent: &str) -> http::HeaderMap {
    [(crate::model::trace::TRACEPARENT, traceparent.parse().unwrap())].into_iter().collect()
}

fn with_own(traceparent: &str) -> Options {
    let own = [("traceparent".to_owned(), traceparent.to_owned())];
    Options { headers: Headers::new(own).unwrap(), ..Options::default() }
}

/// Adds a task, and returns its options.
fn add(tracer: &Tracer, request: &http::HeaderMap, options: Options, result: AddResult) -> Options {
    let adding = tracer.adding(request);
    let mut options = options;
    if let Some(span) = adding.begin(&topic(), &mut options) {
        tracer.set_store(StoreId(7));
        adding.end(span, Ok((TaskId(42), result)));
    }
    options
}

fn attempt(tracer: &Tracer, options: &Options, delay: u64) -> TracedAttempt {
    let delay = Duration::from_secs(delay);
    tracer.attempt(Traced { store: StoreId(7), id: TaskId(42), options, delay })
}

fn end(tracer: &Tracer, attempt: TracedAttempt) {
    if let Some(span) = attempt.span {
        let destination = "message.call".parse().unwrap();
        tracer.ended(*span, (&topic(), TaskId(42)), (&destination, 1), AttemptEnd::Succeeded);
    }
}

/// No add waits for the store's id, which the first poll reads.
#[tokio::test(start_paused = true)]
async fn an_add_before_the_stores_id_is_known_is_linked_as_well() {
    let mut bench = Bench::start(1.0, taken, false);
    let mut options = Options::default();
    let request = http::HeaderMap::new();
    let adding = bench.tracer.adding(&request);
    let span = adding.begin(&topic(), &mut options).expect("it is exported");
    adding.end(span, Ok((TaskId(42), AddResult::New)));
    bench.tracer.set_store(StoreId(7));
    end(&bench.tracer, attempt(&bench.tracer, &options, 60));
    let [add, attempt] = &bench.batch().await[..] else { panic!("two spans") };
    assert_eq!(attempt.link, Some(add.context));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_linked_to_its_add() {
    let mut bench = Bench::start(1.0, taken, false);
    let caller: TraceContext = CALLER.parse().unwrap();
    for (request, own) in [
        (headers(CALLER), Options::default()),
        (http::HeaderMap::new(), with_own(CALLER)),
        (http::HeaderMap::new(), Options::default()),
    ] {
        let has_caller = !request.is_empty() || !own.headers.is_empty();
        let stored = add(&bench.tracer, &request, own.clone(), AddResult::New);
        assert_eq!(stored.headers, own.headers);
        assert_eq!(stored.traceparent.is_some(), has_caller);
        for delay in [60, 9] {
            end(&bench.tracer, attempt(&bench.tracer, &stored, delay));
        }
        let [add, linked, child] = &bench.batch().await[..] else { panic!("three spans") };
        assert_eq!(add.parent, has_caller.then_some(caller.span));
        assert_eq!(add.context.trace == caller.trace, has_caller);
        assert_eq!((linked.parent, linked.link), (None, Some(add.context)));
        assert_ne!(linked.context.trace, add.context.trace);
        assert_eq!((child.parent, child.link), (Some(add.context.span), None));
        assert_eq!(child.context.trace, add.context.trace);
        assert_ne!(child.context.span, add.context.span);
    }
    bench.tracer.finish(far()).await;
    bench.counts("exported_total", 9);
}

/// Two spans of one id would be the same span.
#[tokio::test(start_paused = true)]
async fn only_a_new_task_has_the_derived_span() {
    let mut bench = Bench::start(1.0, taken, false);
    for result in [AddResult::New, AddResult::Replaced, AddResult::Duplicate] {
        add(&bench.tracer, &http::HeaderMap::new(), Options::default(), result);
    }
    let [new, replaced, duplicate] = &bench.batch().await[..] else { panic!("three spans") };
    let derived = TraceContext::of_add(StoreId(7), TaskId(42), |_| true);
    assert_eq!(new.context, derived);
    assert!(replaced.context.trace != derived.trace && duplicate.context.trace != derived.trace);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_does_not_sample_is_not_exported() {
    let mut bench = Bench::start(1.0, taken, false);
    let stored = add(&bench.tracer, &headers(UNSAMPLED), Options::default(), AddResult::New);
    assert_eq!(stored.traceparent, UNSAMPLED.parse().ok());
    let late = attempt(&bench.tracer, &stored, 60);
    assert!(late.span.is_none() && !late.sent.is_sampled);
    assert_ne!(late.sent.trace, stored.traceparent.unwrap().trace);
    // The receiver continues the caller's trace.
    assert_eq!(Some(attempt(&bench.tracer, &stored, 9).sent), stored.traceparent);

    let sampled = add(&bench.tracer, &headers(CALLER), Options::default(), AddResult::New);
    assert_ne!(sampled.traceparent, CALLER.parse().ok());
    assert_eq!(bench.batch().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_ratio_decides_only_where_no_caller_did() {
    let mut bench = Bench::start(0.0, taken, false);
    let without = add(&bench.tracer, &http::HeaderMap::new(), Options::default(), AddResult::New);
    assert!(attempt(&bench.tracer, &without, 60).span.is_none());
    let with = add(&bench.tracer, &headers(CALLER), Options::default(), AddResult::New);
    assert!(attempt(&bench.tracer, &with, 60).span.is_some());
    assert_eq!(bench.batch().await.len(), 1);
}

#[test]
fn without_an_exporter_the_callers_context_is_kept() {
    let continue_below = Duration::from_secs(10);
    let tracer = Tracer(Arc::new(Inner { continue_below, exporting: None }));
    let stored = add(&tracer, &headers(CALLER), Options::default(), AddResult::New);
    assert_eq!(stored.traceparent, CALLER.parse().ok());
    assert_eq!(Some(attempt(&tracer, &stored, 9).sent), stored.traceparent);
    let late = attempt(&tracer, &stored, 10);
    assert!(late.sent.trace != stored.traceparent.unwrap().trace && !late.sent.is_sampled);
    assert_eq!(late.trace_id, late.sent.trace_id());

    let own = add(&tracer, &headers(CALLER), with_own(UNSAMPLED), AddResult::New);
    assert_eq!((own.headers, own.traceparent), (with_own(UNSAMPLED).headers, CALLER.parse().ok()));
    assert_eq!(
        add(&tracer, &headers(UNSAMPLED), with_own(UNSAMPLED), AddResult::New).traceparent,
        None
    );
    let own: TraceContext = UNSAMPLED.parse().unwrap();
    assert_eq!(attempt(&tracer, &with_own(UNSAMPLED), 60).trace_id, own.trace_id());
    let none = add(&tracer, &http::HeaderMap::new(), Options::default(), AddResult::New);
    assert_eq!(none, Options::default());
    let stored = add(&Tracer::default(), &headers(CALLER), Options::default(), AddResult::New);
    assert_eq!(stored, Options::default(), "nobody would read it");
}

/// The request decides, whatever the task's own header says.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_sampled_exports_no_attempt() {
    let bench = Bench::start(1.0, taken, false);
    let stored = add(&bench.tracer, &headers(UNSAMPLED), with_own(CALLER), AddResult::New);
    assert!(attempt(&bench.tracer, &stored, 60).span.is_none());
    assert!(attempt(&bench.tracer, &with_own(CALLER), 60).span.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_hangs_delays_nothing() {
    let mut bench = Bench::start(1.0, taken, true);
    let tracer = bench.tracer.clone();
    let add_some = |count: usize| {
        for _ in 0..count {
            add(&tracer, &headers(CALLER), Options::default(), AddResult::New);
        }
    };
    add_some(BATCH);
    assert_eq!(bench.batch().await.len(), BATCH);
    // No time passes: the clock of tokio would show a wait.
    let since = Instant::now();
    add_some(QUEUE + 3);
    assert_eq!(since.elapsed(), Duration::ZERO);
    bench.counts("dropped_total{reason=\"queue\"}", 3);
    assert_eq!(bench.batch().await.len(), BATCH);
    bench.counts("dropped_total{reason=\"export\"}", BATCH as u64);
    bench.counts("exported_total", 0);
    let since = Instant::now();
    bench.tracer.finish(far()).await;
    assert!(since.elapsed() <= LAST_SPANS + Duration::from_millis(2), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn spans_that_are_refused_are_counted_and_later_ones_are_sent() {
    let mut bench = Bench::start(1.0, refused, false);
    for _ in 0..2 {
        add(&bench.tracer, &headers(CALLER), Options::default(), AddResult::New);
        assert_eq!(bench.batch().await.len(), 1);
    }
    bench.tracer.finish(far()).await;
    bench.counts("dropped_total{reason=\"export\"}", 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_sends_what_waits() {
    let mut bench = Bench::start(1.0, taken, false);
    for _ in 0..=BATCH {
        add(&bench.tracer, &headers(CALLER), Options::default(), AddResult::New);
    }
    let since = Instant::now();
    bench.tracer.finish(far()).await;
    assert_eq!(since.elapsed(), Duration::ZERO);
    assert_eq!((bench.batch().await.len(), bench.batch().await.len()), (BATCH, 1));
    bench.counts("exported_total", BATCH as u64 + 1);
}
