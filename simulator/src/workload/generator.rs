//! Workloads by name.

use core::time::Duration;

use super::agents::Agents;
use super::chat::Chat;
use super::content::ContentMix;
use super::drift::Drift;
use super::reasoning::{ReasoningChat, bimodal};
use super::replay::{PlaybackRate, Replay, scaled};
use super::tree_of_thoughts::TreeOfThoughts;
use super::{OpenLoop, Workload, adapters, bursty, conversation, diurnal, shared_prefix, tools};

/// A configured generator of one kind or another.
#[derive(Clone, Debug, PartialEq)]
pub enum Generator {
    /// The twin of the conversation trace, replayed.
    Conversation {
        /// Length of the trace in seconds.
        duration_s: f64,
        /// How it is played.
        replay: Replay,
    },
    /// People who chat.
    Chat(Chat),
    /// Trees of thoughts.
    TreeOfThoughts(TreeOfThoughts),
    /// Requests at a rate.
    Open(OpenKind, OpenLoop),
    /// Users who send bursts; a multiple of the usual length.
    Bursty(f64),
    /// Regions whose day comes at different times; a multiple of the usual length.
    Diurnal(f64),
    /// A workload with contents of several densities.
    Mixed {
        /// The workload.
        of: Box<Self>,
        /// Contents of the conversations.
        mix: ContentMix,
    },
    /// People who talk to a thinking model.
    Reasoning(ReasoningChat),
    /// Programs of agents with sub-agents.
    Agents(Agents),
    /// A load and a mix that change.
    Drift(Drift),
}

/// Kinds of requests that come at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenKind {
    /// Agents that call tools.
    Tools,
    /// Short classifications and long thoughts.
    Bimodal,
    /// Requests for adapters.
    Adapters,
    /// Groups of prompts behind long prefixes.
    SharedPrefix,
}

/// The kinds of workloads, with what they are.
#[rustfmt::skip]
pub const NAMES: [(&str, &str); 16] = [
    ("conversation", "long chats, as in Mooncake's conversation trace; open loop"),
    ("chat-wildchat", "people who chat, with the sharing of WildChat; closed loop, three regions"),
    ("chat-arena", "people who chat, with the sharing of Chatbot Arena; closed loop, three regions"),
    ("tot-2", "trees of thoughts with two branches; closed loop, three regions"),
    ("tot-mixed", "trees of thoughts with four branches in one region and two in the others; closed loop"),
    ("tools", "agents with two very hot system prompts, as in Mooncake's Tool&Agent trace; open loop"),
    ("bursty", "single users who send bursts, over a background of others; open loop"),
    ("diurnal", "conversations over a day in three regions; open loop"),
    ("texts", "long chats in English, code, JSON and Chinese, which differ in bytes per token; open loop"),
    ("images", "people who chat, two in five about an image; closed loop"),
    ("reasoning", "people who talk to a model that thinks for thousands of tokens; closed loop"),
    ("bimodal", "classifications of a few tokens and thoughts of thousands in one pool; open loop"),
    ("adapters", "requests for two dozen adapters on replicas with four slots; open loop"),
    ("shared-prefix", "groups of five prompts behind prefixes of 6,000 tokens, as inference-perf plays them; open loop"),
    ("agents", "programs of agents with sub-agents, tools and contexts of up to 100,000 tokens; closed loop"),
    ("drift", "labels, documents and essays at a rate and a mix that change every few minutes; open loop"),
];

/// The conversation twin at this rate: the first 4,000 requests as DualMap plays them.
pub fn conversation(requests_per_s: f64) -> Generator {
    Generator::Conversation {
        // Longer than 4,000 requests take.
        duration_s: 1_500.0,
        replay: Replay::as_dual_map(requests_per_s),
    }
}

/// Agents that call tools, at this rate.
pub fn tools_at(requests_per_s: f64) -> Generator {
    let of = OpenLoop {
        requests_per_s,
        ..tools::USUAL
    };
    Generator::Open(OpenKind::Tools, of)
}

/// Requests of a kind at a rate, of which a tenth only warms the caches.
pub fn open(kind: OpenKind, requests: usize, requests_per_s: f64) -> Generator {
    let of = OpenLoop {
        requests,
        requests_per_s,
        warmup_requests: requests / 10,
    };
    Generator::Open(kind, of)
}

impl Generator {
    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        match self {
            Self::Conversation { duration_s, replay } => {
                let twin = conversation::generate(*duration_s, seed);
                replay.workload("conversation", &twin)
            }
            Self::Chat(chat) => chat.generate(seed),
            Self::TreeOfThoughts(trees) => trees.generate(seed),
            Self::Open(OpenKind::Tools, of) => tools::generate(of, seed),
            Self::Open(OpenKind::Bimodal, of) => bimodal(of, seed),
            Self::Open(OpenKind::Adapters, of) => adapters::generate(of, seed),
            Self::Open(OpenKind::SharedPrefix, of) => shared_prefix::generate(of, seed),
            Self::Bursty(scale) => bursty::generate(*scale, seed),
            Self::Diurnal(scale) => diurnal::generate(*scale, seed),
            Self::Mixed { of, mix } => mix.applied(of.generate(seed), seed),
            Self::Reasoning(reasoning) => reasoning.generate(seed),
            Self::Agents(agents) => agents.generate(seed),
            Self::Drift(drift) => drift.generate(seed),
        }
    }

    /// This generator at another rate, requests a second; `None` for closed loops, which have no rate, and for generators that
    /// are made of several rates.
    pub fn at_rate(mut self, requests_per_s: f64) -> Option<Self> {
        match &mut self {
            Self::Conversation { replay, .. } => replay.pace = PlaybackRate::Rate(requests_per_s),
            Self::Open(_, of) => of.requests_per_s = requests_per_s,
            Self::Mixed { of, .. } => **of = of.clone().at_rate(requests_per_s)?,
            Self::Chat(_)
            | Self::TreeOfThoughts(_)
            | Self::Bursty(_)
            | Self::Diurnal(_)
            | Self::Agents(_)
            | Self::Drift(_)
            | Self::Reasoning(_) => return None,
        }
        Some(self)
    }

    /// Number of regions with clients.
    pub fn regions(&self) -> usize {
        match self {
            Self::Conversation { .. }
            | Self::Open(..)
            | Self::Bursty(_)
            | Self::Reasoning(_)
            | Self::Agents(_)
            | Self::Drift(_) => 1,
            Self::Mixed { of, .. } => of.regions(),
            Self::Chat(chat) => chat.clients.len(),
            Self::TreeOfThoughts(trees) => trees.regions.len(),
            Self::Diurnal(_) => diurnal::REGIONS.len(),
        }
    }

    /// This generator with its length multiplied by `scale`, at the same load.
    pub fn scaled(mut self, scale: f64) -> Self {
        let count = |requests: &mut usize| *requests = scaled(*requests, scale);
        let length = |of: &mut Duration| {
            *of = Duration::try_from_secs_f64(of.as_secs_f64() * scale).unwrap_or(*of);
        };
        match &mut self {
            Self::Conversation { duration_s, replay } => {
                *duration_s *= scale;
                replay.first.iter_mut().for_each(count);
                count(&mut replay.warmup_requests);
            }
            Self::Chat(chat) => length(&mut chat.duration),
            Self::TreeOfThoughts(trees) => length(&mut trees.duration),
            Self::Open(_, of) => {
                count(&mut of.requests);
                count(&mut of.warmup_requests);
            }
            Self::Bursty(times) | Self::Diurnal(times) => *times *= scale,
            Self::Mixed { of, .. } => **of = of.clone().scaled(scale),
            Self::Reasoning(reasoning) => length(&mut reasoning.duration),
            Self::Agents(agents) => {
                length(&mut agents.duration);
                count(&mut agents.warmup_requests);
                length(&mut agents.arrival);
            }
            Self::Drift(drift) => {
                length(&mut drift.phase);
                count(&mut drift.warmup_requests);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::by_name;
    use super::*;

    #[test]
    fn every_name_is_a_workload_that_repeats_itself_and_changes_with_the_seed() {
        for (name, _) in NAMES {
            let generator = by_name(name, 0.1).unwrap();
            let (workload, again) = (generator.generate(1), generator.generate(1));
            assert_eq!(workload.name, name);
            assert!(workload.requests() > 10, "{name}");
            assert!(
                workload.warmup_requests * 2 < workload.requests(),
                "{name}: {} of {} only warm the caches",
                workload.warmup_requests,
                workload.requests()
            );
            assert_eq!(format!("{workload:?}"), format!("{again:?}"), "{name}");
            assert_ne!(
                format!("{workload:?}"),
                format!("{:?}", generator.generate(2)),
                "{name}"
            );
            let regions = workload.sessions.iter().map(|session| session.region).max();
            assert_eq!(
                regions.map(|most| most + 1),
                Some(generator.regions()),
                "{name}"
            );
        }
        assert_eq!(by_name("chat", 1.0), None);
    }

    #[test]
    fn steps_and_sessions_come_after_the_steps_and_sessions_they_wait_for() {
        for (name, _) in NAMES {
            let workload = by_name(name, 0.1).unwrap().generate(1);
            for (at, session) in workload.sessions.iter().enumerate() {
                assert!(session.follows.is_none_or(|before| before < at), "{name}");
                for (step, what) in session.steps.iter().enumerate() {
                    assert!(what.after.is_none_or(|before| before < step), "{name}");
                    assert!(what.prompt.tokens() > 0 && what.output_tokens > 0, "{name}");
                }
            }
        }
    }
}
