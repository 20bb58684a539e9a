//! The sections about tiers and the order of service: as written, and as resolved.
//!
//! Without `tiers` a pool ignores the objectives of requests. An option that then has no effect is a mistake: its author expects one.

use std::time::Duration;

use isotherm_router::{BatchTier, QueueLimits, QueueOrder, TierRules};

use super::decimal::{Decimal, decimal};
use super::errors::Reader;
use super::kind::{choice, millis, optional};
use super::section::section;

/// A tenth of the requests that may wait may be of the tier `non-interactive`.
const BATCH_LENGTH_DIVISOR: usize = 10;

section! {
    /// `pools[].tiers`.
    pub(super) struct RawTiers {
        /// The objective for the time to first token of the tier `interactive-fast`, for requests without a budget of their own: a user waits, and expects an answer at once. A second of its delay weighs as much as four of the tier `interactive-normal`, which has the pool's own objective and the requests without a tier.
        fast_ttft_slo as "fast_ttft_slo_ms": Option<Duration> = None, optional(millis(1..=3_600_000)) => "1000, or that of the pool if it is shorter";
        /// The share of the memory for KV caches in use below which a request of the tier `non-interactive` may start: one whenever a request ends, or a second passes, and two below three quarters of this share. Until then it waits at a gate, but no longer when less than ten minutes are left until its deadline.
        batch_release_below as "batch_release_below": Decimal = Decimal::nearest(BatchTier::RELEASE_BELOW), decimal(0.0..=1.0);
        /// The longest wait of a request of the tier `non-interactive`; the service then rejects the request with status 429, and the client tries again. Keep it below `max_message_timeout` of Envoy's filter.
        batch_wait_max as "batch_wait_ms_max": Duration = BatchTier::default().wait_max, millis(0..=600_000);
    }
}

/// The order of service, as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RawOrder {
    #[default]
    Auto,
    Fcfs,
    Edf,
    PriorityFirst,
    Dpa,
}

impl RawOrder {
    const ALL: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("fcfs", Self::Fcfs),
        ("edf", Self::Edf),
        ("priority_first", Self::PriorityFirst),
        ("dpa", Self::Dpa),
    ];

    pub(super) fn kind() -> super::kind::Kind<Self> {
        choice(Self::ALL)
    }
}

/// Resolves `pools[].tiers` of a pool with this objective and these bounds of its queue.
pub(super) fn resolve(raw: &RawTiers, ttft_slo: Duration, queue: &QueueLimits) -> TierRules {
    let mut rules = TierRules::new(ttft_slo, queue.wait_max);
    if let Some(ttft_slo) = raw.fast_ttft_slo {
        rules.fast.ttft_slo = ttft_slo;
    }
    rules.batch = BatchTier {
        length_max: queue.length_max / BATCH_LENGTH_DIVISOR,
        wait_max: raw.batch_wait_max,
        ..BatchTier::releasing_below(raw.batch_release_below.to_f64())
    };
    rules
}

/// Resolves the order of service.
pub(super) fn resolve_order(
    order: RawOrder,
    has_tiers: bool,
    option: &str,
    reader: &mut Reader,
) -> QueueOrder {
    let option_of_order = format!("{option}.queue.order");
    let name = RawOrder::ALL.iter().find(|(_, known)| *known == order);
    let name = name.map_or("auto", |(name, _)| name);
    let needs_tiers = !matches!(order, RawOrder::Auto | RawOrder::Fcfs);
    if needs_tiers && !has_tiers && reader.is_valid(&format!("{option}.tiers")) {
        let message = format!(
            "`{name}` has no effect without `tiers`, which give requests their objectives: add `tiers: {{}}` to the pool"
        );
        reader.error(&option_of_order, message);
    }
    match order {
        RawOrder::Auto => QueueOrder::Auto,
        RawOrder::Fcfs => QueueOrder::Fcfs,
        RawOrder::Edf => QueueOrder::Edf,
        RawOrder::PriorityFirst => QueueOrder::PriorityFirst,
        RawOrder::Dpa => QueueOrder::Dpa {
            expired: QueueOrder::DPA_EXPIRED,
            urgent: QueueOrder::DPA_URGENT,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn pool(text: &str) -> isotherm_router::RouterConfig {
        let config = config::parse(&format!("pools: [{{ model: m, {text} }}]")).unwrap();
        config.pools[0].router.clone()
    }

    fn mistakes(text: &str) -> String {
        let errors = config::parse(&format!("pools:\n- model: m\n{text}")).unwrap_err();
        errors.to_string()
    }

    #[test]
    fn an_empty_section_takes_every_default() {
        assert_eq!(pool("aliases: []").tiers, None);
        let rules = TierRules::new(Duration::from_secs(5), Duration::from_secs(30));
        assert_eq!(pool("tiers: {}").tiers, Some(rules));
        assert_eq!(pool("tiers: {}").queue.order, QueueOrder::Auto);
    }

    #[test]
    fn every_option_arrives_where_it_belongs() {
        let router = pool(
            "ttft_slo_ms: 500, queue: { length_max: 90, wait_ms_max: 7000, order: dpa }, \
             tiers: { fast_ttft_slo_ms: 100, batch_release_below: 0.6, batch_wait_ms_max: 4 }",
        );
        let tiers = router.tiers.unwrap();
        assert_eq!(tiers.fast.ttft_slo, Duration::from_millis(100));
        assert_eq!(tiers.normal.ttft_slo, Duration::from_millis(500));
        for tier in [tiers.fast, tiers.normal] {
            assert_eq!(tier.wait_max, Duration::from_secs(7));
        }
        assert_eq!(
            tiers.batch,
            BatchTier {
                length_max: 9,
                wait_max: Duration::from_millis(4),
                ..BatchTier::releasing_below(0.6)
            }
        );
        assert!(matches!(router.queue.order, QueueOrder::Dpa { .. }));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = "  tiers:
    fast_ttft_slo_ms: 0
    batch_release_below: 40
  queue:
    order: soon
  engine_priority: tgi
";
        let errors = mistakes(text);
        for part in [
            "line 4, column 23: pools[0].tiers.fast_ttft_slo_ms: expected milliseconds, 1 to 3600000",
            "line 5, column 26: pools[0].tiers.batch_release_below: expected number, 0 to 1",
            "line 7, column 12: pools[0].queue.order: `soon` is not one of `auto`, `fcfs`",
            "line 8, column 20: pools[0].engine_priority: `tgi` is not one of `off`, `vllm`, `sglang`",
        ] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
    }

    #[test]
    fn a_choice_of_off_needs_no_quotes() {
        let engine = |text: &str| {
            let text = format!("pools: [{{ model: m, engine_priority: {text} }}]");
            config::parse(&text).map(|config| config.pools[0].engine_priority)
        };
        for off in ["off", "'off'"] {
            assert_eq!(engine(off), Ok(config::EnginePriority::Off));
        }
        assert_eq!(engine("vllm"), Ok(config::EnginePriority::Vllm));
        assert!(engine("on").is_err());
    }

    #[test]
    fn an_option_without_effect_is_a_mistake() {
        let errors = mistakes("  queue: { order: edf }\n");
        let part = "pools[0].queue.order: `edf` has no effect without `tiers`";
        assert!(errors.contains(part), "{errors}");
        assert_eq!(pool("queue: { order: fcfs }").queue.order, QueueOrder::Fcfs);
    }
}
