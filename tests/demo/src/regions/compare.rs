//! One arrangement after the other with the same clients, each with fresh replicas, so that nobody inherits a warm cache.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::crowd::{Book, play};
use super::figures::Figures;
use super::machine::{Busy, Machine};
use super::options::Trial;
use super::report::{RegionFigures, Run, TrialReport};
use super::timeline::Timeline;
use super::world::{Plan, REGIONS, World};
use crate::stats::round;

/// How often the progress is told: on a terminal on one line, else in a log.
const TELL_EACH: Duration = Duration::from_secs(2);
const LOG_EACH: Duration = Duration::from_secs(20);

/// Runs all of a trial; says on standard error how each goes.
///
/// # Errors
/// When something does not start. Requests that fail are counted in the report.
pub async fn compare(trial: &Trial) -> anyhow::Result<TrialReport> {
    let mut runs = Vec::new();
    for plan in &trial.plans {
        let label = plan.arrangement.label();
        eprintln!(
            "{} / {label}: starting {} replicas in each of {} regions",
            trial.clients.label(),
            plan.replicas,
            REGIONS.len()
        );
        let run = run(trial, plan).await.with_context(|| label)?;
        eprintln!("{} / {label}: {}", trial.clients.label(), run.summary());
        runs.push(run);
    }
    Ok(TrialReport::new(trial, runs))
}

async fn run(trial: &Trial, plan: &Plan) -> anyhow::Result<Run> {
    let world = World::start(plan).await?;
    let crowd = &trial.crowd;
    let book = Book::default();
    let mut busy = None;
    tokio::select! {
        () = play(crowd, &world.gates, &book) => {}
        () = tell(crowd.length, &book) => {}
        () = measure(crowd.warm_up, crowd.length, &mut busy) => {}
    }
    drop(world);
    let pages = book.read();
    for failure in &pages.failures {
        eprintln!("failed: {failure}");
    }
    let (records, window) = (&pages.records, crowd.window());
    let figures = |region: Option<usize>| {
        Figures::of(records, window, crowd.speed, |record| {
            region.is_none_or(|region| record.home == region)
        })
    };
    Ok(Run {
        arrangement: plan.arrangement,
        replicas: plan.replicas * REGIONS.len(),
        machine_busy_share: busy.map(|busy| round(busy.machine)),
        own_busy_share: busy.map(|busy| round(busy.own)),
        all: figures(None),
        regions: REGIONS
            .iter()
            .enumerate()
            .map(|(region, name)| RegionFigures {
                name: (*name).to_owned(),
                figures: figures(Some(region)),
            })
            .collect(),
        timeline: Timeline::of(records, crowd.length, REGIONS.len(), crowd.speed),
    })
}

/// Measures the machine over the part that counts, and then waits to be dropped.
async fn measure(from: Duration, to: Duration, busy: &mut Option<Busy>) {
    tokio::time::sleep(from).await;
    let before = Machine::now();
    tokio::time::sleep(to.saturating_sub(from)).await;
    *busy = before
        .zip(Machine::now())
        .map(|(before, now)| now.since(before));
    std::future::pending().await
}

/// Says what has happened so far, until it is dropped.
async fn tell(length: Duration, book: &Book) {
    let terminal = std::io::stderr().is_terminal();
    let start = Instant::now();
    loop {
        tokio::time::sleep(if terminal { TELL_EACH } else { LOG_EACH }).await;
        let (ended, failed, away) = {
            let pages = book.read();
            let failed = pages
                .records
                .iter()
                .filter(|record| record.outcome.is_none());
            let away = pages.records.iter().filter(|record| record.elsewhere());
            (pages.records.len(), failed.count(), away.count())
        };
        let line = format!(
            "  {:.0}/{:.0} s, {ended} requests, {away} of them in another region, {failed} failed",
            start.elapsed().as_secs_f64(),
            length.as_secs_f64()
        );
        if terminal {
            eprint!("\r{line} ");
        } else {
            eprintln!("{line}");
        }
    }
}
