//! Calls that are all under way at once: what each takes of the service's memory.

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

/// How many services share the calls, each with a port to itself: to one and the same port a
/// machine has no more connections than it has ports for those who call (28,000, as a rule).
const SERVICES: u64 = 16;
/// What the bench needs of its own open files beside the calls, and the service beside half of its
/// own, which is for calls.
const OTHER_FILES: u64 = 200;
/// A service is trusted with so many calls only after it has answered many, one after the other:
/// tasks per slot, and how many come a second, so that few are under way at once.
const WARM_UP: u64 = 2;
const WARM_UP_PER_S: u64 = 2_000;
const WARM_UP_LONGEST_S: u64 = 20;
/// How long connections may take to close that are kept for reuse.
const CLOSING: Duration = Duration::from_secs(20);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(50);
/// How long all calls are under way before the memory is read; of the tasks that wait it is read
/// half of it before they are due.
const REST: Duration = Duration::from_millis(500);

/// Tasks due at once at a receiver that answers none of them before all have come: the service's
/// resident memory when they wait to be due, and with every call under way.
///
/// Over HTTP/1.1, as to most receivers, so that each call has a connection, and takes an open file
/// here and two of the service's limit. The calls go to 16 services, and a number is rounded up to
/// a multiple of it. Then all are answered, and each task is checked to have arrived exactly once
/// and not early, and to be settled.
#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub struct Params {
    /// How many calls are under way at once
    #[arg(long, value_name = "N", default_value = "4000", value_parser = options::calls())]
    calls: u64,
    /// Bytes of each task's content
    #[arg(long, value_name = "BYTES", default_value = "200", value_parser = options::bytes())]
    bytes: u16,
}

impl Params {
    /// Calls to each service.
    fn share(&self) -> u64 {
        self.calls.div_ceil(SERVICES)
    }

    /// The slots of the house, which leaves the last service as many free as that has in flight.
    fn slots(&self) -> u64 {
        self.share() * (SERVICES + 1)
    }

    /// What it needs, where no process may have more open files than that.
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

    /// Why so many calls cannot be with that limit of open files.
    fn objection(&self, limit: u64) -> Option<String> {
        let needed = 2 * self.slots() + OTHER_FILES;
        let most = limit.saturating_sub(OTHER_FILES) / 2 / (SERVICES + 1) * SERVICES;
        (limit < needed).then(|| {
            format!(
                "{} calls at once need a limit of {needed} open files (a service gives half of them to calls), and here it is {limit}: \
                 raise it with ulimit -Hn (LimitNOFILE, --ulimit nofile), or try --calls {most}",
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
    // What has come and is not answered has its connection.
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
        .ok_or_else(|| Error::Odd("this system does not tell a process's memory".into()))
}

/// Has each service answer as many calls as it takes to be trusted with its share, and waits until
/// no connection is left. Answers how many.
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

/// Each came once, and none early: those that were taken, and whatever came since.
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
