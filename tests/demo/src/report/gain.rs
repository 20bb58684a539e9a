//! The conclusion of a comparison: its first policy beside round robin, in words that fit a defeat as well as a win.

use isotherm_report::Conclusion;

use super::{Comparison, Run};

/// Shortest run that is judged, in seconds. In less, a few slow requests at the start decide.
const JUDGED_S_MIN: f64 = 1.0;
/// Ratios of two times that count as equal, up to this one.
const EQUAL_RATIO_MAX: f64 = 1.05;

/// Compares the first run with round robin; `None` without such a pair.
pub(super) fn gain(comparison: &Comparison) -> Option<Conclusion> {
    let ours = comparison.runs.first()?;
    let plain = plain_run(comparison)?;
    Some(match is_judged(ours, plain) {
        false => too_short(ours.duration_s.min(plain.duration_s)),
        true => judged(ours, plain),
    })
}

/// The run with round robin, beside which the first one is judged.
pub(super) fn plain_run(comparison: &Comparison) -> Option<&Run> {
    let mut others = comparison.runs.iter().skip(1);
    others.find(|run| run.policy == "round_robin")
}

/// Whether both runs are long enough to be compared.
pub(super) fn is_judged(ours: &Run, plain: &Run) -> bool {
    ours.duration_s.min(plain.duration_s) >= JUDGED_S_MIN
}

fn too_short(duration_s: f64) -> Conclusion {
    Conclusion::note(format!(
        "A run of {duration_s:.1} s is too short to judge: play more requests (`--requests`), or play them slower \
         (`--speedup`). The figures below are those of the start."
    ))
}

fn judged(ours: &Run, plain: &Run) -> Conclusion {
    let quantiles = [
        (
            "at the median",
            ours.metrics.ttft_ms.p50,
            plain.metrics.ttft_ms.p50,
        ),
        (
            "at the 90th percentile",
            ours.metrics.ttft_ms.p90,
            plain.metrics.ttft_ms.p90,
        ),
    ];
    let holds = quantiles
        .iter()
        .all(|(_, ours, plain)| *ours <= plain * EQUAL_RATIO_MAX);
    let times = quantiles.map(|(quantile, ours, plain)| {
        format!(
            "{} {quantile} ({ours:.0} ms against {plain:.0} ms)",
            compared(ours, plain)
        )
    });
    let (ours_name, plain_name) = (ours.label(), plain.label());
    let claim = format!("{ours_name} sends the first token no later than {plain_name}");
    Conclusion::claim(claim, holds).measured(format!(
        "it came {}; {:.0} % of the prompt tokens were in the caches, against {:.0} %",
        times.join(" and "),
        ours.metrics.cache_hit_ratio * 100.0,
        plain.metrics.cache_hit_ratio * 100.0,
    ))
}

/// Says how much sooner or later a time is than another.
pub(super) fn compared(ours: f64, other: f64) -> String {
    if ours <= other * EQUAL_RATIO_MAX && other <= ours * EQUAL_RATIO_MAX {
        return "as soon".to_owned();
    }
    let (longer, shorter, word) = match ours < other {
        true => (other, ours, "sooner"),
        false => (ours, other, "later"),
    };
    match shorter > 0.0 {
        true => format!("{:.1} times {word}", longer / shorter),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use isotherm_report::Format;

    use super::*;
    use crate::report::tests::example;

    /// The example with these medians of the first token; the 90th percentiles are twice as long.
    fn with_medians(ours: f64, plain: f64) -> Comparison {
        let mut comparison = example();
        for (run, p50) in comparison.runs.iter_mut().zip([ours, plain]) {
            run.metrics.ttft_ms.p50 = p50;
            run.metrics.ttft_ms.p90 = 2.0 * p50;
        }
        comparison
    }

    #[test]
    fn a_win_says_how_much_sooner_the_first_token_came() {
        let conclusion = gain(&example()).unwrap();
        assert_eq!(conclusion.holds, Some(true));
        let measured = conclusion.measured.unwrap();
        assert!(
            measured.contains("2.5 times sooner at the median (20 ms against 50 ms)"),
            "{measured}"
        );
        assert!(measured.contains("80 % of the prompt tokens were in the caches, against 40 %"));
    }

    #[test]
    fn a_defeat_says_later_and_has_the_colour_of_one() {
        let comparison = with_medians(9.0, 4.0);
        let conclusion = gain(&comparison).unwrap();
        assert_eq!(conclusion.holds, Some(false));
        let measured = conclusion.measured.unwrap();
        assert!(
            measured.contains("2.2 times later at the median (9 ms against 4 ms)"),
            "{measured}"
        );
        assert!(!measured.contains("sooner"), "{measured}");
        let page = comparison.report().unwrap().render(Format::Html).unwrap();
        assert!(
            page.contains("<li class=\"missed\"><strong>Does not hold: </strong>"),
            "{page}"
        );
    }

    #[test]
    fn a_defeat_in_the_tail_alone_is_a_defeat() {
        let mut comparison = with_medians(20.0, 50.0);
        comparison.runs[0].metrics.ttft_ms.p90 = 300.0;
        let conclusion = gain(&comparison).unwrap();
        assert_eq!(conclusion.holds, Some(false));
        let measured = conclusion.measured.unwrap();
        assert!(measured.contains("sooner at the median"), "{measured}");
        assert!(
            measured.contains("3.0 times later at the 90th percentile"),
            "{measured}"
        );
    }

    #[test]
    fn equal_times_are_neither_sooner_nor_later() {
        let conclusion = gain(&with_medians(50.0, 50.4)).unwrap();
        assert_eq!(conclusion.holds, Some(true));
        let measured = conclusion.measured.unwrap();
        assert!(
            measured.contains("came as soon at the median"),
            "{measured}"
        );
        assert_eq!(compared(0.0, 0.0), "as soon");
        assert_eq!(compared(3.0, 0.0), "later");
    }

    #[test]
    fn a_run_that_is_too_short_is_not_judged() {
        let mut comparison = with_medians(9.0, 4.0);
        comparison.runs[1].duration_s = 0.3;
        let conclusion = gain(&comparison).unwrap();
        assert_eq!(conclusion.holds, None);
        assert!(
            conclusion
                .text
                .contains("A run of 0.3 s is too short to judge"),
            "{conclusion:?}"
        );
    }

    #[test]
    fn a_comparison_without_round_robin_has_no_conclusion() {
        let mut comparison = example();
        comparison.runs.truncate(1);
        assert_eq!(gain(&comparison), None);
    }
}
