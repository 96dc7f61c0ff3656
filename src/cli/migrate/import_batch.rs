//! Sends batches for `move` and `import`: repeats what is not confirmed, and returns what is
//! refused.

use anyhow::{anyhow, ensure};
use delayd_wire::{
    AdoptRequest, AdoptedTask, AdoptionBecame, AtMost, ErrorCode, ScheduleAdoptRequest,
    ScheduleKept, Topic,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cli::client::raw;
use crate::cli::exported::{Exported, ExportedSchedule};
use crate::cli::retry_client::RetryClient;

/// The result for one record, or why it was refused.
pub(crate) type ImportResult = Result<ImportedRecord, RecordRefusal>;

/// Why a record was refused.
#[derive(Clone, Debug)]
pub(crate) struct RecordRefusal {
    pub(crate) code: ErrorCode,
    pub(crate) sentence: String,
}

/// The result for a record that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportedRecord {
    /// The task is stored.
    New,
    /// It was adopted before, or has now ended there as it did here.
    Known,
    /// The service has a task of the same key that was set later.
    Superseded,
    /// It has ended here, but is leased there.
    Held,
}

fn read(task: &AdoptedTask) -> ImportedRecord {
    match task.became {
        Some(AdoptionBecame::Superseded) => ImportedRecord::Superseded,
        Some(AdoptionBecame::Cancelling) => ImportedRecord::Held,
        Some(AdoptionBecame::Ended) | None if task.known => ImportedRecord::Known,
        Some(AdoptionBecame::Ended) | None => ImportedRecord::New,
    }
}

/// The answer to a batch: a result for each item, in order.
#[derive(Deserialize)]
struct Results<A> {
    results: Vec<Item<A>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Item<A> {
    Done(A),
    Failed { dm_error: u64, error_msg: String },
}

/// Posts items, and those again that are not confirmed. Returns the result of each. Calls `between`
/// before each further try. If some are not confirmed within the patience, their refusals say so.
///
/// # Errors
/// No answer within the patience, or a refusal of the whole request.
pub(crate) async fn send_all<'a, I, B: Serialize, A: DeserializeOwned>(
    to: &RetryClient,
    path: &str,
    items: &'a [I],
    body: impl Fn(Vec<&'a I>) -> B,
    between: impl AsyncFn(),
) -> anyhow::Result<Vec<Result<A, RecordRefusal>>> {
    let mut results: Vec<Option<Result<A, RecordRefusal>>> = items.iter().map(|_| None).collect();
    let mut open: Vec<usize> = (0..items.len()).collect();
    let mut waits = to.waits();
    while !open.is_empty() {
        let body = body(open.iter().map(|i| &items[*i]).collect());
        let Results { results: answered } = to.call_batch(path, &body, &between).await?;
        let (count, sent) = (answered.len(), open.len());
        ensure!(count == sent, "the service answered {count} results to {sent} items");
        for (i, item) in open.iter().zip(answered) {
            results[*i] = Some(match item {
                Item::Done(done) => Ok(done),
                Item::Failed { dm_error, error_msg: sentence } => {
                    Err(RecordRefusal { code: ErrorCode::of(dm_error), sentence })
                }
            });
        }
        open.retain(|i| matches!(&results[*i], Some(Err(why)) if why.code.passes()));
        if !open.is_empty() {
            if waits.wait(anyhow!("not confirmed"), None).await.is_err() {
                break;
            }
            between().await;
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// The results, if each item was confirmed or refused.
fn settled<A>(
    results: Vec<Result<A, RecordRefusal>>,
) -> anyhow::Result<Vec<Result<A, RecordRefusal>>> {
    let is_open =
        |result: &Result<A, RecordRefusal>| matches!(result, Err(why) if why.code.passes());
    ensure!(!results.iter().any(is_open), "the service does not confirm some records");
    Ok(results)
}

/// Has records adopted, and returns the result for each. Calls `between` before each further try.
///
/// # Errors
/// No answer within the patience, or a refusal of the whole request.
pub(crate) async fn adopt(
    to: &RetryClient,
    records: &[Exported],
    between: impl AsyncFn(),
) -> anyhow::Result<Vec<ImportResult>> {
    let body = |records| AdoptRequest { records: AtMost(raw(records)) };
    let adopted = send_all(to, "/delay/task/adopt", records, body, between).await?;
    let adopted = settled::<AdoptedTask>(adopted)?;
    Ok(adopted.into_iter().map(|adopted| adopted.map(|task| read(&task))).collect())
}

/// Has schedules of one topic adopted. Returns for each whether it was known, or why it was
/// refused.
///
/// # Errors
/// As those of [`adopt`].
pub(crate) async fn adopt_schedules(
    to: &RetryClient,
    topic: &Topic,
    schedules: &[ExportedSchedule],
) -> anyhow::Result<Vec<Result<bool, RecordRefusal>>> {
    let body =
        |records| ScheduleAdoptRequest { topic: topic.clone(), records: AtMost(raw(records)) };
    let adopted = send_all(to, "/delay/schedule/adopt", schedules, body, async || ()).await?;
    let adopted = settled::<ScheduleKept>(adopted)?;
    Ok(adopted.into_iter().map(|adopted| adopted.map(|kept| kept.known)).collect())
}
