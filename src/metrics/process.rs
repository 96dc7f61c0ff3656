//! What the system says of this process, under the names that Prometheus' client libraries use.

use procfs::process::{LimitValue, Process};
use procfs::{boot_time_secs, page_size, ticks_per_second};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Read anew for each scrape. A figure that the system does not give is absent.
#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let mut gauge = |name, help, unit: Option<&Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let metric = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(metric)
        };
        let stat = process.stat().ok();
        let started = stat.as_ref().and_then(|stat| {
            let since_boot = stat.starttime as f64 / ticks_per_second() as f64;
            Some(boot_time_secs().ok()? as f64 + since_boot)
        });
        let resident = stat.as_ref().map(|stat| (stat.rss * page_size()) as f64);
        let size = stat.as_ref().map(|stat| stat.vsize as f64);
        let files = process.fd_count().ok().map(|count| count as f64);
        let most_files =
            process.limits().ok().and_then(|limits| match limits.max_open_files.soft_limit {
                LimitValue::Value(limit) => Some(limit as f64),
                LimitValue::Unlimited => None,
            });
        gauge(
            "process_start_time",
            "When the process started, in Unix time",
            Some(&Unit::Seconds),
            started,
        )?;
        gauge("process_resident_memory", "Resident memory", Some(&Unit::Bytes), resident)?;
        gauge("process_virtual_memory", "Virtual memory", Some(&Unit::Bytes), size)?;
        gauge("process_open_fds", "Open files", None, files)?;
        gauge("process_max_fds", "The limit of open files", None, most_files)?;
        let Some(stat) = stat else { return Ok(()) };
        let seconds = (stat.utime + stat.stime) as f64 / ticks_per_second() as f64;
        let help = "Processor time of the process";
        let metric = encoder.encode_descriptor(
            "process_cpu",
            help,
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        ConstCounter::new(seconds).encode(metric)
    }
}
