//! The objectives of a request: its tier, its budget for the first token, and its deadline.
//!
//! The first source with a readable value gives each objective. A trusted peer has read the client's own headers before, and its
//! headers say what is left of them; so they come before every source.

use isotherm_fingerprint::{Extraction, names, objectives};

use super::source::{self, RankedValue};
use crate::RequestConfig;
use crate::config::Source;
use crate::headers::{self, HeaderEdit, Headers};

#[derive(Clone, Debug, Default)]
pub(super) struct Objectives {
    tier: RankedValue<&'static str>,
    ttft_ms: RankedValue<u32>,
    deadline_unix_ms: RankedValue<u64>,
    /// The time left until the deadline, as a trusted peer states it.
    deadline_ms_of_peer: Option<u32>,
}

impl Objectives {
    /// Reads the objectives among headers and cookies.
    pub(super) fn read(config: &RequestConfig, headers: &Headers) -> Self {
        let mut found = Self {
            tier: source::best(&config.tier, headers, objectives::tier),
            ttft_ms: source::best(&config.ttft_ms, headers, objectives::ttft_ms),
            deadline_unix_ms: source::best(&config.deadline, headers, objectives::deadline_unix_ms),
            deadline_ms_of_peer: None,
        };
        if config.trusted_origin {
            let of_peer = |name| headers::get(headers, name);
            found
                .tier
                .prefer(of_peer(names::TIER).and_then(objectives::tier));
            let ttft_ms = of_peer(names::TTFT_MS).and_then(objectives::parse_ttft_ms);
            found.ttft_ms.prefer(ttft_ms);
            let left_ms = of_peer(names::DEADLINE).and_then(objectives::parse_deadline_ms);
            found.deadline_ms_of_peer = left_ms;
        }
        found
    }

    /// Adds the headers of the objectives, with those in the body. `now_unix_ms` is called only for a deadline.
    pub(super) fn write(
        self,
        edits: &mut Vec<HeaderEdit>,
        config: &RequestConfig,
        in_body: Option<&Extraction>,
        now_unix_ms: impl FnOnce() -> u64,
    ) {
        let tier = ranked(&config.tier, in_body.and_then(|found| found.tier));
        let ttft_ms = ranked(&config.ttft_ms, in_body.and_then(|found| found.ttft_ms));
        let deadline = in_body.and_then(|found| found.deadline_unix_ms);
        let deadline = ranked(&config.deadline, deadline);
        let left_ms = self.deadline_ms_of_peer.or_else(|| {
            let deadline = self.deadline_unix_ms.or_in_body(deadline)?;
            Some(objectives::left_ms(deadline, now_unix_ms()))
        });
        let ms = |name, ms| HeaderEdit::set(name, objectives::encode_ms(ms));
        let tier = self.tier.or_in_body(tier);
        let ttft_ms = self.ttft_ms.or_in_body(ttft_ms);
        edits.extend(tier.map(|tier| HeaderEdit::set(names::TIER, tier)));
        edits.extend(ttft_ms.map(|budget| ms(names::TTFT_MS, budget)));
        edits.extend(left_ms.map(|left| ms(names::DEADLINE, left)));
    }
}

/// A value in the body with the rank of its source, instead of the index among the members.
fn ranked<T>(sources: &[Source], in_body: Option<(usize, T)>) -> Option<(usize, T)> {
    let (member, value) = in_body?;
    Some((source::rank_of_body(sources, member)?, value))
}
