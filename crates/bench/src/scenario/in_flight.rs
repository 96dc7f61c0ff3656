//! Many concurrent calls: the memory of each.

use std::time::Duration;

use tokio::time::Instant;

use super::{burst, options};
use crate::account::{self, Accepted, Arrival};
use crate::clock;
use crate::error::Error;
use crate::figures::Figures;
use crate::process;
use crate::stage::{Needs, Stage};
use crate::task::{Template, When};

/// The services that share the calls, each with its own port: connections to one port are limited
/// by the ephemeral ports of the machine (usually 28,000).
const SERVICES: u64 = 16;
/// Open files that the bench needs besides the calls, and the service besides the half for calls.
const OTHER_FILES: u64 = 200;
/// The slow start allows many concurrent calls to a service only after many successes: tasks per
/// slot, and their rate, so that few run at once.
const WARM_UP: u64 = 2;
const WARM_UP_PER_S: u64 = 2_000;
const WARM_UP_LONGEST_S: u64 = 20;
/// How long idle connections may take to close.
const CLOSING: Duration = Duration::from_secs(20);
/// The polling interval.
const LOOK: Duration = Duration::from_millis(50);
/// How long all calls are held before the memory is read. The memory of waiting tasks is read half
/// of this before the due time.
const REST: Duration = Duration::from_millis(500);

/// Many tasks that are due at once, and a receiver that answers none before all have arrived:
/// measures the resident memory of the service before they are due, and with all calls running.
///
/// Uses HTTP/1.1, like most receivers: each call has a connection, and needs one open file here and
/// two of the limit of the service. The calls are spread over 16 services, and their number is
/// rounded up to a multiple of 16. Then all are answered. Verifies that each task arrived exactly
/// once and not early, and is settled.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// Number of concurrent calls
    #[arg(long, value_name = "N", default_value = "4000", value_parser = options::calls())]
    calls: u64,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

impl Params {
    /// Calls per service.
    fn share(&self) -> u64 {
        self.calls.div_ceil(SERVICES)
    }

    /// The global concurrency limit, with enough slots for the last service.
    fn slots(&self) -> u64 {
        self.share() * (SERVICES + 1)
    }

    /// The requirements, given the limit of open files.
    pub(super) fn needs(&self, open_files: u64) -> Result<Needs, Error> {
        if let Some(objection) = self.objection(open_files) {
            return Err(Error::Odd(objection));
        }
        let long = |span: &str| format!("{span:?}");
        let settings = vec![
            ("callback.concurrency", self.slots().to_string()),
            ("callback.concurrency_per_service", self.share().to_string()),
            ("callback.connect_timeout", long("60s")),
            ("callback.timeout", long("10m")),
            ("worker.lease", long("15m")),
        ];
        Ok(Needs { instances: 1, own_ports: SERVICES as usize, settings })
    }

    /// Why this limit of open files does not allow so many calls.
    fn objection(&self, limit: u64) -> Option<String> {
        let needed = 2 * self.slots() + OTHER_FILES;
        let most = limit.saturating_sub(OTHER_FILES) / 2 / (SERVICES + 1) * SERVICES;
        (limit < needed).then(|| {
            format!(
                "{} calls at once need a limit of {needed} open files (a service uses half of them \
                 for calls), and here it is {limit}: raise it with ulimit -Hn \
                 (LimitNOFILE, --ulimit nofile), or try --calls {most}",
                self.calls
            )
        })
    }
}

pub(super) async fn play(stage: &Stage, params: &Params) -> Result<Figures, Error> {
    let pid = stage
        .pids()
        .next()
        .ok_or_else(|| Error::Odd("measures a service that it starts itself".into()))?;
    let topic = stage.topic("in-flight");
    let services = stage.services_on_own_ports().iter();
    let templates = services
        .map(|service| Template::push(&topic, service, params.bytes))
        .collect::<Result<Vec<_>, _>>()?;
    let warmed = warm_up(stage, params, &templates, &topic).await?;
    let calls = params.share() * SERVICES;
    stage.receiver().hold(true);
    let apart = Template::push(&stage.topic("trial"), stage.service(), params.bytes)?;
    let (accepted, due_ms) = burst::fill_with(stage, calls, &templates, &[apart]).await?;
    clock::sleep_until(due_ms - REST.as_millis() as i64 / 2).await;
    let before_mib = resident_mib(pid)?;
    let arrivals = stage.arrivals(accepted.len(), due_ms).await;
    let last_us = arrivals.iter().map(|arrival| arrival.at_us).max().unwrap_or_default();
    tokio::time::sleep(REST).await;
    let (with_mib, connections) = (resident_mib(pid)?, stage.receiver().connections());
    stage.receiver().hold(false);
    // Each unanswered callback has its own connection.
    let (under_way, of) = (arrivals.len().min(connections), accepted.len());
    if under_way < of {
        return Err(Error::Odd(format!("of {of} calls only {under_way} were under way at once")));
    }
    stage.settled(&topic, warmed + calls).await?;
    check(stage, &accepted, arrivals)?;
    let mut figures = Figures::default();
    figures.put("calls_in_flight", calls as f64);
    figures.put("connections", connections as f64);
    figures.put("under_way_s", burst::seconds_since(due_ms, last_us));
    figures.put("resident_before_mib", before_mib);
    figures.put("resident_with_mib", with_mib);
    figures.put("bytes_per_call", (with_mib - before_mib) * 1_048_576.0 / calls as f64);
    Ok(figures)
}

fn resident_mib(pid: u32) -> Result<f64, Error> {
    process::resident_mib(pid, "VmRSS")
        .ok_or_else(|| Error::Odd("this system does not report the memory of a process".into()))
}

/// Lets each service answer enough calls for its slow start, and waits until no connection is open.
/// Returns the number of calls.
async fn warm_up(
    stage: &Stage,
    params: &Params,
    templates: &[Template],
    topic: &str,
) -> Result<u64, Error> {
    let count = params.slots() * WARM_UP;
    let per_s = WARM_UP_PER_S.max(count / WARM_UP_LONGEST_S);
    let first_ms = clock::now_ms() + 1_000;
    let due_ms = move |n: u64| first_ms + (n * 1_000 / per_s) as i64;
    let load = stage.fill(count, burst::in_turn(templates, move |n| When::At(due_ms(n)))).await?;
    let arrivals = stage.arrivals(load.accepted.len(), due_ms(count)).await;
    check(stage, &load.accepted, arrivals)?;
    stage.settled(topic, count).await?;
    stage.progress.step("idle connections left", 0);
    let since = Instant::now();
    while stage.receiver().connections() > 0 {
        if since.elapsed() > CLOSING {
            return Err(Error::Odd(format!(
                "connections are still open {} s after their last call",
                CLOSING.as_secs()
            )));
        }
        stage.progress.set(stage.receiver().connections() as u64);
        tokio::time::sleep(LOOK).await;
    }
    Ok(count)
}

/// Checks that each task arrived once and not early: the given arrivals, and those since.
fn check(stage: &Stage, accepted: &[Accepted], mut arrivals: Vec<Arrival>) -> Result<(), Error> {
    arrivals.append(&mut stage.receiver().take());
    account::check(accepted, &arrivals).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_open_files_allows_what_it_says() {
        let params = |calls| Params { calls, bytes: 200 };
        let check = |limit: u64, most: u64| {
            let said = params(1_000_000).objection(limit).unwrap();
            assert!(
                said.contains(&format!("here it is {limit}"))
                    && said.ends_with(&format!("--calls {most}")),
                "{said}"
            );
            assert_eq!(params(most).objection(limit), None);
            assert!(params(most + 1).objection(limit).is_some());
        };
        check(1_024, 384);
        check(20_000, 9_312);
        check(1_048_576, 493_344);
        assert_eq!(params(4_000).objection(8_700), None);
    }
}
