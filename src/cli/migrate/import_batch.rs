//! Sends records to `adopt`, for `move` and `import`: repeats what is not confirmed, and returns
//! what is refused.

use anyhow::{anyhow, bail};
use delayd_wire::{
    AdoptAnswer, AdoptItem, AdoptRequest, AdoptedTask, AdoptionBecame, AtMost, ErrorCode,
};

use crate::cli::client::raw;
use crate::cli::exported::Exported;
use crate::cli::retry_client::RetryClient;

/// The result for one record, or why it was refused.
pub(crate) type Adoption = Result<Adopted, Refusal>;

/// Why a record was refused.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) sentence: String,
}

/// The result for a record that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// The task is stored.
    New,
    /// It was adopted before, or has now ended there as it did here.
    Known,
    /// The service has a task of the same key that was set later.
    Superseded,
    /// It has ended here, but is leased there.
    Held,
}

fn read(task: &AdoptedTask) -> Adopted {
    match task.became {
        Some(AdoptionBecame::Superseded) => Adopted::Superseded,
        Some(AdoptionBecame::Cancelling) => Adopted::Held,
        Some(AdoptionBecame::Ended) | None if task.known => Adopted::Known,
        Some(AdoptionBecame::Ended) | None => Adopted::New,
    }
}

/// Has records adopted, and returns the result for each. Calls `between` before each further try.
///
/// # Errors
/// No answer within the patience, or a refusal of the whole request.
pub(crate) async fn adopt(
    to: &RetryClient,
    records: &[Exported],
    between: impl AsyncFn(),
) -> anyhow::Result<Vec<Adoption>> {
    let mut results: Vec<Adoption> =
        vec![
            Err(Refusal { code: ErrorCode::Unavailable, sentence: "was not answered".into() });
            records.len()
        ];
    let mut open: Vec<usize> = (0..records.len()).collect();
    let mut waits = to.waits();
    loop {
        let some: Vec<&Exported> = open.iter().map(|i| &records[*i]).collect();
        let body = AdoptRequest { records: AtMost(raw(some)) };
        let answer: AdoptAnswer = to.call_batch("/delay/task/adopt", &body, &between).await?;
        let answers = answer.results;
        if answers.len() != open.len() {
            bail!("the service answered {} results to {} records", answers.len(), open.len());
        }
        let mut again = Vec::new();
        for (i, answer) in open.into_iter().zip(answers) {
            match answer {
                AdoptItem::Kept(kept) => results[i] = Ok(read(&kept.fields)),
                AdoptItem::Failed { dm_error: code, .. } if code.passes() => again.push(i),
                AdoptItem::Failed { dm_error: code, error_msg: sentence } => {
                    results[i] = Err(Refusal { code, sentence });
                }
            }
        }
        if again.is_empty() {
            return Ok(results);
        }
        open = again;
        waits.wait(anyhow!("the service does not confirm some records"), None).await?;
        between().await;
    }
}
