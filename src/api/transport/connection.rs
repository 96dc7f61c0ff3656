//! One connection from open to close.
//!
//! The port speaks HTTP/1.1. A caller that begins with HTTP/2 is told so in its own protocol.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::Request;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::api::transport::handshake::Secured;
use crate::api::transport::io_timeouts::{IoActivity, IoTimeouts, PassedTimeout};
use crate::api::transport::tracked_io::TrackedIo;

/// How much of an answer hyper buffers before the socket accepts it. It is small, so that hyper
/// asks [`crate::api::transport::delivery_confirmation`] for the last byte only when the rest is on
/// its way. It is also the longest request head.
const WRITE_BUFFER: usize = 32 * 1024;
/// What a caller gets that begins with HTTP/2: an empty SETTINGS frame, and GOAWAY with the code
/// HTTP_1_1_REQUIRED.
const NO_HTTP2: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0d";

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
        + Unpin
        + 'static,
{
    /// Serves one connection to its end. Releases the slot after every part of the connection has
    /// been dropped.
    pub(crate) async fn connection(self, stream: TcpStream, slot: OwnedSemaphorePermit) {
        self.serve(stream).await;
        drop(slot);
    }

    async fn serve(self, stream: TcpStream) {
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
                why = activity.overdue(&slots) => ConnectionEnd::Overdue(why),
                () = drained => ConnectionEnd::Drained,
                () = cut_off.cancelled() => ConnectionEnd::Cut,
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
            None => Either::Left(io),
            Some(tls) => tokio::select! {
                shaken = tls.accept(io) => match shaken {
                    Some(io) => Either::Right(io),
                    None => return,
                },
                Some(_) = end.next() => return,
            },
        };
        // `io_timeouts` bounds heads and idle connections. hyper's own timeout cannot tell the two
        // apart, and does not start before the first byte.
        let mut connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(WRITE_BUFFER)
            .serve_connection(TokioIo::new(io), answers);
        let end = tokio::select! {
            // The connection first: a request that arrived just before the end of the linger is
            // read and answered.
            biased;
            ended = &mut connection => {
                note(&ended);
                if ended.is_err_and(|error| error.is_parse_version_h2()) {
                    let mut io = connection.into_parts().io.into_inner();
                    tokio::select! {
                        _ = async { io.write_all(NO_HTTP2).await?; io.shutdown().await } => {}
                        Some(_) = end.next() => {}
                    }
                }
                return;
            }
            Some(end) = end.next() => end,
        };
        let grace = match end {
            ConnectionEnd::Overdue(why) => {
                tracing::debug!("A connection took too long ({why:?}) and is closed");
                if matches!(why, PassedTimeout::Head | PassedTimeout::Answer) {
                    return;
                }
                timeouts.answer
            }
            // Only the cut-off ends it.
            ConnectionEnd::Drained => Duration::MAX,
            ConnectionEnd::Cut => return,
        };
        Pin::new(&mut connection).graceful_shutdown();
        tokio::select! {
            ended = &mut connection => note(&ended),
            () = tokio::time::sleep(grace) => {}
            () = cut_off.cancelled() => {}
        }
    }
}

/// Why the server ends a connection.
enum ConnectionEnd {
    Overdue(PassedTimeout),
    Drained,
    Cut,
}

fn note(ended: &hyper::Result<()>) {
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
    let running = activity.asked();
    let Ok(response) = service.call(request.map(Body::new)).await;
    if response.body().size_hint().exact().is_some() {
        drop(running);
        return Ok(response);
    }
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &running;
            frame
        }))
    }))
}
