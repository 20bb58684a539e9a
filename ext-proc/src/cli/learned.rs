//! The line that shows what a pool has learned of its engines, each quantity with its source.

use crate::admin::view::LearnedView;

/// Renders what a pool has learned.
pub(super) fn line(learned: &LearnedView) -> String {
    let quantities = [
        (
            "prompt_speed",
            format!("{:.3} ms/prompt token", learned.prompt_token_s * 1e3),
        ),
        (
            "decode_speed",
            format!("{:.1} ms/output token", learned.output_token_s * 1e3),
        ),
        (
            "token_length",
            format!("{:.2} bytes/token", learned.bytes_per_token),
        ),
        (
            "answer_length",
            format!("{:.0} tokens/answer", learned.output_tokens),
        ),
        ("cache_hits", "cache hits".to_owned()),
    ];
    let sources = &learned.sources;
    let known = quantities
        .iter()
        .filter_map(|(name, text)| Some(format!("{text} ({})", sources.get(*name)?)));
    Vec::from_iter(known).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quantity_has_its_source() {
        let sources = [("prompt_speed", "counters"), ("cache_hits", "presumed")];
        let learned = LearnedView {
            prompt_token_s: 0.000_25,
            sources: sources
                .map(|(name, source)| (name.to_owned(), source.to_owned()))
                .into(),
            ..LearnedView::default()
        };
        assert_eq!(
            line(&learned),
            "0.250 ms/prompt token (counters), cache hits (presumed)"
        );
        assert_eq!(line(&LearnedView::default()), "");
    }
}
