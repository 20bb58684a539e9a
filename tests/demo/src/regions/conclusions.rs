//! Conclusions of a comparison of arrangements: expectations, the measured figures, and whether they hold.

use isotherm_report::Conclusion;

use super::deployment::Arrangement;
use super::options::Clients;
use super::trials::{ArrangementRun, TrialReport};

/// Throughput of forwarding over region-local with the same replicas (SkyLB, section 5.2: 1.07 to 1.18).
const GAIN_MIN: f64 = 1.07;
/// Cache hit ratio of forwarded later turns over that of local later turns.
const HIT_RATIO_MIN: f64 = 0.8;

/// Every conclusion about the runs of these trials.
pub(super) fn conclusions(trials: &[TrialReport]) -> Vec<Conclusion> {
    let mut conclusions: Vec<Conclusion> = trials.iter().flat_map(of_trial).collect();
    let runs = || trials.iter().flat_map(|trial| &trial.runs);
    let failed: usize = runs().map(|run| run.all.failed).sum();
    let requests = runs().map(|run| run.all.completed).sum::<usize>() + failed;
    conclusions.push(
        Conclusion::claim("no request failed", failed == 0)
            .measured(format!("{failed} of {requests}")),
    );
    conclusions
}

fn of_trial(trial: &TrialReport) -> Vec<Conclusion> {
    let Some(forwarding) = trial.run(Arrangement::Forwarding) else {
        return Vec::new();
    };
    let clients = trial.clients.label();
    let is_lower = |claim: String, ours: f64, theirs: f64| {
        let measured = format!("{ours:.0} against {theirs:.0} ms");
        Conclusion::claim(format!("{clients}: {claim}"), ours < theirs).measured(measured)
    };
    let mut conclusions = Vec::new();
    if let Some(local) = trial.run(Arrangement::Local) {
        conclusions.push(throughput(trial.clients, forwarding, local));
        if trial.clients == Clients::Skewed {
            let claim = "p90 TTFT of forwarding is lower than that of region-local".to_owned();
            let (ours, theirs) = (&forwarding.all.ttft_ms, &local.all.ttft_ms);
            conclusions.push(is_lower(claim, ours.p90, theirs.p90));
        }
    }
    if let Some(central) = trial.run(Arrangement::Central) {
        for (ours, theirs) in forwarding.regions.iter().zip(&central.regions).skip(1) {
            let claim = format!(
                "p50 TTFT in {} is lower than with one central balancer",
                ours.name
            );
            let (ours, theirs) = (ours.metrics.ttft_ms.p50, theirs.metrics.ttft_ms.p50);
            conclusions.push(is_lower(claim, ours, theirs));
        }
    }
    conclusions.extend(hit_ratio(clients, forwarding));
    conclusions
}

fn throughput(clients: Clients, ours: &ArrangementRun, local: &ArrangementRun) -> Conclusion {
    let (more, less) = (ours.all.output_tokens_per_s, local.all.output_tokens_per_s);
    let ratio = if less > 0.0 { more / less } else { 0.0 };
    let min = match clients {
        Clients::Skewed => GAIN_MIN,
        Clients::Day => 1.0,
    };
    let claim = format!(
        "{}: throughput of forwarding with {} replicas is at least {min:.2} times that of region-local with {}",
        clients.label(),
        ours.replicas,
        local.replicas
    );
    Conclusion::claim(claim, ratio >= min).measured(format!(
        "{more:.0} against {less:.0} tokens/s: {ratio:.3} times"
    ))
}

fn hit_ratio(clients: &str, ours: &ArrangementRun) -> Option<Conclusion> {
    let (local, forwarded) = (ours.all.local_turns, ours.all.forwarded_turns);
    let is_measured = forwarded.turns > 0 && local.hit_ratio > 0.0;
    let ratio = is_measured.then(|| forwarded.hit_ratio / local.hit_ratio)?;
    let claim = format!(
        "{clients}: cache hit ratio of forwarded later turns is at least {HIT_RATIO_MIN} times that of local ones"
    );
    Some(
        Conclusion::claim(claim, ratio >= HIT_RATIO_MIN).measured(format!(
            "{:.1} % of {} turns against {:.1} % of {}: {ratio:.3} times",
            forwarded.hit_ratio * 100.0,
            forwarded.turns,
            local.hit_ratio * 100.0,
            local.turns
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::*;

    #[test]
    fn each_claim_is_judged_by_the_measured_figures() {
        let trials = example().trials;
        let holds: Vec<Option<bool>> = conclusions(&trials)
            .iter()
            .map(|conclusion| conclusion.holds)
            .collect();
        assert_eq!(holds, [Some(true); 6]);
        let mut worse = trials;
        worse[0].runs[1].all.output_tokens_per_s = 1_050.0;
        worse[0].runs[1].all.failed = 1;
        let conclusions = conclusions(&worse);
        let measured = |index: usize| conclusions[index].measured.clone().unwrap();
        assert_eq!(
            (conclusions[0].holds, conclusions[5].holds),
            (Some(false), Some(false))
        );
        assert!(measured(0).contains("1.050 times") && measured(5).starts_with("1 of"));
    }

    #[test]
    fn an_omitted_run_has_no_conclusion() {
        let mut trials = example().trials;
        trials[0].runs.remove(1);
        assert_eq!(conclusions(&trials).len(), 1);
    }
}
