//! `isotherm top`: shows replicas, queues and hit ratios, and keeps them up to date.
//!
//! `--once` prints tables or JSON for scripts. Without it the command draws on the alternate screen of the terminal
//! (`screen`), until a key ends it (`keys`); `terminal` restores what was there, whatever happens.

mod colours;
mod keys;
mod screen;
mod terminal;

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ColorChoice};
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt as _;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use self::colours::Colours;
use self::keys::{Action, Keys};
use self::terminal::Screen;
use super::client::{AdminClient, Connection};
use super::output::{self, JsonFlag, or_dash, percent};
use super::{learned, regions, replicas, scaling, tiers};
use crate::admin::view::{
    BatchView, CountersView, PoolTenantsView, PoolView, RegionsView, ReplicaView, ScalingView,
};
use crate::decision_log::unix_ms;

/// The number of snapshots that rates cover.
const WINDOW_LENGTH: usize = 10;

const POOL_HEADER: [&str; 9] = [
    "POOL",
    "POLICY",
    "PUSH",
    "AVAILABLE",
    "QUEUE",
    "OLDEST",
    "IN FLIGHT",
    "REQ/S",
    "HIT RATIO",
];

#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    connection: Connection,
    /// Refresh interval, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Print the state once and exit.
    #[arg(long)]
    once: bool,
    /// With --once: print JSON instead of tables, for scripts.
    #[arg(long, requires = "once")]
    json: bool,
    /// When to use colours; `auto` obeys `NO_COLOR`.
    #[arg(long, value_name = "WHEN", default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

pub(super) async fn run(args: Top) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let mut window = Window::new(Snapshot::take(&client).await?);
    if args.once {
        let json = JsonFlag { json: args.json };
        json.print(&window.now, |_| window.text())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdout().is_terminal() {
        bail!("standard output is not a terminal: use --once for plain text");
    }
    let colours = Colours::of_terminal(args.color);
    let mut screen = Screen::enter()?;
    follow(&client, &mut window, &mut screen, &args, colours).await?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the window after each snapshot and each key, until a key quits.
async fn follow(
    client: &AdminClient,
    window: &mut Window,
    screen: &mut Screen,
    args: &Top,
    colours: Colours,
) -> anyhow::Result<()> {
    let mut keys = Keys::default();
    let mut events = EventStream::new();
    let mut ticks = interval(Duration::from_millis(args.interval_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, and the window has its first snapshot.
    ticks.tick().await;
    loop {
        screen.draw(|frame| screen::draw(frame, window, &mut keys, colours))?;
        tokio::select! {
            event = events.next() => {
                let event = event.context("the terminal is gone")?;
                let event = event.context("cannot read the terminal")?;
                if let Event::Key(key) = event
                    && keys.press(key) == Action::Quit
                {
                    return Ok(());
                }
            }
            _ = ticks.tick() => {
                let next = tokio::select! {
                    next = Snapshot::take(client) => next,
                    action = quit_key(&mut events, &mut keys) => {
                        action?;
                        return Ok(());
                    }
                };
                window.push(next);
            }
        }
    }
}

/// Reads keys until one quits: a service that does not answer must not keep the screen.
async fn quit_key(events: &mut EventStream, keys: &mut Keys) -> anyhow::Result<()> {
    while let Some(event) = events.next().await {
        if let Event::Key(key) = event.context("cannot read the terminal")?
            && keys.press(key) == Action::Quit
        {
            return Ok(());
        }
    }
    bail!("the terminal is gone")
}

/// A snapshot of a service's state.
#[derive(Clone, Debug, Serialize)]
struct Snapshot {
    #[serde(skip)]
    taken: Instant,
    #[serde(skip)]
    taken_unix_ms: u64,
    pools: Vec<PoolView>,
    replicas: Vec<ReplicaView>,
    gates: Vec<BatchView>,
    tenants: Vec<PoolTenantsView>,
    regions: RegionsView,
    scaling: ScalingView,
}

impl Snapshot {
    async fn take(client: &AdminClient) -> anyhow::Result<Self> {
        Ok(Self {
            pools: client.get("/api/pools").await?,
            replicas: client.get("/api/replicas").await?,
            gates: client.get("/api/batch").await?,
            tenants: client.get("/api/tenants").await?,
            regions: client.get(regions::PATH).await?,
            scaling: client.get(scaling::PATH).await?,
            taken: Instant::now(),
            taken_unix_ms: unix_ms(),
        })
    }
}

/// The last snapshots.
#[derive(Debug)]
struct Window {
    before: VecDeque<(Instant, BTreeMap<String, CountersView>)>,
    now: Snapshot,
    /// Error of the last attempt.
    problem: Option<String>,
}

impl Window {
    fn new(now: Snapshot) -> Self {
        Self {
            before: VecDeque::new(),
            now,
            problem: None,
        }
    }

    /// Adds the next snapshot. After a failed attempt the last snapshot stays.
    fn push(&mut self, next: anyhow::Result<Snapshot>) {
        match next {
            Ok(next) => {
                let now = std::mem::replace(&mut self.now, next);
                let pools = now.pools.into_iter();
                let counters = pools.map(|pool| (pool.pool, pool.counters)).collect();
                self.before.push_back((now.taken, counters));
                if self.before.len() > WINDOW_LENGTH {
                    self.before.pop_front();
                }
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    /// Returns the dispatched requests per second of `pool`, and the share of prompt tokens that engines found in their
    /// caches, if an engine reports it: by the usage of answers, else by its counters. With one snapshot only, that share covers the time since the service's start.
    fn rates(&self, pool: &PoolView) -> (f64, Option<f64>) {
        let none = CountersView::default();
        let (since, before) = match self.before.front() {
            Some((taken, counters)) => (
                self.now.taken.duration_since(*taken),
                counters.get(&pool.pool).unwrap_or(&none),
            ),
            None => (Duration::ZERO, &none),
        };
        let growth = |count: fn(&CountersView) -> u64| {
            count(&pool.counters).saturating_sub(count(before)) as f64
        };
        let decisions = growth(|counters| counters.decisions.values().sum());
        let mut prompt = growth(|counters| counters.measured_prompt_tokens);
        let mut cached = growth(|counters| counters.measured_cached_tokens);
        if prompt == 0.0 {
            prompt = growth(|counters| counters.counted_prompt_tokens);
            cached = growth(|counters| counters.counted_cached_tokens);
        }
        let decisions_per_s = match since.is_zero() {
            true => 0.0,
            false => decisions / since.as_secs_f64(),
        };
        (decisions_per_s, (prompt > 0.0).then(|| cached / prompt))
    }

    fn pool_row(&self, pool: &PoolView) -> Vec<String> {
        let (decisions_per_s, hit_ratio) = self.rates(pool);
        vec![
            pool.pool.clone(),
            pool.policy.clone(),
            pool.push.clone(),
            format!("{}/{}", pool.available_replicas, pool.replicas),
            pool.queue_length.to_string(),
            format!("{:.1} s", pool.oldest_wait_ms as f64 / 1000.0),
            pool.in_flight.to_string(),
            format!("{decisions_per_s:.1}"),
            or_dash(hit_ratio.map(percent)),
        ]
    }

    /// Renders the newest snapshot.
    fn text(&self) -> String {
        let mut tables = Vec::new();
        let Snapshot {
            pools,
            replicas,
            gates,
            tenants,
            regions,
            scaling,
            ..
        } = &self.now;
        if regions.name.is_some() {
            let table = output::table(&regions::HEADER, regions::rows(regions));
            tables.push(table + &regions::notes(regions));
        }
        let rows = pools.iter().map(|pool| self.pool_row(pool));
        let learned = pools.iter().map(|pool| {
            let learned = learned::line(&pool.learned);
            format!("{} learned {learned}\n", pool.pool)
        });
        let table = output::table(&POOL_HEADER, rows.collect());
        tables.push(table + &learned.collect::<String>());
        tables.extend(tiers::tiers(pools, gates));
        tables.extend(tiers::tenants(tenants));
        if !scaling.pools.is_empty() {
            tables.push(scaling::text(scaling));
        }
        tables.push(replicas::list(replicas));
        tables.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::view::LearnedView;
    use crate::cli::regions::tests::two_peers;

    pub(super) fn snapshot(taken: Instant, decisions: u64, cached: u64) -> Snapshot {
        let pool = PoolView {
            pool: "llama".into(),
            aliases: vec![],
            cluster: "llama".into(),
            policy: "prefix_tree".into(),
            push: "pending".into(),
            replicas: 2,
            has_synced: true,
            source_problem: None,
            available_replicas: 1,
            queue_length: 3,
            oldest_wait_ms: 1500,
            in_flight: 4,
            index_nodes: 10,
            index_bytes: 1000,
            counters: CountersView {
                decisions: [("prefix".to_owned(), decisions)].into(),
                measured_prompt_tokens: 100 * decisions,
                measured_cached_tokens: cached,
                ..CountersView::default()
            },
            tiers: Vec::new(),
            learned: LearnedView {
                bytes_per_token: 4.25,
                sources: [("token_length".to_owned(), "counters".to_owned())].into(),
                ..LearnedView::default()
            },
        };
        let replica = ReplicaView {
            role: "both".into(),
            pool: "llama".into(),
            address: "10.0.0.1:80".into(),
            availability: "pending".into(),
            draining: false,
            owner: None,
            outstanding: 4,
            pending: Some(1),
            running: Some(3),
            headroom: None,
            kv_usage: Some(0.5),
            kv_capacity_tokens: None,
            probe_age_ms: Some(40),
            without_metrics: false,
            several_processes: false,
            adapters: None,
            failure: None,
        };
        Snapshot {
            taken,
            taken_unix_ms: 1_800_000_000_000,
            pools: vec![pool],
            replicas: vec![replica],
            gates: Vec::new(),
            tenants: Vec::new(),
            regions: RegionsView::default(),
            scaling: ScalingView::default(),
        }
    }

    #[test]
    fn the_text_shows_pools_and_replicas() {
        let text = Window::new(snapshot(Instant::now(), 10, 500)).text();
        assert!(
            text.contains("llama  prefix_tree  pending  1/2        3      1.5 s"),
            "{text}"
        );
        assert!(text.contains("50%"), "{text}");
        assert!(
            text.contains("\nllama learned 4.25 bytes/token (counters)\n"),
            "{text}"
        );
        assert!(
            text.contains("10.0.0.1:80  both  -      pending  4"),
            "{text}"
        );
    }

    #[test]
    fn rates_cover_the_window_and_not_the_time_since_the_start() {
        let start = Instant::now();
        let mut window = Window::new(snapshot(start, 10, 0));
        window.push(Ok(snapshot(start + Duration::from_secs(2), 30, 2000)));
        let (decisions_per_s, hit_ratio) = window.rates(&window.now.pools[0]);
        assert!((decisions_per_s - 10.0).abs() < 1e-9, "{decisions_per_s}");
        assert_eq!(hit_ratio, Some(1.0));
    }

    #[test]
    fn the_counters_of_engines_give_the_hit_ratio_where_no_usage_does() {
        let mut now = snapshot(Instant::now(), 0, 0);
        now.pools[0].counters.counted_prompt_tokens = 1_000;
        now.pools[0].counters.counted_cached_tokens = 610;
        let window = Window::new(now);
        assert_eq!(window.rates(&window.now.pools[0]).1, Some(0.61));
        assert!(window.text().contains("61%"));
    }

    #[test]
    fn regions_stand_above_pools_and_replicas() {
        let mut window = Window::new(snapshot(Instant::now(), 10, 500));
        assert!(!window.text().contains("REGION"));
        window.now.regions = two_peers();
        let text = window.text();
        let (regions, pools) = (text.find("REGION").unwrap(), text.find("POLICY").unwrap());
        assert!(regions < pools, "{text}");
        assert!(text.contains("the link is unreachable"), "{text}");
    }
}
