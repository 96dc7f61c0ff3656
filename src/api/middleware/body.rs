//! Reading the body of a request: its content type and encoding, its length, its memory budget.
//!
//! A request whose body did not arrive with its head releases its slot until the body is complete.
//! So a caller who sends slowly holds a connection and the received bytes, but no slot. A refused
//! request is answered at once, and the rest of its body is read and discarded afterwards: closing
//! a connection while the caller still sends would reset it, and the answer would be lost.

use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, header};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::api::auth::Caller;
use crate::api::concurrency_limit::Slot;
use crate::api::memory_budget::{Exhausted, MemoryBudget};
use crate::api::middleware::call::AdmittedCall;
use crate::api::middleware::route::{BodySize, Route};
use crate::api::params::Bounds;
use crate::api::state::Api;
use crate::api::wire::error::Error;
use crate::api::wire::long_body::{LONG, reading, size};
use crate::model::coding::is_compression;

/// The most bytes of a refused body that are discarded.
const MAX_DISCARDED: usize = 64 << 20;
/// The longest time for that.
const MAX_DISCARDING: Duration = Duration::from_secs(2);

/// The longest body of a request without content, in bytes. Reading it several times takes a few
/// milliseconds.
const MAX_SMALL: usize = 1 << 20;

/// Reads the body of a call, and checks that the caller may use the topic in it. The call keeps its
/// slot if the body had already arrived, and gets another one otherwise.
pub(crate) async fn read_body(
    api: &Api,
    route: &Route,
    call: &mut AdmittedCall,
    headers: &HeaderMap,
    body: Body,
) -> Result<(), Error> {
    let Bounds { body_limit, batch_body_limit, .. } = api.bounds();
    let (limit, budget) = match route.size {
        BodySize::Batch => (batch_body_limit, &api.memory.of_batches()),
        BodySize::Content => (body_limit, &api.memory),
        BodySize::Small => (body_limit.min(MAX_SMALL), &api.memory),
    };
    let room = BodyRoom { budget, token: call.caller.name(), limit };
    let (whole, waited) = read(headers, body, &call.slot, room).await?;
    if waited {
        call.slot = api.slots.slot().await?;
        // The tokens may have been replaced while the body arrived.
        call.caller = api.tokens.renewed(&call.caller)?;
    }
    call.target.read(&whole).await;
    check_topic(&call.caller, &whole).await?;
    call.body = whole;
    Ok(())
}

/// Refuses a call whose topic the caller may not use.
async fn check_topic(caller: &Caller, body: &Bytes) -> Result<(), Error> {
    match body.len() {
        ..=LONG => caller.check_topic(body),
        _ => {
            let caller = caller.clone();
            reading(body.clone(), move |body| caller.check_topic(body)).await
        }
    }
}

/// The room that a body has.
#[derive(Clone, Copy)]
struct BodyRoom<'a> {
    budget: &'a MemoryBudget,
    token: Option<&'a str>,
    /// The most bytes.
    limit: usize,
}

/// Reads the body within the route's limit and the memory budget. If it has not arrived yet,
/// releases the slot, and says so.
async fn read(
    headers: &HeaderMap,
    mut body: Body,
    slot: &Slot,
    room: BodyRoom<'_>,
) -> Result<(Bytes, bool), Error> {
    let mut waited = false;
    let whole = match check_type(headers).and_then(|()| check_encoding(headers)) {
        Ok(()) => {
            let mut reading = pin!(whole(&mut body, room));
            match reading.as_mut().now_or_never() {
                Some(whole) => whole,
                None => {
                    slot.free();
                    waited = true;
                    reading.await
                }
            }
        }
        Err(error) => Err(error),
    };
    if whole.is_err() {
        refuse(headers, body);
    }
    whole.map(|whole| (whole, waited))
}

/// Makes sure that the answer to a refused request arrives: the rest of its body is read and
/// discarded in the background.
pub(crate) fn refuse(headers: &HeaderMap, body: Body) {
    // A caller that waits for `100 Continue` has not sent a body.
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let mut discarding = Box::pin(discard(body));
    if discarding.as_mut().now_or_never().is_none() {
        tokio::spawn(discarding);
    }
}

async fn whole(
    body: &mut Body,
    BodyRoom { budget, token, limit }: BodyRoom<'_>,
) -> Result<Bytes, Error> {
    let too_large = || Error::TooLarge(format!("body: is larger than {}", size(limit)));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let mut whole = budget.body(token, limit);
    // `is_end_stream` avoids a poll past the end, so a body that has arrived is read without
    // waiting.
    while !body.is_end_stream()
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|_| {
            Error::invalid("body: the connection ended before the body was complete")
        })?;
        // Skips trailers.
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
        "too many bytes of requests at once, so this one was not processed: repeat it",
    )
}

/// An absent type counts as JSON, and so does the default type of `curl -d`.
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

/// A compressed body would be reported as invalid JSON, which hides the cause.
fn check_encoding(headers: &HeaderMap) -> Result<(), Error> {
    let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
    let is_compressed = values.any(|value| {
        let words = value.to_str().unwrap_or_default().split(',').map(str::trim);
        words.into_iter().any(is_compression)
    });
    if is_compressed { Err(Error::ContentEncoding) } else { Ok(()) }
}

/// Reads and discards, within the limits above.
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
    // After a timeout the connection is closed with the body unread.
    let _ = tokio::time::timeout(MAX_DISCARDING, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::concurrency_limit::ConcurrencyLimit;

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

    /// `content-encoding: gzip` was once answered with "the body is not JSON".
    #[tokio::test]
    async fn a_compressed_body_is_refused_by_the_name_of_its_header() {
        let check = async |values: &[&str], allowed: bool| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, value.parse().unwrap());
            }
            let room = BodyRoom { budget: &MemoryBudget::new(1_000), token: None, limit: 100 };
            let slot = ConcurrencyLimit::of(1).slot().await.unwrap();
            let whole = read(&headers, Body::from("{}"), &slot, room).await;
            match whole {
                Ok(_) => assert!(allowed, "{values:?}"),
                Err(error) => {
                    assert!(!allowed, "{values:?}");
                    let said = error.message();
                    assert_eq!(error.status(), 415, "{values:?}");
                    assert!(said.starts_with("content-encoding: expected identity"), "{said}");
                }
            }
        };
        check(&[], true).await;
        check(&[""], true).await;
        check(&["Identity"], true).await;
        check(&["gzip"], false).await;
        check(&["identity, br"], false).await;
        check(&["identity", "deflate"], false).await;
    }
}
