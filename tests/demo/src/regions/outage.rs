//! A region dies in the middle of a run: another region takes the lease of its replicas, and gives it back.
//!
//! The region that dies has no clients of its own: theirs would move by DNS. The others can do without its replicas; the one
//! that holds the lease spreads its requests over them. Leases run on this machine's clock, so the times of this run do too.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use isotherm_harness::{LEASE_MS, Regions, wait_for};
use isotherm_report::{Cell, Conclusion, Section, Table};
use serde::Serialize;
use serde_json::Value;

use super::client_counts::ClientCounts;
use super::deployment::{Deployment, DeploymentPlan, REGIONS, hears_all};
use super::population::ClientPopulation;
use crate::metrics::{RequestMetrics, round};
use crate::record::{RequestLog, RequestRecord};
use crate::workload::Chat;

/// The region that dies.
const DYING: usize = 2;
/// Clients of each region.
const CLIENTS: [usize; 3] = [60, 60, 0];
/// The warm-up, the death, the restart and the end.
const WARM: Duration = Duration::from_secs(4);
const DEATH: Duration = Duration::from_secs(12);
const RESTART: Duration = Duration::from_secs(26);
const END: Duration = Duration::from_secs(44);
/// Time beyond the lease after which another region serves the replicas.
const TAKEOVER_MAX: Duration = Duration::from_secs(2);
/// Time for a region to hold a lease.
const HELD_MAX: Duration = Duration::from_secs(30);
/// Beginnings of the client's message about an answer that broke behind its first byte.
const BROKEN: [&str; 2] = ["cannot read the stream", "the stream ended"];

/// The result of the run.
#[derive(Clone, Debug, Serialize)]
pub struct Outage {
    /// Time from the death to the first token of a replica of the dead region.
    served_again_s: Option<f64>,
    /// Time from the restart until the region has its replicas back.
    returned_s: f64,
    /// Requests whose answers broke behind the first byte.
    broken: usize,
    /// Requests without an answer.
    pub(super) unanswered: usize,
    phases: Vec<Phase>,
}

#[derive(Clone, Debug, Serialize)]
struct Phase {
    name: &'static str,
    metrics: RequestMetrics,
    /// Requests that replicas of the dead region answered.
    by_its_replicas: usize,
}

/// Plays the run; `None` without etcd.
///
/// # Errors
/// When something does not start, or the region does not get its replicas back.
pub async fn run(plan: &DeploymentPlan, seed: u64) -> anyhow::Result<Option<Outage>> {
    let mut deployment = Deployment::start(plan).await?;
    let clients = deployment.clients.clone();
    let regions = deployment.regions.as_mut();
    let regions = regions.context("regions that forward")?;
    if regions.etcd().is_none() {
        return Ok(None);
    }
    for region in REGIONS {
        holds_its_lease(regions, region).await?;
    }
    let population = ClientPopulation {
        counts: ClientCounts::Skewed(CLIENTS.into()),
        chat: Chat::about_documents(seed),
        speed: plan.engine.speed,
        length: END,
        warm_up: WARM,
    };
    let log = RequestLog::default();
    let (returned, ()) = tokio::join!(fail(regions), population.run(&clients, &log));
    let records = log.take("a region dies");
    Ok(Some(Outage::of(&records, returned?, plan.engine.speed)))
}

/// Kills the region and starts it again. Returns the time until it has its replicas back.
async fn fail(regions: &mut Regions) -> anyhow::Result<Duration> {
    let name = REGIONS[DYING];
    tokio::time::sleep(DEATH).await;
    eprintln!("a region dies: killing the service and the Envoy of {name}");
    let stack = regions.region_mut(name)?;
    stack.service_mut().kill()?;
    stack.envoy_mut().kill()?;
    tokio::time::sleep(RESTART.saturating_sub(DEATH)).await;
    let restarted = Instant::now();
    let stack = regions.region_mut(name)?;
    stack.service_mut().start().await?;
    stack.envoy_mut().restart().await?;
    holds_its_lease(regions, name).await?;
    let returned = restarted.elapsed();
    hears_all(regions, REGIONS[0]).await?;
    Ok(returned)
}

async fn holds_its_lease(regions: &Regions, region: &str) -> anyhow::Result<()> {
    wait_for(HELD_MAX, &format!("{region} to hold its lease"), || async {
        let status = regions.status(region).await?;
        let holder = status.pointer("/lease/holder").and_then(Value::as_str);
        Ok((holder == Some(region)).then_some(()))
    })
    .await
}

impl Outage {
    fn of(records: &[RequestRecord], returned: Duration, speed: f64) -> Self {
        let is_of_dead = |record: &&RequestRecord| record.served == Some(DYING);
        let first_token = |record: &RequestRecord| {
            let outcome = record.outcome.as_ref().ok()?;
            Some(record.sent + outcome.ttft)
        };
        let later = records.iter().filter(|record| record.sent >= DEATH);
        let served_again = later.filter(is_of_dead).filter_map(first_token).min();
        let leased_from = served_again.unwrap_or(RESTART).min(RESTART);
        let phase = |name, from: Duration, to: Duration| Phase {
            name,
            metrics: RequestMetrics::of(
                records.iter().filter(|record| record.outcome.is_ok()),
                &(from..to),
                speed,
            ),
            by_its_replicas: records
                .iter()
                .filter(is_of_dead)
                .filter(|record| (from..to).contains(&record.sent))
                .count(),
        };
        let failures = || {
            records
                .iter()
                .filter_map(|record| record.outcome.as_ref().err())
        };
        let is_broken = |failure: &&String| BROKEN.iter().any(|start| failure.starts_with(start));
        let broken = failures().filter(is_broken).count();
        let seconds = |time: Duration| round(time.as_secs_f64());
        Self {
            served_again_s: served_again.map(|at| seconds(at.saturating_sub(DEATH))),
            returned_s: seconds(returned),
            broken,
            unanswered: failures().count() - broken,
            phases: vec![
                phase("before", WARM, DEATH),
                phase("no region serves them", DEATH, leased_from),
                phase("another region does", leased_from, RESTART),
                phase("it is back", RESTART + returned, END),
            ],
        }
    }

    pub(super) fn section(&self) -> Section {
        let (name, lease) = (REGIONS[DYING], Duration::from_millis(LEASE_MS));
        let limit = lease + TAKEOVER_MAX;
        let served_again = self.served_again_s;
        let within = served_again.is_some_and(|s| s <= limit.as_secs_f64());
        let shown = served_again.map_or_else(|| "never".to_owned(), |s| format!("after {s:.1} s"));
        let mut table = Table::new([
            "",
            "requests",
            "tokens/s",
            "TTFT p50",
            "p90 ms",
            &format!("by replicas of {name}"),
        ]);
        for phase in &self.phases {
            let metrics = &phase.metrics;
            table.push::<Cell>([
                phase.name.into(),
                metrics.completed.into(),
                format!("{:.0}", metrics.output_tokens_per_s).into(),
                format!("{:.0}", metrics.ttft_ms.p50).into(),
                format!("{:.0}", metrics.ttft_ms.p90).into(),
                phase.by_its_replicas.into(),
            ]);
        }
        Section::new("A region dies")
            .text(format!(
                "{} clients in us and in eu. After {} s the service and the Envoy of {name} are killed (SIGKILL), and started again after {} s. \
                 The lease is {} s. Times of death and return are of this machine, rates and times to first token of the engines.",
                CLIENTS[0],
                DEATH.as_secs(),
                RESTART.as_secs(),
                lease.as_secs()
            ))
            .conclusions(vec![
                Conclusion::claim(
                    format!("replicas of {name} serve again within {} s of its death", limit.as_secs()),
                    within,
                )
                .measured(shown),
                Conclusion::claim("every request had an answer, or one that had begun", self.unanswered == 0)
                    .measured(format!("{} without an answer, {} broken", self.unanswered, self.broken)),
                Conclusion::note(format!("{name} had its replicas back {:.1} s after its restart", self.returned_s)),
            ])
            .table(table)
    }
}
