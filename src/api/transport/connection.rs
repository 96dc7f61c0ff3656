//! One connection from open to close, HTTP/1.1 or HTTP/2.

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
use http_body::Body as _;
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
use crate::api::transport::tracked_io::{RunningBody, TrackedBody, TrackedIo};
use crate::api::transport::wire::{Secured, Wire};

/// How much of an answer hyper buffers before the socket accepts it. It is small, so that hyper
/// asks [`crate::api::transport::delivery_confirmation`] for the last byte only when the rest is on
/// its way. It is also the longest request head.
const WRITE_BUFFER: usize = 32 * 1024;
/// The limit of concurrent requests on one HTTP/2 connection.
const STREAMS: u32 = 128;
/// How often an HTTP/2 caller is pinged, and how long it may take to respond.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// What connections share.
#[derive(Clone)]
pub(crate) struct Serving<S> {
    pub(crate) service: S,
    /// `None` for connections without TLS.
    pub(crate) tls: Option<Secured>,
    pub(crate) timeouts: IoTimeouts,
    /// The slots of all connections. If none is free, others wait for one.
    pub(crate) slots: Arc<Semaphore>,
    /// Cancelled when the server drains: running requests finish, and no new ones are read.
    pub(crate) draining: CancellationToken,
    /// How long a connection then still reads, because a request may be on its way.
    pub(crate) linger: Duration,
    /// Cancelled when open connections are cut off.
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
    /// Serves one connection to its end. Releases the slot after every part of the connection has
    /// been dropped.
    pub(crate) async fn connection(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        let streams = Streams::default();
        self.serve(stream, &streams).await;
        // They stop when the connection ends, but a moment later.
        streams.0.close();
        streams.0.wait().await;
        drop(slot);
    }

    async fn serve(self, stream: TcpStream, streams: &Streams) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "A connection was closed before its first request: {error}");
            return;
        }
        let Self { service, tls, timeouts, slots, draining, linger, cut_off } = self;
        let activity = Arc::new(IoActivity::new(timeouts));
        let drained = async {
            draining.cancelled().await;
            tokio::time::sleep(linger).await;
            // A shutdown now would make hyper drop the part of a request that it has read. A slow
            // head is still bounded by its timeout.
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
        // The set polls this future only when it has been woken. Polled directly, it would run with
        // every poll of the connection, several times per request.
        let mut end: FuturesUnordered<_> = [end].into_iter().collect();
        let answers = {
            let activity = activity.clone();
            hyper::service::service_fn(move |request| {
                answer(service.clone(), activity.clone(), request)
            })
        };
        let io = TrackedIo { stream, activity: activity.clone() };
        let io = match tls {
            None => Wire::Plain(io),
            Some(tls) => tokio::select! {
                shaken = tls.accept(io) => match shaken {
                    Some(io) => io,
                    None => return,
                },
                Some(_) = end.next() => return,
            },
        };
        let io = TokioIo::new(io);
        let mut connection =
            pin!(builder(streams.clone()).serve_connection(io, answers).into_owned());
        let end = tokio::select! {
            // The connection first: a request that arrived just before the end of the linger is
            // read and answered.
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
            // Only the cut-off ends it.
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

/// Why the server ends a connection.
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

/// Answers one request, and records it as activity of the connection. An answer of unknown length
/// lasts as long as its caller reads it, such as a live stream.
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
    if response.body().size_hint().exact().is_some() {
        drop(running);
        return Ok(response);
    }
    Ok(response.map(|body| RunningBody::body(body, running)))
}

/// The requests of an HTTP/2 connection. hyper runs each in a task of its own.
#[derive(Clone, Debug, Default)]
struct Streams(TaskTracker);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.spawn(stream);
    }
}

fn builder(streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    // `io_timeouts` bounds heads and idle connections. hyper's own timeout cannot tell the two
    // apart, and does not start before the first byte.
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
