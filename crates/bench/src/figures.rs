//! The results of a bench: names with units, and numbers.

use std::fmt;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::account::{Arrived, percentile_ms};
use crate::load::Load;
use crate::process;
use crate::stage::Stage;

/// The figures of a scenario, in the order of output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures(Vec<(String, f64)>);

/// One per line.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self
            .0
            .iter()
            .map(|(name, value)| format!("{:<28}{value}", name.replace('_', " ")))
            .collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Figures {
    /// All figures as a JSON object.
    pub(crate) fn json(&self) -> Value {
        self.0.iter().map(|(name, value)| (name.clone(), json!(value))).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(told, _)| told == name).map(|(_, value)| *value)
    }

    /// Keeps only figures whose names have one of these prefixes.
    pub(crate) fn only(mut self, beginnings: &[&str]) -> Self {
        self.0.retain(|(name, _)| beginnings.iter().any(|beginning| name.starts_with(beginning)));
        self
    }

    pub(crate) fn extend(&mut self, further: Self) {
        self.0.extend(further.0);
    }

    /// Rounded to three decimals.
    pub(crate) fn put(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), (value * 1_000.0).round() / 1_000.0));
    }

    pub(crate) fn put_any(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    /// Adds percentiles of a histogram of microseconds.
    pub(crate) fn put_spread(&mut self, name: &str, of: &Histogram<u64>) {
        self.put(format!("{name}_p50_ms"), percentile_ms(of, 50.0));
        self.put(format!("{name}_p99_ms"), percentile_ms(of, 99.0));
        self.put(format!("{name}_p999_ms"), percentile_ms(of, 99.9));
        self.put(format!("{name}_max_ms"), percentile_ms(of, 100.0));
    }

    pub(crate) fn put_lateness(&mut self, arrived: &Arrived) {
        self.put("earliest_ms", arrived.earliest_us as f64 / 1_000.0);
        self.put_spread("lateness", &arrived.late);
    }

    pub(crate) fn put_load(&mut self, what: &str, load: &Load) {
        self.put(what, load.accepted.len() as f64);
        self.put(format!("{what}_per_s"), load.tasks_per_s());
        self.put_spread("answer", &load.latency);
    }
}

/// The resources used up to a moment.
#[derive(Debug)]
pub(crate) struct Usage {
    at: Instant,
    server_cpu_s: Option<f64>,
    bench_cpu_s: Option<f64>,
}

impl Usage {
    pub(crate) fn now(stage: &Stage) -> Self {
        let of_server = stage.pids().map(process::cpu_s).sum::<Option<f64>>();
        let server_cpu_s = of_server.filter(|_| stage.pids().next().is_some());
        Self { at: Instant::now(), server_cpu_s, bench_cpu_s: process::cpu_s(std::process::id()) }
    }

    /// The CPU time of the servers since, in seconds.
    pub(crate) fn server_cpu_s(&self, stage: &Stage) -> Option<f64> {
        Some(Self::now(stage).server_cpu_s? - self.server_cpu_s?)
    }

    /// Adds what was used since: processors on average, and the current and maximum resident memory
    /// of the (first) server.
    pub(crate) fn put(&self, stage: &Stage, figures: &mut Figures) {
        let now = Self::now(stage);
        let took = (now.at - self.at).as_secs_f64();
        let share = |now: Option<f64>, before: Option<f64>| Some((now? - before?) / took);
        figures.put_any("server_cpus", share(now.server_cpu_s, self.server_cpu_s));
        figures.put_any("bench_cpus", share(now.bench_cpu_s, self.bench_cpu_s));
        let pid = stage.pids().next();
        figures.put_any(
            "server_resident_mib",
            pid.and_then(|pid| process::resident_mib(pid, "VmRSS")),
        );
        figures.put_any(
            "server_resident_most_mib",
            pid.and_then(|pid| process::resident_mib(pid, "VmHWM")),
        );
    }
}
