//! Applies any operations to the router in any order, under every policy, and checks it against the naive model of its tests.
//! The model asserts that no request is lost or sent twice, that order and bounds hold, and that no request waits while a
//! replica or a peer region would take it, or waits no longer than the policy allows.
#![no_main]

#[path = "../../../ext-proc/router/tests/router/support/mod.rs"]
mod support;

use arbitrary::{Result, Unstructured};
use isotherm_policies::PolicyName;
use isotherm_router::{End, PeerReport, PromptCost, Tier};
use libfuzzer_sys::fuzz_target;
use support::naive::Naive;
use support::naive::ops::{Op, Reach, Server};
use support::naive::tiers::{PoolRules, RequestTags};

/// The most operations in a run.
const OPS_MAX: usize = 400;
/// The most blocks of a prompt.
const BLOCKS_MAX: usize = 10;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let Ok((policy, tells_times)) = start(&mut input) else {
        return;
    };
    let mut naive = Naive::new(policy, tells_times);
    for _ in 0..OPS_MAX {
        let Ok(op) = op(&mut input) else {
            break;
        };
        naive.apply(&op);
        if input.is_empty() {
            break;
        }
    }
    naive.finish();
});

/// The policy that the run begins with, and whether its responses tell how long they took.
fn start(input: &mut Unstructured<'_>) -> Result<(PolicyName, bool)> {
    Ok((*input.choose(&PolicyName::ALL)?, input.arbitrary()?))
}

fn op(input: &mut Unstructured<'_>) -> Result<Op> {
    Ok(match input.int_in_range(0_u8..=67)? {
        0..=10 => Op::Arrive {
            blocks: blocks(input)?,
            session: input.int_in_range(0..=7)?,
            subset: if input.ratio(1, 5)? {
                let length = input.int_in_range(0..=3)?;
                let which = (0..length).map(|_| input.int_in_range(0..=5));
                Some(which.collect::<Result<_>>()?)
            } else {
                None
            },
            reach: match input.int_in_range(0_u8..=9)? {
                0..=2 => Reach::Home,
                3..=6 => Reach::Regions(Vec::new()),
                7 => {
                    let length = input.int_in_range(0..=3)?;
                    let tried = (0..length).map(|_| peer(input));
                    Reach::Regions(tried.collect::<Result<_>>()?)
                }
                _ => Reach::Forwarded,
            },
            standing: tags(input)?,
        },
        66..=67 => Op::SetRules(rules(input)?),
        11..=18 => Op::Finish {
            which: small(input)?,
            end: *input.choose(&[End::Answered, End::Answered, End::Refused, End::Failed])?,
            served: match input.int_in_range(0_u8..=9)? {
                0 => Server::Stranger,
                1..=2 => Server::Member(small(input)?),
                _ => Server::Unsaid,
            },
            cached_percent: if input.arbitrary()? {
                Some(input.int_in_range(0..=100)?)
            } else {
                None
            },
            ttft_ms: if input.ratio(2, 3)? {
                Some(input.int_in_range(1..=4_000)?)
            } else {
                None
            },
            output_tokens: if input.arbitrary()? {
                Some(input.int_in_range(0..=200)?)
            } else {
                None
            },
        },
        19..=20 => Op::Abort {
            which: small(input)?,
            waiting: input.arbitrary()?,
        },
        21..=26 => Op::Probe {
            which: small(input)?,
            pending: input.int_in_range(0_u32..=2)?.saturating_sub(1),
            tells_all: input.arbitrary()?,
            late_ms: input.int_in_range(0..=300)?,
        },
        27..=29 => Op::ProbeAll,
        30 => Op::ProbeFails(small(input)?),
        31 => Op::Add,
        32 => Op::Remove(small(input)?),
        33 => Op::Drain(small(input)?),
        34..=38 => Op::Sleep {
            ms: if input.ratio(1, 8)? {
                input.int_in_range(400..=12_000)?
            } else {
                input.int_in_range(1..=400)?
            },
        },
        39 => Op::Timeout,
        40 => Op::Breaks(small(input)?),
        41..=47 => Op::PeerSays {
            peer: peer(input)?,
            report: {
                let available = input.int_in_range(0..=2)?;
                PeerReport {
                    available,
                    replicas: available,
                    free_capacity: input.int_in_range(0..=5)?,
                    queue: input.int_in_range(0..=6)?,
                    drain_per_s: input.arbitrary()?,
                    prompt_cost: prompt_cost(input)?,
                    ..PeerReport::default()
                }
            },
            late_ms: if input.ratio(1, 4)? {
                input.int_in_range(0..=800)?
            } else {
                0
            },
            round_trip_ms: input.int_in_range(0..=300)?,
        },
        48..=49 => Op::AddPeer(peer(input)?),
        50 => Op::RemovePeer(peer(input)?),
        51 => Op::LosePeer(peer(input)?),
        52 => Op::Begin(small(input)?),
        64..=65 => Op::Count {
            which: small(input)?,
            tokens: input.int_in_range(0..=4_000)?,
            restarts: input.ratio(1, 10)?,
        },
        53..=54 => Op::Returns(small(input)?),
        55..=57 => Op::FinishAway {
            which: small(input)?,
            end: *input.choose(&[End::Answered, End::Answered, End::Refused, End::Failed])?,
            elsewhere: input.arbitrary()?,
            cached_percent: if input.arbitrary()? {
                Some(input.int_in_range(0..=100)?)
            } else {
                None
            },
        },
        58 => Op::AbortAway(small(input)?),
        59..=61 => Op::Shared {
            to_peer: input.arbitrary()?,
            which: small(input)?,
            blocks: blocks(input)?,
            known: small(input)?,
        },
        62 => Op::AnswersWithoutMetrics(small(input)?),
        _ => Op::Reconfigure {
            policy: small(input)?,
            push: input.int_in_range(0..=4)?,
            lru: input.arbitrary()?,
            bytes_max: input.int_in_range(0..=20_000)?,
            length_max: input.int_in_range(0..=11)?,
            wait_ms: input.int_in_range(1..=5_000)?,
            published: input.arbitrary()?,
        },
    })
}

/// Tier and tenant of a request, budget and deadline.
fn tags(input: &mut Unstructured<'_>) -> Result<RequestTags> {
    let some_ms = |input: &mut Unstructured<'_>| {
        Ok(match input.int_in_range(0_u8..=3)? {
            0 => Some(u64::from(input.int_in_range(0_u16..=9_000)?)),
            1 => Some(u64::MAX),
            _ => None,
        })
    };
    Ok(RequestTags {
        tier: *input.choose(&[
            Tier::InteractiveFast,
            Tier::InteractiveNormal,
            Tier::NonInteractive,
        ])?,
        budget_ms: some_ms(input)?,
        deadline_ms: some_ms(input)?,
        tenant: input.int_in_range(0..=4)?,
    })
}

fn rules(input: &mut Unstructured<'_>) -> Result<PoolRules> {
    Ok(PoolRules {
        has_tiers: input.ratio(4, 5)?,
        order: input.int_in_range(0..=4)?,
        share_percent: if input.ratio(1, 3)? {
            Some(input.int_in_range(0..=100)?)
        } else {
            None
        },
        batch_max: input.int_in_range(0..=5)?,
    })
}

fn blocks(input: &mut Unstructured<'_>) -> Result<Vec<u64>> {
    let length = input.int_in_range(0..=BLOCKS_MAX)?;
    (0..length).map(|_| input.int_in_range(0..=2)).collect()
}

/// A region, of at most four.
fn peer(input: &mut Unstructured<'_>) -> Result<u16> {
    input.int_in_range(0..=3)
}

fn prompt_cost(input: &mut Unstructured<'_>) -> Result<Option<PromptCost>> {
    if !input.ratio(1, 2)? {
        return Ok(None);
    }
    Ok(Some(PromptCost {
        first_token_s: input.arbitrary()?,
        prompt_token_s: input.arbitrary()?,
        others_s: input.arbitrary()?,
        others_token_s: input.arbitrary()?,
    }))
}

/// A small index.
fn small(input: &mut Unstructured<'_>) -> Result<usize> {
    input.int_in_range(0..=255)
}
