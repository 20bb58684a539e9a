//! Shared by the tests of the core: prompts as chains, and a simulated engine.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests: each program uses its part of it, and stops where something is wrong"
)]

pub mod engine;
pub mod home;
pub mod naive;
pub mod pool;
pub mod script;
pub mod siblings;
pub mod world;

use std::sync::Arc;

use isotherm_fingerprint::{BlockHash, Fingerprint};
use isotherm_policies::PolicyName;
use isotherm_router::{PeerId, Request, RequestId, Scope, SessionKey, Tier};

/// Whether a free replica takes the oldest request that it may serve under this policy, so that no request waits beside a
/// free replica. Other policies let a request wait for a warm replica, within bounds.
pub const fn serves_in_order(policy: PolicyName) -> bool {
    match policy {
        PolicyName::Isotherm | PolicyName::DualMap => false,
        PolicyName::PrefixTree
        | PolicyName::CacheAware
        | PolicyName::Preble
        | PolicyName::MinTtft
        | PolicyName::ConsistentHash
        | PolicyName::RoundRobin
        | PolicyName::Random
        | PolicyName::LeastOutstanding
        | PolicyName::PowerOfTwo => true,
    }
}

/// Bytes between two blocks.
pub const BLOCK_BYTES: u32 = 256;

/// A prompt from the numbers of its blocks: equal starts give equal chains.
pub fn prompt(blocks: &[u64]) -> Arc<Fingerprint> {
    let mut hash = 0x1234_5678_9abc_def0_u64;
    let blocks: Vec<BlockHash> = (1..)
        .zip(blocks)
        .map(|(i, block)| {
            hash = (hash ^ block)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29);
            BlockHash {
                hash,
                end_bytes: i * BLOCK_BYTES,
            }
        })
        .collect();
    let total = u32::try_from(blocks.len()).unwrap() * BLOCK_BYTES;
    Arc::new(Fingerprint::new(blocks, total).unwrap())
}

/// A request with this prompt.
pub fn request(id: u64, session: u64, blocks: &[u64]) -> Request {
    Request {
        id: RequestId(id),
        fingerprint: prompt(blocks),
        session: Some(SessionKey(session)),
        tier: Tier::default(),
        ttft_slo: None,
        deadline: None,
        prompt_tokens: u32::try_from(blocks.len()).unwrap() * BLOCK_BYTES / 4,
        output_tokens_max: None,
        previous_response: None,
        subset: None,
        adapter: None,
        scope: Scope::default(),
        tenant: isotherm_router::TenantId::default(),
        tells_start: false,
        api: None,
        wants_stream: true,
    }
}

/// A request that may be forwarded to any peer that it has not tried.
pub fn traveller(id: u64, session: u64, blocks: &[u64], tried: &[u16]) -> Request {
    Request {
        scope: Scope::Regions {
            tried: tried.iter().copied().map(PeerId).collect(),
        },
        ..request(id, session, blocks)
    }
}

/// A request forwarded from another region.
pub fn forwarded_request(id: u64, session: u64, blocks: &[u64]) -> Request {
    Request {
        scope: Scope::Forwarded,
        ..request(id, session, blocks)
    }
}
