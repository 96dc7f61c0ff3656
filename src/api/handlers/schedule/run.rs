//! `POST /delay/schedule/run`: an occurrence beside the plan.
//!
//! It is an ordinary task. It does not count for `overlap`, and the schedule goes on as planned.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use delayd_wire::ScheduleRan;
use http::HeaderMap;

use super::{locate, names, understood};
use crate::api::handlers::task::placing::PLACINGS;
use crate::api::middleware::call::Json;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::idempotency::{self, GivenDue, OF_RUN, idempotency};
use crate::api::wire::shown::way_of;
use crate::metrics::AddResult;
use crate::model::schedule::Definition;
use crate::model::task::Occurrence;
use crate::store::{self, Intake, Moment, NewTask, Novelty, Reader, Registered, Schedule};

/// The longest idempotency key of a run. The stored key also has the name of the schedule.
const MAX_KEY: usize = 100;

pub(crate) use delayd_wire::ScheduleRunRequest as RunRequest;

/// `POST /delay/schedule/run`
pub(crate) async fn run(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    Json(request): Json<RunRequest>,
) -> Result<Success<ScheduleRan>, Error> {
    api.check_accepting()?;
    let header_key = idempotency::of_header(&headers)?;
    let RunRequest { topic, schedule, idempotency_key } = request;
    let (topic, name) = names(topic, &schedule)?;
    let key = idempotency::agreed(idempotency_key, header_key.as_deref())?;
    if key.as_ref().is_some_and(|key| key.len() > MAX_KEY) {
        return Err(Error::Invalid(format!("idempotency_key: must be 1 to {MAX_KEY} bytes long")));
    }
    let key = key.map(|key| format!("{OF_RUN}{name}/{key}"));
    let mut tries = 0;
    let (way, added) = loop {
        let (known, _, schedule) = locate(&api, Reader::Worker, &topic, &name).await?;
        let (definition, _) = understood(&schedule).ok_or(Error::Unavailable(
            "schedule: this instance cannot read it; ask one of the version that set it",
        ))?;
        let way = way_of(&definition.destination);
        let task = task(&api, known, schedule, definition, key.clone());
        tries += 1;
        match api.store.add(vec![task]).await.pop().expect("a store answers every task") {
            Err(store::Error::StaleEntry) if tries < PLACINGS => {
                api.topics.reload(&topic).await?;
            }
            added => break (way, added?),
        }
    };
    let is_duplicate = matches!(added.novelty, Novelty::Duplicate { .. });
    api.metrics.api.added(way, if is_duplicate { AddResult::Duplicate } else { AddResult::New });
    tracing::info!(%topic, schedule = %name, "Schedule {name} of topic {topic} was run by hand");
    Ok(Success::of(ScheduleRan {
        task_id: added.id.into(),
        due_ms: added.due.into(),
        due: added.due.into(),
        duplicate: is_duplicate,
    }))
}

/// An occurrence that is due now. The idempotency key covers what the schedule says, and not the
/// moment of the run.
fn task(
    api: &Api,
    known: Registered,
    schedule: Schedule,
    Definition { destination, mut options, content, .. }: Definition,
    key: Option<String>,
) -> NewTask {
    let due = Moment::After(Duration::ZERO);
    let what = (GivenDue::Moment(due), &destination, &options, content.as_str());
    let window = api.bounds().idempotency_window;
    let idempotency = key.map(|key| idempotency(key, window, &known.entry.topic, what));
    options.origin = schedule.origin;
    options.schedule = Some(Box::new(Occurrence {
        name: schedule.name,
        moment: schedule.now,
        cursor: String::new(),
        after: None,
        missed: 0,
    }));
    let quota = known.policy.quota_of_lane(known.entry.shards);
    let topic = known.entry;
    NewTask { topic, destination, moment: due, options, content, idempotency, quota }
}
