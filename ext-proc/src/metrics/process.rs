//! Metrics of the process, under the names that every Prometheus client has for them.

use std::fmt;

use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, WithCurrentSystemInfo as _};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Reads the process from `/proc` at each scrape. Its registry has no prefix.
#[derive(Debug)]
pub struct ProcessCollector;

struct Usage {
    cpu_s: f64,
    resident_bytes: f64,
    started_unix_s: f64,
    open_fds: f64,
    /// The soft limit; `None` for no limit.
    max_fds: Option<f64>,
}

impl Usage {
    #[expect(clippy::cast_precision_loss, reason = "no value here comes near 2^53")]
    fn read() -> ProcResult<Self> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let max_fds = match process.limits()?.max_open_files.soft_limit {
            LimitValue::Value(count) => Some(count as f64),
            LimitValue::Unlimited => None,
        };
        Ok(Self {
            cpu_s: seconds(stat.utime + stat.stime),
            resident_bytes: stat.rss_bytes().get() as f64,
            started_unix_s: procfs::boot_time_secs()? as f64 + seconds(stat.starttime),
            open_fds: process.fd_count()? as f64,
            max_fds,
        })
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let usage = match Usage::read() {
            Ok(usage) => usage,
            // A sandbox may hide /proc. The page then lacks these metrics, and has all others.
            Err(error) => {
                tracing::debug!(%error, "the process cannot be read from /proc");
                return Ok(());
            }
        };
        let gauges = [
            (
                "process_start_time",
                "Start of the process, in seconds since 1970",
                Some(Unit::Seconds),
                Some(usage.started_unix_s),
            ),
            (
                "process_resident_memory",
                "Resident memory of the process",
                Some(Unit::Bytes),
                Some(usage.resident_bytes),
            ),
            (
                "process_open_fds",
                "Open file descriptors of the process",
                None,
                Some(usage.open_fds),
            ),
            (
                "process_max_fds",
                "Limit of the process for open file descriptors",
                None,
                usage.max_fds,
            ),
        ];
        for (name, help, unit, value) in gauges {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                let unit = unit.as_ref();
                gauge.encode(encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)?;
            }
        }
        let cpu = ConstCounter::new(usage.cpu_s);
        cpu.encode(encoder.encode_descriptor(
            "process_cpu",
            "Processor time of the process, of user and system",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?)
    }
}
