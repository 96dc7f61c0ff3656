//! `POST /delay/task/search`: the tasks of a topic whose content contains a text.
//!
//! There is no index of contents, so they are read, a few at a time, within the bounds of a
//! [`Scan`] and a bound of bytes. It needs the scope `admin`, because an answer says what contents
//! contain.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{ListOrder, Page};
use futures_util::future::try_join_all;

use super::list::{page, page_limit};
use super::scan::{BOUNDS, Scan, Scanned, Selection, TaskRange};
use crate::api::auth::Caller;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::fields;
use crate::store::{self, Admin, Listed, Reader, TopicEntry};

/// The longest text, in bytes.
const MAX_TEXT: usize = 256;
/// The most bytes of content that one call reads, and those of the last tasks in excess.
const MAX_BYTES: usize = 16 << 20;
/// The contents that are read at the same time. The longest have 256 KiB by default.
const AT_A_TIME: usize = 16;

pub(crate) use delayd_wire::SearchRequest as Request;

/// `POST /delay/task/search`
pub(crate) async fn search(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<Request>,
) -> Result<Success<Page>, Error> {
    let topic = request.topic;
    let state = request.state;
    let text = request.text;
    if !(1..=MAX_TEXT).contains(&text.len()) {
        return Err(Error::Invalid(format!("text: must be 1 to {MAX_TEXT} bytes long")));
    }
    let limit = page_limit(request.limit)?;
    let cursor = fields::cursor(request.cursor)?;
    let order = request.order.unwrap_or(ListOrder::Newest);
    let topic = api.topic(&topic).await?.entry;
    let selection = Selection::merged(topic, TaskRange { order, ..TaskRange::all(state) });
    let place = api.place(&api.scans, &caller).await?;
    let mut scan = Scan::begin(Some(place), selection, BOUNDS, cursor)?;
    let finder = memchr::memmem::Finder::new(text.as_bytes());
    let (mut tasks, mut left) = (Vec::new(), MAX_BYTES);
    while left > 0 && tasks.len() < limit {
        let some = scan.next(&api, AT_A_TIME).await?;
        if some.is_empty() {
            break;
        }
        let contents = contents(&api, scan.topic(), &some).await?;
        let mut some = some.into_iter().zip(contents);
        while let Some(((listed, task), content)) = some.next() {
            left = left.saturating_sub(content.len());
            tasks.extend(task.filter(|_| finder.find(content.as_bytes()).is_some()));
            if tasks.len() == limit {
                scan.rewind(listed, some.len());
                break;
            }
        }
    }
    Ok(Success::of(page(tasks, &scan, &caller)))
}

/// The contents of the tasks; empty for one that is gone or unreadable, or whose content was
/// removed.
async fn contents(api: &Api, topic: &TopicEntry, tasks: &[Scanned]) -> Result<Vec<String>, Error> {
    let read = tasks.iter().map(|(Listed { id, .. }, summary)| async move {
        if summary.is_none() {
            return Ok(String::new());
        }
        let lane = topic.lane_of(*id);
        match api.store.get(Reader::Viewer, &lane, *id).await {
            Ok(task) => Ok(task.map(|task| task.content).unwrap_or_default()),
            // One unreadable task must not fail each search of its topic.
            Err(error @ store::Error::Corrupt(_)) => {
                tracing::error!(%lane, task_id = %id, %error, "Task {id} cannot be searched");
                Ok(String::new())
            }
            Err(error) => Err(error),
        }
    });
    Ok(try_join_all(read).await?)
}
