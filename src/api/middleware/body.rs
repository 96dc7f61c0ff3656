//! The bytes of a request: that they are JSON by their type, and not too many.
//!
//! A body that does not come with its head gives its request's slot back until it is whole: who
//! drips holds a connection and the bytes that came, and nothing that others wait for. What is
//! refused is answered at once; the rest of its body is read and thrown away behind the answer, for
//! a connection closed on a sender that still sends is reset, and the answer lost with it.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, header};
use http_body::Body as _;
use http_body_util::BodyExt;
use tower::service_fn;

use crate::api::middleware::concurrency_limit::{ConcurrencyLimit, Slot};
use crate::api::middleware::memory_budget::{Budget, Exhausted};
use crate::api::middleware::route::{BodySize, Routed};
use crate::api::middleware::service::Answers;
use crate::api::middleware::topic_access::check_topic;
use crate::api::params::Limit;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::size;

/// The most bytes of a refused body that are read and thrown away.
const MAX_DISCARDED: usize = 64 << 20;
/// How long that may take.
const MAX_DISCARDING: Duration = Duration::from_secs(2);

/// The longest body of a request that brings no content, in bytes. Reading it several times over
/// takes a few milliseconds.
const MAX_SMALL: usize = 1 << 20;

/// How long bodies may be, and what memory they take.
#[derive(Debug)]
pub(crate) struct Bodies {
    batch: (Limit, Budget),
    content: (Limit, Budget),
    small: (Limit, Budget),
    /// Where a request waits for a slot that gave its own back.
    slots: ConcurrencyLimit,
}

impl Bodies {
    /// `content` is the limit of bodies that bring one task's content, `batch` that of many tasks.
    pub(crate) fn new(
        content: &Limit,
        batch: &Limit,
        budget: &Budget,
        slots: &ConcurrencyLimit,
    ) -> Self {
        Self {
            batch: (batch.clone(), budget.of_batches()),
            content: (content.clone(), budget.clone()),
            small: (content.at_most(MAX_SMALL), budget.clone()),
            slots: slots.clone(),
        }
    }

    fn of(&self, size: BodySize) -> &(Limit, Budget) {
        match size {
            BodySize::Batch => &self.batch,
            BodySize::Content => &self.content,
            BodySize::Small => &self.small,
        }
    }

    /// The memory that answers take.
    pub(crate) fn budget(&self) -> &Budget {
        &self.content.1
    }

    /// The request with its body. Its slot is the one that it was admitted with, or, if its body
    /// was long in coming, another.
    async fn whole(&self, routed: Routed<Body>) -> Result<Routed, Error> {
        let Routed { route, request, caller, slot, deadline } = routed;
        let (head, body) = request.into_parts();
        let ((limit, budget), mut slot) = (self.of(route.size()), Some(slot));
        let body = read(&head.headers, body, &mut slot, limit, budget).await?;
        let slot = match slot {
            Some(slot) => slot,
            None => self.slots.slot().await?,
        };
        let routed =
            Routed { route, request: Request::from_parts(head, body), caller, slot, deadline };
        check_topic(&routed).await?;
        Ok(routed)
    }
}

/// Reads the body of each call, checks that the topic in it is the caller's, and hands it on whole.
pub(crate) fn read_body<'a, S: Answers<Routed> + 'a>(
    bodies: &'a Bodies,
    inner: S,
) -> impl Answers<Routed<Body>> + 'a {
    service_fn(move |routed: Routed<Body>| async move {
        let mut inner = inner;
        match bodies.whole(routed).await {
            Ok(routed) => inner.call(routed).await,
            Err(error) => Ok(error.into_response()),
        }
    })
}

/// Reads the body, within the route's limit and the house's budget. Where it does not come with its
/// head, the request gives its slot back.
async fn read(
    headers: &HeaderMap,
    mut body: Body,
    slot: &mut Option<Slot>,
    limit: &Limit,
    budget: &Budget,
) -> Result<Bytes, Error> {
    let limit = limit.bytes();
    let whole = match check_type(headers) {
        Ok(()) => {
            let mut reading = pin!(whole(&mut body, limit, budget));
            match reading.as_mut().now_or_never() {
                Some(whole) => whole,
                None => {
                    drop(slot.take());
                    reading.await
                }
            }
        }
        Err(error) => Err(error),
    };
    if whole.is_err() {
        refuse(headers, body);
    }
    whole
}

/// Sees to it that the answer of a request that is refused before its body was read arrives: what
/// is left of the body is read and thrown away behind it.
pub(crate) fn refuse(headers: &HeaderMap, body: Body) {
    // Who waits for our word before sending needs no more than the answer.
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let mut discarding = Box::pin(discard(body));
    if discarding.as_mut().now_or_never().is_none() {
        tokio::spawn(discarding);
    }
}

async fn whole(body: &mut Body, limit: usize, budget: &Budget) -> Result<Bytes, Error> {
    let too_large = || Error::TooLarge(format!("body: is larger than {}", size(limit)));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut whole = budget.body(limit);
    // Asked for nothing beyond its end, a body that came with its head is whole without a wait.
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|_| Error::invalid("body: broke off before its end"))?;
        // A frame that is no data is a trailer, which says nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > limit {
            return Err(too_large());
        }
        whole.push(&data, body.is_end_stream()).map_err(no_room)?;
    }
    whole.whole().map_err(no_room)
}

fn no_room(Exhausted: Exhausted) -> Error {
    Error::Unavailable(
        "too many bytes of requests at once, so this one was not looked at: repeat it",
    )
}

/// Absent is taken as JSON, and so is what curl says of `-d` by itself.
fn check_type(headers: &HeaderMap) -> Result<(), Error> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    if value == "application/json" {
        return Ok(());
    }
    let value = value.to_str().map_err(|_| Error::MediaType)?;
    let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json =
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    if is_json || kind.is_empty() || kind == "application/x-www-form-urlencoded" {
        return Ok(());
    }
    Err(Error::MediaType)
}

/// Reads on for a while.
async fn discard(mut body: Body) {
    let all = async {
        let mut left = MAX_DISCARDED;
        while !body.is_end_stream()
            && let Some(Ok(frame)) = body.frame().await
        {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(less) = left.checked_sub(length) else { break };
            left = less;
        }
    };
    // Too slow: then the connection is closed as it is.
    let _ = tokio::time::timeout(MAX_DISCARDING, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_no_type_and_curls_default_are_taken_as_json() {
        let check = |value: Option<&str>, allowed: bool| {
            let headers = value.map(|value| (header::CONTENT_TYPE, value.parse().unwrap()));
            assert_eq!(check_type(&headers.into_iter().collect()).is_ok(), allowed, "{value:?}");
        };
        check(None, true);
        check(Some("application/json"), true);
        check(Some("Application/JSON; charset=utf-8"), true);
        check(Some("application/problem+json"), true);
        check(Some("application/x-www-form-urlencoded"), true);
        check(Some("text/plain"), false);
        check(Some("text/json"), false);
        check(Some("multipart/form-data; boundary=x"), false);
    }
}
