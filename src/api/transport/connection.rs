//! One connection, from its first byte to its end: HTTP/1.1 or HTTP/2, whichever its caller speaks.

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Request;
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::api::transport::io_timeouts::{IoActivity, IoTimeouts, Overdue};
use crate::api::transport::tracked_io::{TrackedBody, TrackedIo};

/// How much of an answer hyper may keep before the socket has taken it. Small, so that
/// [`crate::api::transport::delivery_confirmation`] is asked for an answer's last byte only when
/// the rest is on its way; it is also the longest request head.
const WRITE_BUFFER: usize = 64 * 1024;
/// The most requests at a time on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// How often an HTTP/2 caller is asked whether it is still there, and how long it may take to say
/// so.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What connections are served with.
#[derive(Clone)]
pub(crate) struct Serving<S> {
    pub(crate) service: S,
    pub(crate) timeouts: IoTimeouts,
    /// Of all connections; how many are left tells whether others wait for this one's.
    pub(crate) slots: Arc<Semaphore>,
    /// Running requests are to end, and no more to be taken.
    pub(crate) draining: CancellationToken,
    /// How long a connection is still listened to then: a request may be on its way.
    pub(crate) linger: Duration,
    /// It is over.
    pub(crate) cut_off: CancellationToken,
}

impl<S> Serving<S>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
{
    /// Serves one connection to its end. The slot is free when everything of it has been dropped.
    pub(crate) async fn connection(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let streams = Streams::default();
        self.serve(stream, &streams).await;
        // They are told by the connection's end, and end a moment after it.
        streams.0.close();
        streams.0.wait().await;
        drop(slot);
    }

    async fn serve(self, stream: TcpStream, streams: &Streams) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "A connection was gone before it began: {error}");
            return;
        }
        let Self { service, timeouts, slots, draining, linger, cut_off } = self;
        let activity = Arc::new(IoActivity::new(timeouts));
        let drained = async {
            draining.cancelled().await;
            tokio::time::sleep(linger).await;
            // Shut down now, hyper would throw away what it has read of a request. Slow heads are
            // overdue all the same.
            activity.no_part_of_a_head().await;
        };
        let end = async {
            tokio::select! {
                biased;
                why = activity.overdue(&slots) => End::Overdue(why),
                () = drained => End::Drained,
                () = cut_off.cancelled() => End::Cut,
            }
        };
        // In a set of its own it is looked at when it has been woken, and not whenever the
        // connection is: several times a request.
        let mut end: FuturesUnordered<_> = [end].into_iter().collect();
        let answers = {
            let activity = activity.clone();
            hyper::service::service_fn(move |request| {
                answer(service.clone(), activity.clone(), request)
            })
        };
        let io = TokioIo::new(TrackedIo { stream, activity: activity.clone() });
        let mut connection =
            pin!(builder(streams.clone()).serve_connection(io, answers).into_owned());
        let end = tokio::select! {
            // The connection first: a request that came together with the end of the linger is
            // read, and then is to be answered.
            biased;
            ended = connection.as_mut() => return note(ended),
            Some(end) = end.next() => end,
        };
        let grace = match end {
            End::Overdue(why) => {
                tracing::debug!("A connection took too long ({why:?}) and is closed");
                if matches!(why, Overdue::Head | Overdue::Answer) {
                    return;
                }
                timeouts.answer
            }
            // Its end is the cut.
            End::Drained => Duration::MAX,
            End::Cut => return,
        };
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = connection.as_mut() => note(ended),
            () = tokio::time::sleep(grace) => {}
            () = cut_off.cancelled() => {}
        }
    }
}

/// What ends a connection that goes on.
enum End {
    Overdue(Overdue),
    Drained,
    Cut,
}

fn note(ended: Result<(), Box<dyn Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "A connection ended early: {error}");
    }
}

/// One request, noted by the connection's activity.
async fn answer<S>(
    mut service: S,
    activity: Arc<IoActivity>,
    request: Request<Incoming>,
) -> Result<Response, Infallible>
where
    S: Service<Request<Body>, Response = Response, Error = Infallible>,
{
    let multiplexed = request.version() == http::Version::HTTP_2;
    let running = activity.asked(multiplexed);
    let Ok(response) = service.call(request.map(Body::new)).await;
    let response = if multiplexed {
        response.map(|body| TrackedBody::body(body, &activity))
    } else {
        response
    };
    drop(running);
    Ok(response)
}

/// The requests of an HTTP/2 connection, each of which hyper answers in a task of its own.
#[derive(Clone, Debug, Default)]
struct Streams(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}

fn builder(streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    // Heads and idleness are timed by the activity: hyper's own timeout knows one time for both, and
    // none for who says nothing.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(WRITE_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS)
        .max_send_buf_size(WRITE_BUFFER);
    builder
}
