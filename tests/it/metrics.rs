//! `GET /metrics`, and `docs/METRICS.md`, which is made from the declarations:
//! `WRITE_DOCS=1 cargo nextest run the_page_lists_every_metric` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;

use delayd::metrics::{Metrics, ServerFigures, ServerSaid};
use serde_json::{Value, json};

use crate::program::{Program, client, service};
use crate::receiver::{Answer, Receiver};
use crate::{Kept, on_both_stores};

on_both_stores!(what_happens_to_tasks_is_counted);

const HEAD: &str = "# Metrics

`GET /metrics` answers OpenMetrics text, which Prometheus reads. With tokens it needs one with the
scope `view` or `admin` for all topics.

Durations are in seconds, sizes in bytes. A counter begins at 0 with each start of the program.
Every series whose labels are known in advance exists from the start; one with a status or a host
appears with its first event. Services of the configuration are known: 40 services have a label of
their own, the first of the configuration by name. There is no label for topics, because there may
be any number of them. Some metrics belong to one store, and are absent with the other.

This page is generated from the declarations in `src/metrics`.

## Lateness

The lateness of a task is the time from its due time to its first callback, or until a consumer has
it. A task that was due before it was added is due when it was added. Later attempts are not
counted: they are as late as the backoff says. A task is counted when its first call has ended; if
delayd dies before, it is not. Until the claim is sent, delays are noted as they begin and end: the
culprit of the longest one is charged with the time from the beginning of the first delay to the end
of the last one, and `delayd` with the rest, or `consumer` until the consumer came. The claim, and
an extension of the lease, are charged to `store`, and the time from there to the call to `delayd`.

| culprit | while |
|---|---|
| `clock` | the store's clock was set forward: this time did not pass |
| `operator` | a paused topic, a held service, one that is not configured, a rate that is used up |
| `receiver` | breaker open, slots taken (also the topic's), slow start, `Retry-After`, no token |
| `store` | no answer; a claim or extension on its way; a slow fsync that hides the new task |
| `unknown` | the instance that hands the task out had not started yet |
| `consumer` | none of these: no consumer waits to pull |
| `delayd` | none of these: slots are free |

An instance that starts does not know what delayed tasks before. So a task that was due before its
start is late by `unknown`. That does not count against the objective, because a restart during an
outage of a receiver would look like a failure of delayd.

A task is *bad* if the parts of delayd and of the store together exceed the objective of its topic
(`lateness_objective`, or `objective.lateness`, 1 s). `objective.target` (0.999) is the share of
tasks that should be good. `delayd_store_late_tasks` counts the tasks that are late in this way and
still wait. The bad tasks of a window are the increase of the counter plus the growth of this gauge,
so a task counts when it becomes late, not when it is delivered at last.

## Figures of the store

The metrics `delayd_store_*`, except those of operations, errors and breakers, come from the
sampler, which reads the store once a second. They are as old as
`delayd_sampler_oldest_timestamp_seconds` says. While the store does not answer, they keep their
last values, with one exception: a lane and destination whose earliest task falls due meanwhile, or
becomes late, counts as one overdue or late task at least. The alert
[SamplerStale](RUNBOOK.md#samplerstale) fires after a minute. Every instance reports the same
figures, so use `max`, not `sum`.

## All metrics
";

/// A metric, as its text describes it.
#[derive(Default)]
struct Family {
    help: String,
    kind: String,
    /// The values that exist from the start, by label.
    labels: BTreeMap<String, Vec<String>>,
}

/// The metrics of a text, in order of their declaration.
fn families(text: &str) -> Vec<(String, Family)> {
    let mut all: Vec<(String, Family)> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let help = help.trim_end_matches('.').into();
            all.push((name.into(), Family { help, ..Family::default() }));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            all.last_mut().unwrap().1.kind = rest.split_once(' ').unwrap().1.into();
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let labels = labels.split_once('}').unwrap().0;
            let family = &mut all.last_mut().unwrap().1;
            for label in labels.split(',') {
                let (name, value) = label.split_once('=').unwrap();
                let values = family.labels.entry(name.into()).or_default();
                let value = value.trim_matches('"').to_owned();
                if name != "le" && !values.contains(&value) {
                    values.push(value);
                }
            }
        }
    }
    all
}

fn page(text: &str) -> String {
    let mut page = format!("{HEAD}\n| metric | type | labels | what it is |\n|---|---|---|---|\n");
    for (name, family) in families(text) {
        let name = match family.kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name,
        };
        let labels = family.labels.iter().filter(|(name, _)| *name != "le");
        let labels = labels.map(|(name, values)| {
            let mut values = values.clone();
            values.sort();
            match name.as_str() {
                "route" | "version" | "code" | "service" | "server" => format!("`{name}`"),
                _ => format!("`{name}`: {}", values.join(", ")),
            }
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        writeln!(page, "| `{name}` | {} | {labels} | {} |", family.kind, family.help).unwrap();
    }
    page
}

#[test]
fn the_page_lists_every_metric() {
    let metrics = Metrics::new(delayd::api::routes());
    let said = ServerSaid { is_volatile: false, memory: 1, memory_limit: 1 };
    let server = ServerFigures { name: "".into(), is_away: false, said: Some(said) };
    metrics.store.servers.iter().for_each(|servers| {
        let server = server.clone();
        servers.read_by(move || vec![server.clone()]);
    });
    let generated = page(&metrics.encode());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        std::fs::write(path, &generated).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), generated);
}

/// A rate needs a sample before the first event.
#[test]
fn counters_exist_before_their_first_event() {
    let text = Metrics::new(["/delay/task/add"]).encode();
    for series in [
        "delayd_tasks_added_total{mode=\"push\",result=\"new\"} 0\n",
        "delayd_http_requests_total{route=\"/delay/task/add\",code=\"200\"} 0\n",
        "delayd_http_rejected_total{reason=\"concurrency\"} 0\n",
        "delayd_attempts_total{service=\"other\",outcome=\"delivered\"} 0\n",
        "delayd_config_reloads_total{result=\"refused\"} 0\n",
        "delayd_log_lines_total{level=\"error\"} 0\n",
        "delayd_tasks_ended_total{state=\"dead\",cause=\"attempts_used_up\"} 0\n",
        "delayd_tasks_ended_total{state=\"expired\",cause=\"misfire\"} 0\n",
        "delayd_leases_expired_total{mode=\"pull\"} 0\n",
        "delayd_stale_settles_total{mode=\"push\"} 0\n",
        "delayd_calls_in_flight 0\n",
        "delayd_calls_limit 0\n",
        "delayd_destination_in_flight{service=\"other\"} 0\n",
        "delayd_destination_window{service=\"other\"} 0\n",
        "delayd_destination_breaker{service=\"other\",state=\"half_open\"} 0\n",
        "delayd_destination_transitions_total{service=\"other\",to=\"open\"} 0\n",
        "delayd_store_operation_duration_seconds_count{op=\"maintain\"} 0\n",
        "delayd_store_errors_total{op=\"settle\",kind=\"unavailable\"} 0\n",
        "delayd_claims_denied_total 0\n",
        "delayd_settles_pending 0\n",
        "delayd_clock_offset_seconds 0.0\n",
        "delayd_clock_jumps_total 0\n",
        "delayd_notes_dropped_total 0\n",
        "delayd_disk_free_bytes 0\n",
        "delayd_disk_reserve_bytes 0\n",
        "delayd_fsync_duration_seconds_count 0\n",
    ] {
        assert!(text.contains(series), "{series} is not in\n{text}");
    }
}

/// The value of a series.
pub async fn value(delayd: &Program, series: &str) -> f64 {
    let text = delayd.get("/metrics").await.body;
    let line = text.as_str().unwrap().lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("{series} is absent")).trim().parse().unwrap()
}

fn task(path: &str) -> Value {
    json!({
        "topic": "order.cancel", "delay": "0s", "max_attempts": 1,
        "content": {"sn": "message.call", "url": path},
    })
}

async fn what_happens_to_tasks_is_counted(kept: Kept) {
    let receiver = Receiver::answering(|seen| match seen.path.as_str() {
        "/broken" => Answer::Status(503),
        "/refused" => Answer::Status(400),
        _ => Answer::Status(200),
    })
    .await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    let mut keyed = task("/fine");
    keyed["idempotency_key"] = "first".into();
    let fine = delayd.add(keyed.clone()).await.ok().id();
    delayd.add(keyed).await.ok();
    let broken = delayd.add(task("/broken")).await.ok().id();
    let refused = delayd.add(task("/refused")).await.ok().id();
    assert_eq!(delayd.post("/delay/task/add", "{}").await.status, 400);
    assert_eq!(delayd.post("/delay/task/add_batch", "{}").await.status, 400);
    assert_eq!(delayd.post("/delay/no/such", "{}").await.status, 404);
    let page = client().post(delayd.url("/delay/task/add"));
    let page = page.header("origin", "http://elsewhere.example").send().await.unwrap();
    assert_eq!(page.status(), 403);
    delayd.wait_for_state("order.cancel", fine, "delivered").await;
    delayd.wait_for_state("order.cancel", broken, "dead").await;
    delayd.wait_for_state("order.cancel", refused, "dead").await;

    let attempts = |outcome: &str| {
        format!("delayd_attempts_total{{service=\"message.call\",outcome=\"{outcome}\"}}")
    };
    let add = |code: u16| {
        format!("delayd_http_requests_total{{route=\"/delay/task/add\",code=\"{code}\"}}")
    };
    for (series, expected) in [
        ("delayd_tasks_added_total{mode=\"push\",result=\"new\"}".to_owned(), 3.0),
        ("delayd_tasks_added_total{mode=\"push\",result=\"duplicate\"}".to_owned(), 1.0),
        ("delayd_add_duration_seconds_count".to_owned(), 6.0),
        ("delayd_http_requests_total{route=\"other\",code=\"404\"}".to_owned(), 1.0),
        ("delayd_http_rejected_total{reason=\"forbidden\"}".to_owned(), 1.0),
        (add(200), 4.0),
        (add(400), 1.0),
        (attempts("delivered"), 1.0),
        (attempts("receiver_failed"), 1.0),
        (attempts("refused"), 1.0),
        ("delayd_callback_duration_seconds_count{service=\"message.call\"}".to_owned(), 3.0),
        ("delayd_objective_tasks_total{result=\"good\"}".to_owned(), 3.0),
    ] {
        assert_eq!(value(&delayd, &series).await, expected, "{series}");
    }
    assert!(value(&delayd, "process_resident_memory_bytes").await > 1e6);
    assert!(value(&delayd, "delayd_log_lines_total{level=\"warn\"}").await >= 2.0);
}
