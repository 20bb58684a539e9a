//! The sections about tiers and the order of service: as written, and as resolved.
//!
//! Without `tiers` a pool ignores the objectives of requests. An option that then has no effect is a mistake: its author expects one.

use std::time::Duration;

use isotherm_router::{BatchTier, InteractiveTier, QueueOrder, TierRules};

use super::decimal::{Decimal, decimal};
use super::errors::Reader;
use super::kind::{choice, list, millis, number, optional, section as section_kind};
use super::section::section;

section! {
    /// `pools[].tiers`.
    pub(super) struct RawTiers {
        /// Requests of the tier `interactive-fast`: a user waits, and expects an answer at once.
        fast as "interactive_fast": RawInteractiveTier = RawInteractiveTier::default(), section_kind();
        /// Requests of the tier `interactive-normal`, and requests without a tier.
        normal as "interactive_normal": RawNormalTier = RawNormalTier::default(), section_kind();
        /// Requests of the tier `non-interactive`. They wait at a gate until the pool has capacity to spare.
        batch as "non_interactive": RawBatchTier = RawBatchTier::default(), section_kind();
    }
}

section! {
    /// `pools[].tiers.interactive_fast`.
    pub(super) struct RawInteractiveTier {
        /// The objective for the time to first token, for requests without a budget of their own.
        ttft_slo as "ttft_slo_ms": Option<Duration> = None, optional(millis(1..=3_600_000)) => "1000, or that of the pool if it is shorter";
        /// The weight of a second of delay, next to the other tier.
        weight as "weight": Decimal = Decimal::nearest(FAST_WEIGHT), decimal(0.01..=1_000.0);
        /// The longest wait; the service then rejects the request with status 503. Keep it below `max_message_timeout` of Envoy's filter.
        wait_max as "wait_ms_max": Option<Duration> = None, optional(millis(0..=600_000)) => "that of `queue`";
    }
}

/// The default weight of the fast tier.
const FAST_WEIGHT: f64 = 4.0;

section! {
    /// `pools[].tiers.interactive_normal`.
    pub(super) struct RawNormalTier {
        /// The objective for the time to first token, for requests without a budget of their own.
        ttft_slo as "ttft_slo_ms": Option<Duration> = None, optional(millis(1..=3_600_000)) => "that of the pool";
        /// The weight of a second of delay, next to the other tier.
        weight as "weight": Decimal = Decimal::nearest(1.0), decimal(0.01..=1_000.0);
        /// The longest wait; the service then rejects the request with status 503. Keep it below `max_message_timeout` of Envoy's filter.
        wait_max as "wait_ms_max": Option<Duration> = None, optional(millis(0..=600_000)) => "that of `queue`";
    }
}

section! {
    /// `pools[].tiers.non_interactive`.
    pub(super) struct RawBatchTier {
        /// Two shares of the memory for KV caches in use: below the first, each signal lets one request start, and below the second, two.
        release_below as "release_below": Vec<Decimal> = BatchTier::default().release_below.map(Decimal::nearest).to_vec(), list(decimal(0.0..=1.0), 2);
        /// The time between two signals, if no request ends meanwhile.
        signal as "signal_ms": Duration = BatchTier::default().signal_interval, millis(10..=60_000);
        /// A request is promoted when less than this is left until its deadline: it then counts as `interactive-normal`.
        promote_left as "promote_left_ms": Duration = BatchTier::default().promote_left, millis(0..=86_400_000);
        /// The share of all dispatches that these requests get whatever the memory in use.
        share_min as "share_min": Decimal = Decimal::nearest(BatchTier::default().share_min), decimal(0.0..=1.0);
        /// The most requests that wait; the service rejects further ones with status 429.
        len_max as "length_max": usize = BatchTier::default().length_max, number("number", 0..=1_000_000);
        /// The longest wait; the service then rejects the request with status 429, and the client tries again. Keep it below `max_message_timeout` of Envoy's filter.
        wait_max as "wait_ms_max": Duration = BatchTier::default().wait_max, millis(0..=600_000);
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

/// Resolves `pools[].tiers` of a pool with this objective and this longest wait.
pub(super) fn resolve(
    raw: Option<&RawTiers>,
    ttft_slo: Duration,
    wait_max: Duration,
    option: &str,
    reader: &mut Reader,
) -> Option<TierRules> {
    let raw = raw?;
    let rules = TierRules::new(ttft_slo, wait_max);
    let batch = format!("{option}.tiers.non_interactive");
    Some(TierRules {
        fast: InteractiveTier {
            ttft_slo: raw.fast.ttft_slo.unwrap_or(rules.fast.ttft_slo),
            weight: raw.fast.weight.to_f64(),
            wait_max: raw.fast.wait_max.unwrap_or(wait_max),
        },
        normal: InteractiveTier {
            ttft_slo: raw.normal.ttft_slo.unwrap_or(ttft_slo),
            weight: raw.normal.weight.to_f64(),
            wait_max: raw.normal.wait_max.unwrap_or(wait_max),
        },
        batch: BatchTier {
            release_below: release_below(&raw.batch.release_below, &batch, reader),
            signal_interval: raw.batch.signal,
            promote_left: raw.batch.promote_left,
            share_min: raw.batch.share_min.to_f64(),
            length_max: raw.batch.len_max,
            wait_max: raw.batch.wait_max,
        },
    })
}

fn release_below(shares: &[Decimal], section: &str, reader: &mut Reader) -> [f64; 2] {
    let option = format!("{section}.release_below");
    let expected = "two shares are needed, the larger one first, such as [0.40, 0.30]";
    match shares {
        [one, two] if one >= two => return [one.to_f64(), two.to_f64()],
        _ if !reader.is_valid(&option) => {}
        [one, two] => reader.error(&option, format!("{one} is less than {two}: {expected}")),
        other => reader.error(&option, format!("{} entries: {expected}", other.len())),
    }
    BatchTier::default().release_below
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
            "ttft_slo_ms: 500, queue: { wait_ms_max: 7000, order: dpa }, \
             tiers: { interactive_fast: { ttft_slo_ms: 100, weight: 2.5, wait_ms_max: 1 }, \
             interactive_normal: { weight: 0.5 }, \
             non_interactive: { release_below: [0.7, 0.4], signal_ms: 50, promote_left_ms: 3, share_min: 0.1, \
             length_max: 9, wait_ms_max: 4 } }",
        );
        let tiers = router.tiers.unwrap();
        assert_eq!(tiers.fast.ttft_slo, Duration::from_millis(100));
        assert_eq!((tiers.fast.weight, tiers.normal.weight), (2.5, 0.5));
        assert_eq!(tiers.fast.wait_max, Duration::from_millis(1));
        // The normal tier has the pool's own values.
        assert_eq!(tiers.normal.ttft_slo, Duration::from_millis(500));
        assert_eq!(tiers.normal.wait_max, Duration::from_secs(7));
        assert_eq!(tiers.batch.release_below, [0.7, 0.4]);
        assert_eq!(tiers.batch.signal_interval, Duration::from_millis(50));
        assert_eq!(tiers.batch.promote_left, Duration::from_millis(3));
        assert_eq!((tiers.batch.share_min, tiers.batch.length_max), (0.1, 9));
        assert_eq!(tiers.batch.wait_max, Duration::from_millis(4));
        assert!(matches!(router.queue.order, QueueOrder::Dpa { .. }));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let text = "  tiers:
    interactive_fast: { weight: 0 }
    non_interactive:
      release_below: [0.4, 0.6]
      share_min: 2
  queue:
    order: soon
  engine_priority: tgi
";
        let errors = mistakes(text);
        for part in [
            "line 4, column 33: pools[0].tiers.interactive_fast.weight: expected number, 0.01 to 1000",
            "line 6, column 22: pools[0].tiers.non_interactive.release_below: 0.4 is less than 0.6",
            "line 7, column 18: pools[0].tiers.non_interactive.share_min",
            "line 9, column 12: pools[0].queue.order: `soon` is not one of `auto`, `fcfs`",
            "line 10, column 20: pools[0].engine_priority: `tgi` is not one of `off`, `vllm`, `sglang`",
        ] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
        let errors = mistakes("  tiers: { non_interactive: { release_below: [0.5] } }\n");
        assert!(
            errors.contains("1 entries: two shares are needed"),
            "{errors}"
        );
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
