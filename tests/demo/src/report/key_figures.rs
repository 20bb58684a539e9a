//! The three figures that a reader takes away: the first policy's, large, beside those of the others.

use isotherm_report::KeyFigure;
use isotherm_report::number::{percent, time_ms, whole};

use super::gain::{compared, is_judged, plain_run};
use super::{Comparison, Run};

/// Ratios of two figures that count as equal, up to this one.
const EQUAL_RATIO_MAX: f64 = 1.01;

/// The key figures of the first run.
pub(super) fn key_figures(comparison: &Comparison) -> Vec<KeyFigure> {
    let Some(ours) = comparison.runs.first() else {
        return Vec::new();
    };
    let speed = comparison.scenario.speed;
    let ttft = |run: &Run| time_ms(run.metrics.ttft_ms.p90);
    let other = plain_run(comparison).filter(|other| is_judged(ours, other));
    let figure = |name: &str,
                  value: String,
                  words: fn(&Run, &Run) -> Words,
                  shown: &dyn Fn(&Run) -> String| {
        let words = other.map(|other| (words(ours, other), other.label()));
        let others = comparison.runs.iter().skip(1);
        KeyFigure {
            name: name.to_owned(),
            value,
            comparison: words.as_ref().map_or_else(String::new, |(words, name)| {
                format!("{} {name}", words.text)
            }),
            is_better: words.and_then(|(words, _)| words.is_better),
            others: others.map(|run| (run.label(), shown(run))).collect(),
        }
    };
    let hits = |run: &Run| percent(run.metrics.cache_hit_ratio);
    let throughput = |run: &Run| format!("{} tokens/s", whole(run.metrics.output_tokens_per_s));
    let mut first = figure(
        "Time to first token, 90th percentile",
        ttft(ours),
        ttft_words,
        &ttft,
    );
    if speed != 1.0 {
        let measured = time_ms(ours.metrics.ttft_ms.p90 / speed);
        let name = format!("{}, as measured", ours.label());
        first.others.push((name, measured));
    }
    vec![
        first,
        figure(
            "Prompt tokens from the caches",
            hits(ours),
            hit_words,
            &hits,
        ),
        figure(
            "Throughput",
            throughput(ours),
            throughput_words,
            &throughput,
        ),
    ]
}

/// Words about a figure beside another run's, and whether they favour the first run.
struct Words {
    text: String,
    is_better: Option<bool>,
}

impl Words {
    /// Judges two figures of which the greater one is better.
    fn of(text: String, ours: f64, other: f64) -> Self {
        let is_equal = ours <= other * EQUAL_RATIO_MAX && other <= ours * EQUAL_RATIO_MAX;
        Self {
            text,
            is_better: (!is_equal).then_some(ours > other),
        }
    }
}

fn ttft_words(ours: &Run, other: &Run) -> Words {
    let (ours, other) = (ours.metrics.ttft_ms.p90, other.metrics.ttft_ms.p90);
    let text = match compared(ours, other) {
        same if same == "as soon" => "as soon as".to_owned(),
        words => format!("{words} than"),
    };
    Words::of(text, other, ours)
}

fn hit_words(ours: &Run, other: &Run) -> Words {
    let (ours, other) = (ours.metrics.cache_hit_ratio, other.metrics.cache_hit_ratio);
    let text = match other > 0.0 {
        true => format!("{:.1} times those of", ours / other),
        false => "against none of".to_owned(),
    };
    Words::of(text, ours, other)
}

fn throughput_words(ours: &Run, other: &Run) -> Words {
    let rate = |run: &Run| run.metrics.output_tokens_per_s;
    let (ours, other) = (rate(ours), rate(other));
    let text = match other > 0.0 {
        true => format!("{:+.1} % against", (ours / other - 1.0) * 100.0),
        false => "against none of".to_owned(),
    };
    Words::of(text, ours, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn each_figure_has_its_ratio_to_round_robin_and_the_others_beside_it() {
        let mut comparison = example();
        comparison.runs[1].metrics.output_tokens_per_s = 1_000.0;
        let figures = key_figures(&comparison);
        let shown: Vec<_> = figures
            .iter()
            .map(|figure| {
                (
                    figure.value.as_str(),
                    figure.comparison.as_str(),
                    figure.is_better,
                )
            })
            .collect();
        let better = Some(true);
        assert_eq!(
            shown,
            [
                ("40.0 ms", "2.5 times sooner than Round robin", better),
                ("80.0 %", "2.0 times those of Round robin", better),
                ("1234 tokens/s", "+23.4 % against Round robin", better),
            ]
        );
        let measured = ("Prefix tree, as measured".to_owned(), "4.00 ms".to_owned());
        assert_eq!(figures[0].others[1], measured);
        assert_eq!(
            figures[1].others,
            [("Round robin".to_owned(), "40.0 %".to_owned())]
        );
    }

    #[test]
    fn a_defeat_is_not_shown_as_a_win() {
        let mut comparison = example();
        comparison.runs[0].metrics.ttft_ms.p90 = 500.0;
        comparison.runs[0].metrics.cache_hit_ratio = 0.2;
        comparison.runs[0].metrics.output_tokens_per_s = 900.0;
        let figures = key_figures(&comparison);
        assert!(figures.iter().all(|figure| figure.is_better == Some(false)));
        assert_eq!(figures[0].comparison, "5.0 times later than Round robin");
        assert_eq!(figures[2].comparison, "-27.1 % against Round robin");
    }

    #[test]
    fn a_run_that_is_too_short_to_judge_has_no_ratio() {
        let mut comparison = example();
        comparison.runs[0].duration_s = 0.3;
        let figures = key_figures(&comparison);
        assert!(
            figures
                .iter()
                .all(|figure| figure.comparison.is_empty() && figure.is_better.is_none())
        );
    }
}
