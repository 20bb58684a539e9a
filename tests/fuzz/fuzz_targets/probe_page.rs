//! Any bytes as a page of a replica: the parsers of all engines survive, and what they report is within its bounds.
#![no_main]

use isotherm_ext_proc::fuzzing::{parse_metrics_page, parse_models_page};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|page: &[u8]| {
    for (load, counters) in parse_metrics_page(page) {
        assert!(
            load.kv_usage
                .is_none_or(|share| (0.0..=1.0).contains(&share)),
            "{load:?}"
        );
        let Some(counters) = counters else { continue };
        let tokens = [
            counters.prompt_tokens,
            counters.generation_tokens,
            counters.cache_queries,
            counters.cache_hits,
        ];
        let times = [
            counters.prefill,
            counters.decode,
            counters.queue,
            counters.ttft,
        ];
        let times = times
            .into_iter()
            .flatten()
            .flat_map(|total| [total.seconds, total.count]);
        assert!(
            tokens
                .into_iter()
                .flatten()
                .chain(times)
                .all(|number| number.is_finite() && number >= 0.0),
            "{counters:?}"
        );
    }
    let names = parse_models_page(page).unwrap_or_default();
    assert!(names.is_sorted() && names.iter().all(|name| !name.is_empty()));
});
