//! Conclusions of a comparison of arrangements: expectations, the measured figures, and whether they hold.

use isotherm_report::Conclusion;

use super::deployment::Arrangement;
use super::options::Clients;
use super::trials::{ArrangementRun, TrialReport};

/// Throughput of forwarding over region-local with the same replicas (SkyLB, section 5.2: 1.07 to 1.18).
const GAIN_MIN: f64 = 1.07;
/// Throughput with three quarters of the replicas over region-local with all.
const SHARED_GAIN_MIN: f64 = 1.1;
/// Throughput, p90 and the p50 of clients outside the first region, over the central balancer's.
const CENTRAL_TOKENS_MIN: f64 = 0.97;
const CENTRAL_P90_MAX: f64 = 1.25;
const CENTRAL_FAR_P50_MAX: f64 = 0.6;
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
    let at_most = |claim: String, most: f64, ours: f64, theirs: f64| {
        let ratio = ours / theirs.max(f64::MIN_POSITIVE);
        let measured = format!("{ours:.0} against {theirs:.0} ms: {ratio:.3} times");
        Conclusion::claim(claim, ratio <= most).measured(measured)
    };
    let p90 = forwarding.all.ttft_ms.p90;
    let mut conclusions = Vec::new();
    if let Some(local) = trial.run(Arrangement::Local) {
        conclusions.push(throughput(trial.clients, forwarding, local));
        let claim = "p90 TTFT of forwarding is no higher than that of region-local";
        conclusions.push(at_most(claim.into(), 1.0, p90, local.all.ttft_ms.p90));
    }
    if let Some(central) = trial.run(Arrangement::Central) {
        let (ours, theirs) = (
            forwarding.all.output_tokens_per_s,
            central.all.output_tokens_per_s,
        );
        let ratio = ours / theirs.max(f64::MIN_POSITIVE);
        let claim = format!(
            "throughput of forwarding is at least {CENTRAL_TOKENS_MIN} of the central balancer's"
        );
        let measured = format!("{ours:.0} against {theirs:.0} tokens/s: {ratio:.3} times");
        conclusions.push(Conclusion::claim(claim, ratio >= CENTRAL_TOKENS_MIN).measured(measured));
        let claim = format!(
            "p90 TTFT of forwarding is at most {CENTRAL_P90_MAX} of the central balancer's"
        );
        conclusions.push(at_most(
            claim,
            CENTRAL_P90_MAX,
            p90,
            central.all.ttft_ms.p90,
        ));
        for (ours, theirs) in forwarding.regions.iter().zip(&central.regions).skip(1) {
            let claim = format!(
                "p50 TTFT in {} is at most {CENTRAL_FAR_P50_MAX} of the central balancer's",
                ours.name
            );
            let (ours, theirs) = (ours.metrics.ttft_ms.p50, theirs.metrics.ttft_ms.p50);
            conclusions.push(at_most(claim, CENTRAL_FAR_P50_MAX, ours, theirs));
        }
    }
    conclusions.extend(hit_ratio(forwarding));
    let conclusions = conclusions.into_iter();
    conclusions.map(|one| one.in_case(clients)).collect()
}

fn throughput(clients: Clients, ours: &ArrangementRun, local: &ArrangementRun) -> Conclusion {
    let (more, less) = (ours.all.output_tokens_per_s, local.all.output_tokens_per_s);
    let ratio = if less > 0.0 { more / less } else { 0.0 };
    let min = match clients {
        Clients::Skewed => GAIN_MIN,
        Clients::Day => SHARED_GAIN_MIN,
    };
    let claim = format!(
        "throughput of forwarding with {} replicas is at least {min:.2} times that of region-local with {}",
        ours.replicas, local.replicas
    );
    Conclusion::claim(claim, ratio >= min).measured(format!(
        "{more:.0} against {less:.0} tokens/s: {ratio:.3} times"
    ))
}

fn hit_ratio(ours: &ArrangementRun) -> Option<Conclusion> {
    let (local, forwarded) = (ours.all.local_turns, ours.all.forwarded_turns);
    let is_measured = forwarded.turns > 0 && local.hit_ratio > 0.0;
    let ratio = is_measured.then(|| forwarded.hit_ratio / local.hit_ratio)?;
    let claim = format!(
        "cache hit ratio of forwarded later turns is at least {HIT_RATIO_MIN} times that of local ones"
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
        assert_eq!(holds, [Some(true); 8]);
        let mut worse = trials;
        worse[0].runs[1].all.output_tokens_per_s = 1_050.0;
        worse[0].runs[1].all.failed = 1;
        let conclusions = conclusions(&worse);
        let measured = |index: usize| conclusions[index].measured.clone().unwrap();
        assert_eq!(
            (conclusions[0].holds, conclusions[7].holds),
            (Some(false), Some(false))
        );
        assert!(measured(0).contains("1.050 times") && measured(7).starts_with("1 of"));
    }

    #[test]
    fn an_omitted_run_has_no_conclusion() {
        let mut trials = example().trials;
        trials[0].runs.remove(1);
        assert_eq!(conclusions(&trials).len(), 1);
    }
}
