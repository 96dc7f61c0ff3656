//! What a run measured, and how it is reported.

use std::time::Duration;

use serde_json::{Value, json};

use super::costs::Script;
use super::server::{Done, Work};
use super::setup::Setup;

/// From this share on, a server counts as overloaded: its queue grows.
const OVERLOAD: f64 = 0.97;

/// What a run measured.
#[derive(Debug)]
pub(crate) struct Figures {
    pub(crate) setup: Setup,
    pub(crate) work: Work,
    /// The share of the time in which the busiest server was busy.
    pub(crate) utilization: f64,
    /// The lateness of the calls in microseconds, in rising order.
    lateness: Vec<i64>,
}

impl Figures {
    pub(crate) fn new(setup: Setup, work: Work, busiest: Duration, mut lateness: Vec<i64>) -> Self {
        lateness.sort_unstable();
        let utilization = busiest.as_secs_f64() / setup.span.as_secs_f64();
        Self { setup, work, utilization, lateness }
    }

    /// How many tasks were called.
    pub(crate) fn tasks(&self) -> usize {
        self.lateness.len()
    }

    fn done(&self, script: Script) -> Done {
        self.work.by_script.get(&script).copied().unwrap_or_default()
    }

    /// How often these scripts were called for each task.
    pub(crate) fn calls_a_task(&self, scripts: &[Script]) -> f64 {
        let calls: u64 = scripts.iter().map(|script| self.done(*script).calls).sum();
        calls as f64 / self.tasks().max(1) as f64
    }

    /// All claims for each task, with those that found nothing.
    pub(crate) fn claims_a_task(&self) -> f64 {
        self.calls_a_task(&[Script::Claim, Script::EmptyClaim, Script::RefusedClaim])
    }

    /// The time of all scripts by their costs, as a share of the time of all servers.
    pub(crate) fn utilization_by_costs(&self) -> f64 {
        let time: Duration = self.work.by_script.values().map(|done| done.time).sum();
        time.as_secs_f64() / self.setup.span.as_secs_f64() / self.setup.servers as f64
    }

    pub(crate) fn is_overloaded(&self) -> bool {
        self.utilization > OVERLOAD
    }

    /// A percentile of the lateness, in milliseconds.
    pub(crate) fn lateness_ms(&self, percent: usize) -> f64 {
        let place =
            (self.lateness.len() * percent / 100).min(self.lateness.len().saturating_sub(1));
        self.lateness.get(place).map_or(f64::NAN, |micros| *micros as f64 / 1_000.0)
    }

    /// The figures for a plot.
    pub(crate) fn json(&self) -> Value {
        let setup = &self.setup;
        let calls = |script: &Script| {
            let done = self.done(*script);
            let name = serde_json::to_value(script).unwrap().as_str().unwrap().to_owned();
            let share = done.time.as_secs_f64() / setup.span.as_secs_f64();
            let value = json!({ "calls": done.calls, "items": done.items, "share": share });
            (name, value)
        };
        json!({
            "instances": setup.instances, "lanes": setup.lanes, "rate": setup.rate,
            "servers": setup.servers, "round_trip_us": setup.round_trip.as_micros() as u64,
            "seconds": setup.span.as_secs_f64(), "tasks": self.tasks(),
            "claims_a_task": self.claims_a_task(),
            "calls_a_task": self.calls_a_task(&Script::ALL),
            "utilization": self.utilization, "is_overloaded": self.is_overloaded(),
            "lateness_p50_ms": self.lateness_ms(50), "lateness_p99_ms": self.lateness_ms(99),
            "scripts": Script::ALL.iter().map(calls).collect::<serde_json::Map<_, _>>(),
        })
    }

    /// A row of the printed table.
    pub(crate) fn row(&self) -> String {
        let Setup { instances, lanes, rate, servers, .. } = &self.setup;
        let late = match self.is_overloaded() {
            true => format!("{:>9} {:>9}", "overload", ""),
            false => format!("{:>9.1} {:>9.1}", self.lateness_ms(50), self.lateness_ms(99)),
        };
        format!(
            "{rate:>7} {instances:>9} {lanes:>6} {servers:>7} {:>7.2} {:>11.2} {:>8.1} {late}",
            self.claims_a_task(),
            self.calls_a_task(&Script::ALL),
            self.utilization * 100.0,
        )
    }

    /// The head of the printed table.
    pub(crate) const HEAD: &str = "   rate instances  lanes servers  claims   all calls    busy \
                                   lateness  lateness\n    1/s                          a task   \
                                   a task           %    p50 ms    p99 ms";
}
