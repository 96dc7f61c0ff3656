//! The memory budget for answers: an answer counts until its caller has read it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use crate::api::auth::Caller;
use crate::api::memory_budget::{BudgetShare, Exhausted, MemoryBudget, held};
use crate::api::middleware::call::AdmittedCall;
use crate::api::state::Api;
use crate::api::wire::batch::LONGEST_ITEM;
use crate::api::wire::error::Error;

/// Shorter answers do not count: the number of connections bounds them.
const SMALL_ANSWER: usize = 1024;

/// Takes the share of a batch's longest answer before it is stored, which cannot be undone.
///
/// # Errors
/// 503 if the budget is used up.
pub(crate) fn reserve(api: &Api, call: &AdmittedCall) -> Result<BudgetShare, Error> {
    let items = most_items(&call.body, api.bounds().batch_limit);
    let longest = items * LONGEST_ITEM + SMALL_ANSWER;
    api.memory.answer(call.caller.name(), longest).map_err(|Exhausted| {
        Error::Unavailable(
            "too many bytes of answers at once, so this one was not processed: repeat it",
        )
    })
}

/// The most items that a batch with this body may have, if it is JSON at all. Commas separate them,
/// in a list that is a field of the request.
fn most_items(body: &[u8], limit: usize) -> usize {
    const DEPTH: usize = 2;
    let (mut depth, mut items, mut at) = (0_usize, 1, 0);
    while items < limit
        && let Some(&byte) = body.get(at)
    {
        at += 1;
        match byte {
            b'"' => at = end_of_string(body, at),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == DEPTH => items += 1,
            _ => {}
        }
    }
    items
}

/// The position after the closing quote of the string that begins at `at`.
fn end_of_string(body: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr::memchr2(b'"', b'\\', body.get(at..).unwrap_or_default()) {
        at += found;
        if body[at] == b'"' {
            return at + 1;
        }
        // The character after a backslash is part of the string.
        at += 2;
    }
    body.len()
}

/// Keeps of the share what the answer takes.
pub(crate) fn keep_room(mut share: BudgetShare, response: Response) -> Response {
    let length = length(&response);
    if length <= SMALL_ANSWER {
        return response;
    }
    share.shorten(length);
    accounted(share, response)
}

fn length(response: &Response) -> usize {
    usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX)
}

fn accounted(share: BudgetShare, response: Response) -> Response {
    response.map(|body| Body::new(Accounted { body, share: Arc::new(share) }))
}

/// Takes the answer's share. If the budget is used up, the answer is dropped: its body then returns
/// pulled tasks to the store.
pub(crate) fn take_room(budget: &MemoryBudget, caller: &Caller, response: Response) -> Response {
    let length = length(&response);
    if length <= SMALL_ANSWER {
        return response;
    }
    match budget.answer(caller.name(), length) {
        Ok(share) => accounted(share, response),
        Err(Exhausted) => Error::Unconfirmed(
            "too many bytes of answers at once, so this one was dropped, and pulled tasks were \
             returned: repeat it",
        )
        .into_response(),
    }
}

/// An answer and its share. The share belongs to the bytes, because the server keeps them longer
/// than the body. The size hint is passed on: without it, the answer would have no
/// `content-length`.
struct Accounted {
    body: Body,
    share: Arc<BudgetShare>,
}

impl http_body::Body for Accounted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(
            frame.map(|frame| {
                frame.map(|frame| frame.map_data(|data| held(data, self.share.clone())))
            }),
        )
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::Request;

    use super::*;
    use crate::api::edge;
    use crate::api::params::Params;
    use crate::api::testing::{Ask, edge_with_store};
    use crate::outcome::Policy;

    const ITEMS: usize = 100;
    const LONGEST: usize = ITEMS * LONGEST_ITEM + SMALL_ANSWER;

    /// Answers to failed batches that nobody read once took any amount of memory.
    #[tokio::test]
    async fn batches_are_refused_before_they_are_stored_while_nobody_reads_the_answers() {
        let (mut api, _draining, _folder) = edge_with_store();
        api.memory = MemoryBudget::new(3 * LONGEST);
        let params = Params::new(Policy { max_attempts: 3, backoff: Default::default() });
        api.set_bounds(&Params { batch_limit: ITEMS, ..params });
        let api = Arc::new(api);
        let edge = edge(api.clone());
        let batch = |task: &str| {
            let tasks = vec![task; ITEMS].join(",");
            let body = Body::from(format!(r#"{{"tasks":[{tasks}]}}"#));
            edge.clone().answer(Request::post("/delay/task/add_batch").body(body).unwrap())
        };
        let mut unread = Vec::new();
        loop {
            let response = batch("1").await;
            if response.status() == 503 {
                break;
            }
            assert_eq!(response.status(), 400);
            unread.push(response);
            assert!(unread.len() < 1_000, "unread answers take any amount of memory");
        }
        let good = r#"{"topic":"t","delay":"1h","content":{}}"#;
        assert_eq!(batch(good).await.status(), 503);
        assert!(api.topics.find(&"t".parse().unwrap()).await.unwrap().is_none(), "it was stored");
        unread.clear();
        assert_eq!(batch(good).await.status(), 200);
    }

    #[test]
    fn a_batch_has_no_more_items_than_its_commas_and_its_limit_allow() {
        let check = |body: &str, limit: usize, expected: usize| {
            assert_eq!(most_items(body.as_bytes(), limit), expected, "{body}");
        };
        check("", 9, 1);
        check(r#"{"tasks":[1,2,3]}"#, 9, 3);
        check(r#"{"tasks":[1,2,3]}"#, 2, 2);
        check(r#"{"tasks":[1,2,3],"tasks":[4]}"#, 9, 3);
        // Commas elsewhere separate no items.
        check(r#"{"a":1,"tasks":[{"a":1,"b":[1,2,3]},{"c":"},{,\\\",,"}],"b":1}"#, 9, 2);
        check(r#"{"tasks":["a,b"#, 9, 1);
        check(r#"{"tasks":["a\"#, 9, 1);
        check("}]},,", 9, 1);
    }
}
