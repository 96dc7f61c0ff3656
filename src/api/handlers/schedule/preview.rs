//! `POST /delay/schedule/preview`: the next moments of a recurring schedule.
//!
//! It reads nothing that is stored.

use std::sync::Arc;

use axum::extract::State;
use delayd_wire::{SchedulePreview, Span};

use super::{moment_in, moments, zone_of};
use crate::api::middleware::call::RawBody;
use crate::api::state::Api;
use crate::api::wire::envelope::Success;
use crate::api::wire::error::Error;
use crate::api::wire::json;
use crate::model::clock::UnixMillis;
use crate::model::schedule::{Recurrence, Rule};

/// How many moments are shown by default, and at most.
const SHOWN: u32 = 5;
const MOST_SHOWN: u32 = 1000;

pub(crate) use delayd_wire::SchedulePreviewRequest as PreviewRequest;

/// `POST /delay/schedule/preview`
pub(crate) async fn preview(
    State(api): State<Arc<Api>>,
    RawBody(body): RawBody,
) -> Result<Success<SchedulePreview>, Error> {
    answer(&body, api.clock.now()).map(Success::of)
}

/// Reads the body, and computes the answer.
pub(crate) fn answer(body: &[u8], now: UnixMillis) -> Result<SchedulePreview, Error> {
    shown(json::read(body)?, now)
}

fn shown(request: PreviewRequest, now: UnixMillis) -> Result<SchedulePreview, Error> {
    let PreviewRequest { cron, every, zone, start, end, after, count } = request;
    let zone = zone_of(zone)?;
    let moment = |field: &str, text: Option<String>| {
        text.map(|text| moment_in(&zone, &text, field)).transpose()
    };
    let count = count.map_or(Ok(SHOWN), |count| count.whole("count", 1..=MOST_SHOWN))?;
    let rule = Rule {
        cron: cron.as_deref(),
        every: every.map(|Span(every)| every),
        zone: &zone,
        start: moment("start", start)?,
        end: moment("end", end)?,
        anchor: now,
    };
    let after = moment("after", after)?.unwrap_or(now);
    let recurrence = Recurrence::parse(&rule).map_err(|error| Error::Invalid(error.to_string()))?;
    let moments = moments(&recurrence, recurrence.first_after(after), count as usize);
    Ok(SchedulePreview { zone, moments })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(request: Value) -> Result<SchedulePreview, String> {
        // 2026-11-21T04:16:07.042Z
        let now = UnixMillis(1_795_234_567_042);
        answer(request.to_string().as_bytes(), now).map_err(|error| error.message())
    }

    #[test]
    fn the_next_moments_are_shown_in_local_time() {
        let check = |request: Value, expected: &[&str]| {
            let shown = of(request).unwrap();
            let texts: Vec<_> = shown.moments.iter().map(|shown| shown.moment.as_str()).collect();
            assert_eq!(texts, expected);
        };
        check(
            json!({"cron": "0 9 * * MON-FRI", "zone": "Asia/Shanghai", "count": 2}),
            &["2026-11-23T09:00:00+08:00", "2026-11-24T09:00:00+08:00"],
        );
        check(
            json!({"cron": "30 2 * * *", "zone": "Europe/Berlin", "count": 2,
                "after": "2026-03-28 12:00"}),
            &["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        );
        check(
            json!({"every": "90m", "start": "2026-11-21T04:00:00Z", "end": "2026-11-21T08:30:00Z"}),
            &[
                "2026-11-21T05:30:00+00:00",
                "2026-11-21T07:00:00+00:00",
                "2026-11-21T08:30:00+00:00",
            ],
        );
        check(json!({"every": 60, "count": 1}), &["2026-11-21T04:17:07.042+00:00"]);
        check(json!({"cron": "@daily", "end": "2026-11-20 00:00"}), &[]);
        check(
            json!({"cron": "@daily", "zone": "europe/berlin", "count": 1,
                "start": "2026-12-24T06:30:00+08:00", "end": "2026-12-25T00:00[Asia/Shanghai]"}),
            &["2026-12-24T00:00:00+01:00"],
        );
    }

    #[test]
    fn an_invalid_preview_is_refused_with_a_sentence() {
        let check = |request: Value, says: &str| {
            let said = of(request).unwrap_err();
            assert!(said.starts_with(says), "{said}");
        };
        check(json!({}), "cron: expected either cron or every, got neither");
        check(json!({"cron": "@daily", "every": 60}), "cron: expected either cron or every, got b");
        check(json!({"cron": "0 0 30 2 *"}), "cron: expected an expression that fires");
        check(json!({"every": "0s"}), "every: expected 1s to 366d, got 0 ms");
        check(json!({"cron": "@daily", "zone": "Moon"}), "zone: expected an offset such as");
        check(json!({"cron": "@daily", "start": "soon"}), "start: expected a time such as");
        check(json!({"cron": "@daily", "start": "2026-11-26"}), "start: expected a time such as");
        check(
            json!({"cron": "@daily", "count": 0}),
            "count: must be a whole number from 1 to 1000",
        );
        check(json!({"cron": "@daily", "delay": 1}), "unknown field \"delay\"");
    }
}
