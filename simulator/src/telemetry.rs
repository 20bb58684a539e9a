//! Telemetry profiles: the part of the truth that the engines tell the service.
//!
//! A profile is an engine as people run it: the usage in its answers, whether answers are streamed, and its metrics page.
//! Clients, engines and network stay the same, so the difference between two profiles is what the service makes of less.

use core::time::Duration;

use clap::ValueEnum;
use isotherm_engine::model::{Durations, Totals};
use isotherm_router::{EngineCounters, Total};
use serde::Serialize;

use crate::prompt::mix;

/// Of so many sessions, one asks for usage in its streams (`stream_options.include_usage`), where that is left to clients.
const USAGE_SESSIONS: u64 = 4;

/// A telemetry profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Telemetry {
    /// Every answer is streamed, with a time to first token, prompt tokens and cached tokens; the metrics page has gauges.
    #[default]
    Full,
    /// vLLM without flags: no cached tokens, usage where the session asks for it; the metrics page has counters.
    VllmStock,
    /// vLLM that reports usage and cached tokens of every answer, but no cached tokens instead of zero, as older versions.
    VllmFlags,
    /// SGLang with metrics: as vLLM without flags, with SGLang's counters.
    SglangStock,
    /// vLLM without flags, and no client streams: usage without cached tokens, and no time to first token.
    WholeAnswers,
    /// An engine without a metrics page or usage: it answers probes without metrics.
    Opaque,
}

/// Usage and timing of an answer, as the service sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measurement {
    pub(crate) ttft_us: Option<u64>,
    pub(crate) prompt_tokens: Option<u32>,
    pub(crate) cached_tokens: Option<u32>,
    pub(crate) completion_tokens: Option<u32>,
}

impl Telemetry {
    /// Every profile.
    pub const ALL: [Self; 6] = [
        Self::Full,
        Self::VllmStock,
        Self::VllmFlags,
        Self::SglangStock,
        Self::WholeAnswers,
        Self::Opaque,
    ];

    /// Name of the profile, as on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::VllmStock => "vllm-stock",
            Self::VllmFlags => "vllm-flags",
            Self::SglangStock => "sglang-stock",
            Self::WholeAnswers => "whole-answers",
            Self::Opaque => "opaque",
        }
    }

    /// Whether the engines have a metrics page.
    pub const fn has_page(self) -> bool {
        !matches!(self, Self::Opaque)
    }

    /// Whether responses begin with their first token: a whole answer begins when it ends.
    pub const fn has_streams(self) -> bool {
        !matches!(self, Self::WholeAnswers)
    }

    /// Whether the metrics page names the adapters of requests: vLLM's does.
    pub const fn reports_adapters(self) -> bool {
        !matches!(self, Self::SglangStock | Self::Opaque)
    }

    /// The counters of an engine's metrics page, if it has any.
    pub(crate) fn counters(self, totals: &Totals) -> Option<EngineCounters> {
        let tokens = EngineCounters {
            started_ms: None,
            prompt_tokens: Some(count(totals.prompt_tokens)),
            generation_tokens: Some(count(totals.generation_tokens)),
            cache_queries: Some(count(totals.prefix_query_tokens)),
            cache_hits: Some(count(totals.prefix_hit_tokens)),
            ttft: Some(total(totals.first_tokens)),
            ..EngineCounters::default()
        };
        match self {
            Self::Full | Self::Opaque => None,
            Self::SglangStock => Some(tokens),
            Self::VllmStock | Self::VllmFlags | Self::WholeAnswers => Some(EngineCounters {
                prefill: Some(total(totals.prefill)),
                decode: Some(total(totals.decode)),
                queue: Some(total(totals.queued)),
                ..tokens
            }),
        }
    }

    /// The part of a measurement that reaches the service; `session` is the key of the session that sent the request.
    pub(crate) fn visible(self, full: Measurement, session: u64) -> Measurement {
        let cached_tokens = match self {
            Self::Full => full.cached_tokens,
            Self::VllmFlags => full.cached_tokens.filter(|tokens| *tokens > 0),
            _ => None,
        };
        let seen = Measurement {
            cached_tokens,
            ..full
        };
        match self {
            Self::Full | Self::VllmFlags => seen,
            Self::VllmStock | Self::SglangStock if asks_for_usage(session) => seen,
            Self::WholeAnswers => Measurement {
                ttft_us: None,
                ..seen
            },
            Self::VllmStock | Self::SglangStock | Self::Opaque => Measurement {
                ttft_us: full.ttft_us,
                ..Measurement::default()
            },
        }
    }
}

fn count(number: u64) -> f64 {
    number as f64
}

fn total(durations: Durations) -> Total {
    Total {
        seconds: Duration::from_nanos(durations.sum_ns).as_secs_f64(),
        count: count(durations.count),
    }
}

/// Whether a session's client asks for usage in its streams.
const fn asks_for_usage(session: u64) -> bool {
    mix(0x7573_6167_6500_0001, session).is_multiple_of(USAGE_SESSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(cached_tokens: u32) -> Measurement {
        Measurement {
            ttft_us: Some(7),
            prompt_tokens: Some(100),
            cached_tokens: Some(cached_tokens),
            completion_tokens: Some(9),
        }
    }

    #[test]
    fn every_profile_has_its_name_on_the_command_line() {
        for profile in Telemetry::ALL {
            assert_eq!(Telemetry::from_str(profile.as_str(), false), Ok(profile));
        }
        assert_eq!(Telemetry::ALL.len(), Telemetry::value_variants().len());
    }

    #[test]
    fn flags_leave_a_zero_out_and_stock_engines_name_no_cached_token() {
        let cached = |profile: Telemetry, tokens| {
            let seen = (0..40).map(|session| profile.visible(measurement(tokens), session));
            seen.filter_map(|seen| seen.cached_tokens).count()
        };
        assert_eq!(cached(Telemetry::Full, 0), 40);
        assert_eq!(
            (
                cached(Telemetry::VllmFlags, 0),
                cached(Telemetry::VllmFlags, 5)
            ),
            (0, 40)
        );
        for profile in [
            Telemetry::VllmStock,
            Telemetry::SglangStock,
            Telemetry::WholeAnswers,
            Telemetry::Opaque,
        ] {
            assert_eq!(cached(profile, 5), 0, "{profile:?}");
        }
    }

    #[test]
    fn some_sessions_ask_a_stock_engine_for_usage() {
        let seen = (0..4_000).map(|key| Telemetry::VllmStock.visible(measurement(5), key));
        let with_usage = seen.filter(|seen| seen.prompt_tokens.is_some()).count();
        assert!((800..1_200).contains(&with_usage), "{with_usage}");
        let blind = Telemetry::Opaque.visible(measurement(5), 1);
        assert_eq!(
            (blind.ttft_us, blind.prompt_tokens),
            (Some(7), None),
            "a stream shows its first token without usage"
        );
        let whole = Telemetry::WholeAnswers.visible(measurement(5), 1);
        assert_eq!((whole.ttft_us, whole.prompt_tokens), (None, Some(100)));
    }

    #[test]
    fn stock_engines_have_counters_and_sglang_names_no_phases() {
        let totals = Totals {
            prefix_hit_tokens: 640,
            ..Totals::default()
        };
        let of = |profile: Telemetry| profile.counters(&totals);
        for profile in [Telemetry::Full, Telemetry::Opaque] {
            assert_eq!(of(profile), None);
        }
        for profile in [Telemetry::VllmStock, Telemetry::SglangStock] {
            assert_eq!(of(profile).unwrap().cache_hits, Some(640.0));
        }
        assert!(of(Telemetry::VllmStock).unwrap().prefill.is_some());
        assert!(of(Telemetry::SglangStock).unwrap().prefill.is_none());
    }
}
