//! One run: a fresh stack, its clients, and what they measured.

use std::ops::Range;
use std::time::{Duration, Instant};

use isotherm_harness::Service;
use reqwest::Method;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::batch::{self, BatchWorker};
use super::load::{BURSTING, Draw, TENANTS, TenantConversation};
use super::setup::{TENANT_HEADER, TierSetup};
use crate::client::Client;
use crate::drive::Player;
use crate::metrics::{RequestMetrics, round};
use crate::record::{RequestLog, RequestRecord};

/// Time between two looks at the gate.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The runs of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TierRun {
    /// Interactive clients alone.
    Interactive,
    /// Interactive clients alone, on one replica fewer: what they get where batch work has a replica for itself.
    Fewer,
    /// Batch clients alone.
    Batch,
    /// Both at once.
    Both,
    /// Tenants, each at its share.
    Tenants,
    /// Tenants with a burst of one, and a bound on its share.
    BoundedBurst,
    /// Tenants with a burst of one, without a bound.
    UnboundedBurst,
}

impl TierRun {
    pub(super) const ALL: [Self; 7] = [
        Self::Interactive,
        Self::Fewer,
        Self::Batch,
        Self::Both,
        Self::Tenants,
        Self::BoundedBurst,
        Self::UnboundedBurst,
    ];

    /// Name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Interactive => "interactive alone",
            Self::Fewer => "interactive alone, one replica fewer",
            Self::Batch => "batch alone",
            Self::Both => "interactive and batch",
            Self::Tenants => "tenants, no burst",
            Self::BoundedBurst => "burst, bounded",
            Self::UnboundedBurst => "burst, unbounded",
        }
    }

    fn has_batch(self) -> bool {
        matches!(self, Self::Batch | Self::Both)
    }

    fn has_burst(self) -> bool {
        matches!(self, Self::BoundedBurst | Self::UnboundedBurst)
    }

    fn is_bounded(self) -> bool {
        matches!(self, Self::Tenants | Self::BoundedBurst)
    }

    /// The replicas of the run.
    fn replicas(self, setup: &TierSetup) -> usize {
        match self {
            Self::Fewer => setup.replicas.saturating_sub(1).max(1),
            _ => setup.replicas,
        }
    }
}

/// The clients of a run.
pub(super) struct RunPlan {
    run: TierRun,
    conversations: Vec<TenantConversation>,
}

impl RunPlan {
    pub(super) fn new(run: TierRun, draw: &Draw) -> Self {
        let conversations = match run {
            TierRun::Batch => Vec::new(),
            _ => draw.conversations(run.has_burst()),
        };
        Self { run, conversations }
    }
}

/// The measurements of a run, in the window.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// Run.
    pub run: TierRun,
    /// All interactive requests.
    pub interactive: RequestMetrics,
    /// The requests of the tenants that do not burst.
    pub others: RequestMetrics,
    /// Batch requests.
    pub batch: RequestMetrics,
    /// The gate's utilisation at each look.
    #[serde(skip)]
    pub utilisation: Vec<f64>,
    /// Mean of the gate's utilisation.
    pub utilisation_mean: f64,
}

/// Plays a run.
///
/// # Errors
/// When the stack does not start.
pub(super) async fn play(plan: RunPlan, setup: &TierSetup) -> anyhow::Result<RunResult> {
    let run = plan.run;
    let stack = setup.stack("tiers", run.replicas(setup), run.is_bounded());
    let stack = stack.start().await?;
    let (log, batch_log) = (RequestLog::default(), RequestLog::default());
    let start = Instant::now();
    let workers = if run.has_batch() {
        let client = Client::new(&stack.url(""))?.with_header("x-tier", "non-interactive");
        Some(batch::start(&BatchWorker {
            client,
            log: batch_log.clone(),
            start,
            setup: setup.clone(),
        }))
    } else {
        None
    };
    let player = Player {
        client: Client::new(&stack.url(""))?,
        log: log.clone(),
        start,
        length: Some(setup.length()),
    };
    let mut utilisation = Vec::new();
    tokio::select! {
        () = converse(plan.conversations, &player, setup.length()) => {}
        () = look(stack.service(), start, &mut utilisation) => {}
    }
    drop(workers);
    let label = run.label();
    let records = Records {
        interactive: log.take(label),
        batch: batch_log.take(label),
    };
    Ok(result(run, &records, &utilisation, setup))
}

/// Plays the conversations, each from its start on, until the end of the run.
async fn converse(conversations: Vec<TenantConversation>, player: &Player, length: Duration) {
    let mut tasks = JoinSet::new();
    for drawn in conversations {
        sleep_until((player.start + drawn.conversation.at).into()).await;
        let tier = if drawn.is_fast {
            "interactive-fast"
        } else {
            "interactive-normal"
        };
        let client = player.client.clone();
        let mut client = client
            .with_header("x-tier", tier)
            .with_header(TENANT_HEADER, &format!("tenant-{}", drawn.tenant));
        client.region = drawn.tenant;
        let player = Player {
            client,
            ..player.clone()
        };
        tasks.spawn(async move { player.converse(drawn.conversation).await });
    }
    sleep_until((player.start + length).into()).await;
    // Conversations that go on have no request after the end; their last responses are on the way.
    while tasks.join_next().await.is_some() {}
}

/// Looks at the gate until the future is dropped.
async fn look(service: &Service, start: Instant, seen: &mut Vec<(Duration, f64)>) {
    let mut ticks = tokio::time::interval(LOOK_INTERVAL);
    loop {
        ticks.tick().await;
        let gates = service.admin_request(Method::GET, "/api/batch", None).await;
        let value = gates
            .ok()
            .and_then(|gates| gates.pointer("/0/utilisation")?.as_f64());
        seen.extend(value.map(|value| (start.elapsed(), value)));
    }
}

struct Records {
    interactive: Vec<RequestRecord>,
    batch: Vec<RequestRecord>,
}

fn result(
    run: TierRun,
    records: &Records,
    seen: &[(Duration, f64)],
    setup: &TierSetup,
) -> RunResult {
    let window: Range<Duration> = setup.window();
    let metrics = |records: &mut dyn Iterator<Item = &RequestRecord>| {
        RequestMetrics::of(records, &window, setup.speed)
    };
    let seen = seen.iter().filter(|(at, _)| window.contains(at));
    let utilisation = Vec::from_iter(seen.map(|(_, value)| *value));
    let sum = utilisation.iter().fold(0.0, |sum, value| sum + value);
    let is_other = |record: &&RequestRecord| (BURSTING + 1..TENANTS).contains(&record.region);
    RunResult {
        run,
        interactive: metrics(&mut records.interactive.iter()),
        others: metrics(&mut records.interactive.iter().filter(is_other)),
        batch: metrics(&mut records.batch.iter()),
        utilisation_mean: round(sum / (utilisation.len().max(1) as f64)),
        utilisation,
    }
}
