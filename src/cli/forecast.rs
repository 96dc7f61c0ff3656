//! `delayd forecast`: shows the waiting tasks of all topics by service and due time.

use std::time::Duration;

use delayd_wire::{
    ForecastFigures, ForecastSpan, ServiceForecast, ServiceForecasts, ServiceForecastsRequest,
};

use super::args::one_of;
use super::cell::Cell;
use super::client::ServerArgs;
use super::destination::{READY, Standing};
use super::{Code, table, time};
use crate::model::clock::UnixMillis;

/// Show what falls due in the next hour, day or week, by service.
///
/// It needs a token with the scope view or admin for all topics. CALLS/S and DRAINED IN are
/// estimates: how many callbacks the deployment can make, and when no task is overdue any more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd forecast
  delayd forecast --span week --match 'order*'")]
pub(super) struct Args {
    /// How far to look ahead: hour, day or week
    #[arg(
        long,
        value_name = "SPAN",
        default_value = "day",
        value_parser = one_of(&ForecastSpan::ALL, ForecastSpan::as_str)
    )]
    span: ForecastSpan,
    /// Only topics whose name contains this, or begins with it if it ends with `*`
    #[arg(long = "match", value_name = "TEXT")]
    matches: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(super) async fn run(Args { span, matches, server }: Args) -> anyhow::Result<Code> {
    let body = ServiceForecastsRequest { span: Some(span), matches };
    server.ask("/delay/forecast", &body, shown).await?;
    Ok(Code::Done)
}

fn shown(answer: ServiceForecasts) -> String {
    let ServiceForecasts { at_ms, bucket_ms, total, services, complete, topics, .. } = answer;
    let others = (answer.more_services > 0).then(|| format!("{} more", answer.more_services));
    let service = |one: &ServiceForecast| {
        let standing = Standing {
            is_configured: one.configured,
            has_token: one.no_access_token.is_none(),
            breaker: one.breaker,
            is_held: one.held,
            waits: one.retry_after_ms.is_some(),
            is_busy: false,
        };
        let status = Some(standing.status()).filter(|status| status != READY);
        let note = status.map(|status| format!(" ({status})")).unwrap_or_default();
        row(&format!("{}{note}", one.sn.cell()), &one.figures)
    };
    let mut rows: Vec<Vec<String>> = services.iter().map(service).collect();
    rows.extend(others.map(|others| vec![others]));
    rows.push(row("total", &total));
    let head = ["service", "overdue", "within", "later", "calls/s", "drained in"];
    let by_service = table::columns(&head, &rows);
    let capacity = total.calls_per_second.map(|rate| rate * bucket_ms as f64 / 1e3);
    let bucket = |(at, count): (usize, &u64)| {
        let until = UnixMillis(at_ms.0) + Duration::from_millis(bucket_ms * (at as u64 + 1));
        vec![delayd_wire::UnixMillis::from(until).cell(), count.cell(), rate(capacity)]
    };
    let rows: Vec<Vec<String>> = total.buckets.iter().enumerate().map(bucket).collect();
    let by_time = table::columns(&["until", "count", "capacity"], &rows);
    let seen = answer.topics_seen;
    let note = match complete {
        true => String::new(),
        false => format!(
            "\n\n{seen} of {topics} topics were counted, some perhaps in part: there may be more \
             tasks."
        ),
    };
    format!("{by_service}\n\n{by_time}{note}")
}

fn row(name: &str, figures: &ForecastFigures) -> Vec<String> {
    let ForecastFigures { overdue, buckets, rest, cut, calls_per_second, drain_ms } = figures;
    let sign = if *cut { "≥" } else { "" };
    let count = |count: u64| format!("{sign}{count}");
    vec![
        name.into(),
        count(*overdue),
        count(buckets.iter().sum()),
        count(*rest),
        rate(*calls_per_second),
        drain_ms.map(time::lasting).cell(),
    ]
}

fn rate(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.*}", usize::from(value < 10.0))).cell()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(complete: bool) -> Value {
        let figures = |overdue: u64, buckets: [u64; 2], rate: Value, drain: Value| {
            json!({"overdue": overdue, "buckets": buckets, "rest": 1, "cut": !complete,
                "calls_per_second": rate, "drain_ms": drain})
        };
        json!({
            "at_ms": 0, "span": "hour", "bucket_ms": 300_000, "complete": complete, "topics": 3,
            "topics_seen": if complete { 3 } else { 2 }, "workers": 1, "more_services": 0,
            "total": figures(130, [7, 2], json!(2.5), json!(null)),
            "services": [
                {"sn": "mail", "held": false, "configured": true,
                    "figures": figures(100, [7, 0], json!(2.5), json!(61_500))},
                {"sn": "old", "held": true, "configured": true, "breaker": "open",
                    "figures": figures(30, [0, 2], json!(0.0), json!(null))},
            ],
        })
    }

    #[test]
    fn a_forecast_has_services_and_buckets() {
        insta::assert_snapshot!(shown(serde_json::from_value(answer(true)).unwrap()), @r"
        SERVICE              OVERDUE  WITHIN  LATER  CALLS/S  DRAINED IN
        mail                 100      7       1      2.5      62s
        old (failing, held)  30       2       1      0.0      -
        total                130      9       1      2.5      -

        UNTIL                     COUNT  CAPACITY
        1970-01-01T00:05:00.000Z  7      750
        1970-01-01T00:10:00.000Z  2      750
        ");
    }

    #[test]
    fn it_says_what_was_not_counted() {
        let shown = shown(serde_json::from_value(answer(false)).unwrap());
        assert!(shown.contains("≥130") && shown.contains("2 of 3 topics were counted"), "{shown}");
    }
}
