//! What a comparison is for: claims, what was measured, and whether they hold.

use serde::Serialize;

use super::super::options::Clients;
use super::super::world::Arrangement;
use super::{Run, TrialReport};

/// Forwarding gains at least so much throughput with the same replicas (SkyLB, section 5.2: 1.07 to 1.18).
const GAIN_MIN: f64 = 1.07;
/// A forwarded later turn finds at least so much of what one at home finds.
const WARMTH_MIN: f64 = 0.8;

/// A claim, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// What is claimed.
    pub claim: String,
    /// What was measured.
    pub measured: String,
    /// Whether it holds.
    pub holds: bool,
}

/// All that can be said of these trials; a claim about a run that was left out is left out.
pub(super) fn verdicts(trials: &[TrialReport]) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = trials.iter().flat_map(of_trial).collect();
    let runs = || trials.iter().flat_map(|trial| &trial.runs);
    let failed: usize = runs().map(|run| run.all.failed).sum();
    verdicts.push(Verdict {
        claim: "no request failed".into(),
        measured: format!(
            "{failed} of {}",
            runs().map(|run| run.all.requests).sum::<usize>() + failed
        ),
        holds: failed == 0,
    });
    verdicts
}

fn of_trial(trial: &TrialReport) -> Vec<Verdict> {
    let Some(forwarding) = trial.run(Arrangement::Forwarding) else {
        return Vec::new();
    };
    let mut verdicts = Vec::new();
    if let Some(local) = trial.run(Arrangement::Local) {
        verdicts.push(throughput(trial.clients, forwarding, local));
        if trial.clients == Clients::Skewed {
            verdicts.push(lower_p90(trial.clients, forwarding, local));
        }
    }
    if let Some(central) = trial.run(Arrangement::Central) {
        verdicts.extend(sooner_than_central(trial.clients, forwarding, central));
    }
    verdicts.extend(warmth(trial.clients, forwarding));
    verdicts
}

fn throughput(clients: Clients, ours: &Run, local: &Run) -> Verdict {
    let (more, less) = (ours.all.output_tokens_per_s, local.all.output_tokens_per_s);
    let ratio = if less > 0.0 { more / less } else { 0.0 };
    let least = match clients {
        Clients::Skewed => GAIN_MIN,
        Clients::Day => 1.0,
    };
    Verdict {
        claim: format!(
            "{}: forwarding with {} replicas has at least {least:.2} times the throughput of region-local with {}",
            clients.label(),
            ours.replicas,
            local.replicas
        ),
        measured: format!("{more:.0} against {less:.0} tokens/s: {ratio:.3} times"),
        holds: ratio >= least,
    }
}

fn lower_p90(clients: Clients, ours: &Run, local: &Run) -> Verdict {
    let (ours, theirs) = (ours.all.ttft_ms.p90, local.all.ttft_ms.p90);
    Verdict {
        claim: format!(
            "{}: its p90 time to the first token is lower",
            clients.label()
        ),
        measured: format!("{ours:.0} against {theirs:.0} ms"),
        holds: ours < theirs,
    }
}

fn sooner_than_central<'a>(
    clients: Clients,
    ours: &'a Run,
    central: &'a Run,
) -> impl Iterator<Item = Verdict> + 'a {
    let pairs = ours.regions.iter().zip(&central.regions).skip(1);
    pairs.map(move |(our, their)| {
        let (own, other) = (our.figures.ttft_ms.p50, their.figures.ttft_ms.p50);
        Verdict {
            claim: format!(
                "{}: in {} the p50 time to the first token is lower than with one central balancer",
                clients.label(),
                our.name
            ),
            measured: format!("{own:.0} against {other:.0} ms"),
            holds: own < other,
        }
    })
}

fn warmth(clients: Clients, ours: &Run) -> Option<Verdict> {
    let turns = &ours.all.follow_ups;
    let ratio = turns.ratio()?;
    Some(Verdict {
        claim: format!(
            "{}: later turns that were forwarded hit caches at least {WARMTH_MIN} times as much as those at home",
            clients.label()
        ),
        measured: format!(
            "{:.1} % of {} turns against {:.1} % of {}: {ratio:.3} times",
            turns.forwarded_hit_ratio * 100.0,
            turns.forwarded,
            turns.local_hit_ratio * 100.0,
            turns.local
        ),
        holds: ratio >= WARMTH_MIN,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn each_claim_is_judged_by_what_was_measured() {
        let report = example();
        let held: Vec<bool> = report
            .verdicts
            .iter()
            .map(|verdict| verdict.holds)
            .collect();
        assert_eq!(held, [true; 6], "{:?}", report.verdicts);
        let mut worse = report.trials.clone();
        worse[0].runs[1].all.output_tokens_per_s = 1_050.0;
        worse[0].runs[1].all.failed = 1;
        let verdicts = verdicts(&worse);
        assert!(!verdicts[0].holds && verdicts[0].measured.contains("1.050 times"));
        assert!(!verdicts[5].holds && verdicts[5].measured.starts_with("1 of"));
    }

    #[test]
    fn nothing_is_claimed_of_runs_that_were_left_out() {
        let mut trials = example().trials;
        trials[0].runs.remove(1);
        assert_eq!(verdicts(&trials).len(), 1);
    }
}
