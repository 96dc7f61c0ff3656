//! `forecast`: how many waiting tasks fall due when.

use std::time::Duration;

use rusqlite::Connection;

use super::Embedded;
use super::sql::{self, only};
use super::write_tx::lane_number;
use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::{LaneForecast, MAX_FORECAST, Result};

impl Embedded {
    pub(crate) async fn forecast(
        &self,
        lane: &Lane,
        step: Duration,
        steps: usize,
    ) -> Result<LaneForecast> {
        let (lane, clock) = (lane.clone(), self.clock.clone());
        self.scans.run(move |db| forecast_from(db, &lane, step, steps, clock.now())).await
    }
}

/// Walks the lane's schedules up to the end of the last step.
pub(super) fn forecast_from(
    db: &Connection,
    lane: &Lane,
    step: Duration,
    steps: usize,
    now: UnixMillis,
) -> rusqlite::Result<LaneForecast> {
    let mut forecast = LaneForecast { now, overdue: 0, steps: vec![0; steps.min(MAX_FORECAST)] };
    let Some(lane) = lane_number(db, lane)? else { return Ok(forecast) };
    let step = i64::try_from(step.as_millis()).unwrap_or(i64::MAX).max(1);
    let count = i64::try_from(forecast.steps.len()).unwrap_or(i64::MAX);
    let end = now.0.saturating_add(step.saturating_mul(count));
    let mut select = db.prepare_cached(sql::destination::WAITING_MOMENTS)?;
    let mut found = select.query((lane, end))?;
    while let Some(row) = found.next()? {
        let wait = only::<i64>(row)?.saturating_sub(now.0);
        if wait <= 0 {
            forecast.overdue += 1;
        } else if let Some(in_step) =
            usize::try_from((wait - 1) / step).ok().and_then(|at| forecast.steps.get_mut(at))
        {
            *in_step += 1;
        }
    }
    Ok(forecast)
}
