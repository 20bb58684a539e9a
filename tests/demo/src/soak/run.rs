//! A run from its start to its report.

use std::ops::Range;
use std::time::Duration;

use tokio::time::sleep;

use super::affinity;
use super::clients::Clients;
use super::delivery::{check_attempts, check_endings};
use super::fault_log::FaultLog;
use super::fault_plan::{FaultPlan, PlannedFault};
use super::idleness::wait_until_idle;
use super::options::SoakOptions;
use super::record::RunClock;
use super::report::SoakResult;
use super::resources::Resources;
use super::system::{SIZES, System};
use super::violation::{Invariant, Violation};

/// Time without faults at the start.
const WARM_UP: Duration = Duration::from_secs(12);
/// Part of the warm-up in which conversations only begin.
const COLD: Duration = Duration::from_secs(5);
/// Time from the last fault of a round until conversations must find their prefixes again.
const RECOVERY: Duration = Duration::from_secs(10);
/// Time in which the run then measures that.
const MEASURED: Duration = Duration::from_secs(6);

/// The state of a run.
#[derive(Debug)]
struct Run {
    system: System,
    clock: RunClock,
    faults: FaultLog,
    resources: Resources,
    /// Times after a recovery.
    recovered: Vec<Range<Duration>>,
}

/// A moment of a round.
#[derive(Clone, Copy, Debug)]
struct Moment {
    time: Duration,
    fault: PlannedFault,
    is_begin: bool,
}

/// Runs the load and the faults, and checks the invariants; prints the progress on standard error.
///
/// # Errors
/// When a process does not start (again).
pub async fn soak(options: &SoakOptions) -> anyhow::Result<SoakResult> {
    eprintln!("seed {}, {} minutes", options.seed, options.minutes);
    let mut run = Run {
        system: System::start().await?,
        clock: RunClock::start(),
        faults: FaultLog::default(),
        resources: Resources::default(),
        recovered: Vec::new(),
    };
    let envoys = run.system.envoys();
    let clients = Clients::start(options.seed, &envoys, run.clock)?;
    sleep(WARM_UP).await;
    run.system.read_resources(&mut run.resources)?;
    let mut plan = FaultPlan::new(options.seed, SIZES);
    // A round that begins here ends in time.
    let last_begin = options.duration().saturating_sub(RECOVERY + MEASURED);
    while run.clock.now() < last_begin {
        run.round(&plan.next_round()).await?;
        let (seconds, requests) = (run.clock.now().as_secs(), clients.records.lock().len());
        let rounds = run.recovered.len();
        eprintln!("{seconds} s: {rounds} rounds, {requests} requests");
    }
    run.end(options, clients).await
}

impl Run {
    /// Injects and heals faults, lets the system recover, and measures.
    async fn round(&mut self, faults: &[PlannedFault]) -> anyhow::Result<()> {
        let start = self.clock.now();
        for moment in moments(faults) {
            let due = start + moment.time;
            sleep(due.saturating_sub(self.clock.now())).await;
            let fault = moment.fault;
            let now = self.clock.now();
            let (name, target) = (fault.kind.name(), fault.target);
            if moment.is_begin {
                eprintln!("{:.1} s: {name}, {target:?}", now.as_secs_f64());
                self.faults.begin(fault.kind, target, now);
                self.system.inject(&fault).await?;
            } else {
                self.system.heal(&fault).await?;
                self.faults.heal(target, self.clock.now());
            }
        }
        sleep(RECOVERY).await;
        let from = self.clock.now();
        sleep(MEASURED).await;
        self.recovered.push(from..self.clock.now());
        self.system.read_resources(&mut self.resources)
    }

    /// Stops the clients, waits until the system is idle, and checks everything.
    async fn end(mut self, options: &SoakOptions, clients: Clients) -> anyhow::Result<SoakResult> {
        let load = self.clock.now();
        let records = clients.stop().await?;
        let taken = wait_until_idle(&self.system).await?;
        let now = self.clock.now();
        self.system.read_resources(&mut self.resources)?;
        let processes = self.system.processes()?.into_iter();
        let processes: Vec<_> = processes
            .map(|(name, process)| (name, process.id()))
            .collect();
        let growth = self.resources.growth(&processes);
        let mut violations = check_endings(&records, &self.faults);
        let received = self.system.received().await?;
        violations.extend(check_attempts(&records, &received, now));
        violations.extend(taken.into_iter().map(|what| Violation {
            invariant: Invariant::PlacesReturned,
            at: now,
            what,
        }));
        violations.extend(growth.iter().filter_map(|growth| growth.check(now)));
        let warm_up = COLD..WARM_UP;
        violations.extend(affinity::check(&records, &warm_up, &self.recovered));
        Ok(SoakResult {
            seed: options.seed,
            load,
            records,
            faults: self.faults,
            growth,
            warm_up,
            recovered: self.recovered,
            violations,
        })
    }
}

/// The begins and ends of faults in order of time.
fn moments(faults: &[PlannedFault]) -> Vec<Moment> {
    let of_fault = |fault: &PlannedFault| {
        let moment = |time, is_begin| Moment {
            time,
            fault: *fault,
            is_begin,
        };
        [moment(fault.begin, true), moment(fault.end, false)]
    };
    let mut moments: Vec<Moment> = faults.iter().flat_map(of_fault).collect();
    moments.sort_by_key(|moment| moment.time);
    moments
}
