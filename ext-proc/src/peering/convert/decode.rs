//! From the wire's messages to the program's, with every check.

use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_planner::{AdoptedPlan, DemandSums, Hold, RegionRow};
use isotherm_regions::Heartbeat;
use isotherm_router::{PeerReport, PromptCost, TenantCharge, TenantId, Time};

use super::{BLOCKS_MAX, NAME_BYTES_MAX, PLACEMENTS_MAX, POOLS_MAX, REPLICAS_MAX};
use crate::peering::message::Message;
use crate::peering::scaling_share::{PoolShare, ScalingShare};
use crate::peering::wire::{self, Envelope, Payload};
use crate::pool::{SharedPlacement, SharedTarget};

/// The most work of one charge, in microseconds: 30 days.
const CHARGE_US_MAX: u64 = 30 * 86_400 * 1_000_000;

/// Why a message is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a name is empty or longer than {NAME_BYTES_MAX} bytes")]
    Name,
    #[error("more than {max} {of}")]
    Many { of: &'static str, max: usize },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the drain rate is negative or not finite")]
    Rate,
    #[error("the cost of a prompt is negative or not finite")]
    Cost,
    #[error("a figure of the demand is negative or not finite")]
    Demand,
    #[error("the utilisation is negative or not finite")]
    Utilisation,
    #[error("a tenant is charged more than {CHARGE_US_MAX} microseconds at once")]
    Charge,
    #[error("the number of block hashes differs from the number of block ends")]
    Blocks,
    #[error("the address of a replica is not ip:port")]
    Address,
}

/// The program's message; `None` for an empty message and for a kind that this version does not know.
/// Fails when the message is not valid.
pub(crate) fn decode(envelope: Envelope) -> Result<Option<Message>, DecodeError> {
    Ok(Some(match envelope.payload {
        None => return Ok(None),
        Some(Payload::Ping(ping)) => Message::Ping { nonce: ping.nonce },
        Some(Payload::Heartbeat(message)) => Message::Heartbeat(heartbeat(message)?),
        Some(Payload::Placements(message)) => {
            let placements = bounded(message.placements, PLACEMENTS_MAX, "placements")?;
            Message::Placements(placements.map(placement).collect::<Result<_, _>>()?)
        }
        Some(Payload::Scaling(message)) => Message::Scaling(Arc::new(scaling(message)?)),
    }))
}

fn heartbeat(message: wire::Heartbeat) -> Result<Heartbeat, DecodeError> {
    let pools = bounded(message.pools, POOLS_MAX, "pools")?.map(pool);
    Ok(Heartbeat {
        nonce: message.nonce,
        version: truncated(message.software_version).into(),
        has_gateway: message.has_gateway,
        pools: pools.collect::<Result<_, _>>()?,
    })
}

fn pool(message: wire::PoolReport) -> Result<(Arc<str>, PeerReport), DecodeError> {
    let is_valid = |number: f32| number.is_finite() && number >= 0.0;
    if !is_valid(message.drain_per_s) {
        return Err(DecodeError::Rate);
    }
    let prompt_cost = message.prompt_cost.map(|cost| PromptCost {
        first_token_s: cost.first_token_s,
        prompt_token_s: cost.prompt_token_s,
        others_s: cost.others_s,
        others_token_s: cost.others_token_s,
    });
    if prompt_cost.is_some_and(|cost| !cost.parts().into_iter().all(is_valid)) {
        return Err(DecodeError::Cost);
    }
    if !message.utilisation.is_none_or(is_valid) {
        return Err(DecodeError::Utilisation);
    }
    let report = PeerReport {
        available: message.available,
        replicas: message.replicas,
        free_capacity: message.free_capacity,
        queue: message.queue,
        drain_per_s: message.drain_per_s,
        prompt_cost,
        utilisation: message.utilisation,
        kv_capacity_tokens: message.kv_capacity_tokens,
        batch_credit: message.batch_credit,
        batch_queue: message.batch_queue,
    };
    Ok((name(message.model)?, report))
}

fn placement(message: wire::Placement) -> Result<(Arc<str>, SharedPlacement), DecodeError> {
    if message.hashes.len() != message.ends_bytes.len() {
        return Err(DecodeError::Blocks);
    }
    let hashes = bounded(message.hashes, BLOCKS_MAX, "blocks")?;
    let block = |(hash, end_bytes)| BlockHash { hash, end_bytes };
    let target = match message.target.ok_or(DecodeError::Missing("the target"))? {
        wire::Target::Replica(address) => {
            SharedTarget::Replica(address.parse().map_err(|_| DecodeError::Address)?)
        }
        wire::Target::Region(region) => SharedTarget::Peer(name(region)?),
    };
    let parent = message.parent;
    let placement = SharedPlacement {
        target,
        parent: parent.map(|parent| block((parent.hash, parent.end_bytes))),
        blocks: hashes.zip(message.ends_bytes).map(block).collect(),
        uncached_tokens: message.uncached_tokens,
        charge: message.charge.map(charge).transpose()?,
    };
    Ok((name(message.model)?, placement))
}

fn scaling(message: wire::Scaling) -> Result<ScalingShare, DecodeError> {
    let pools = bounded(message.pools, POOLS_MAX, "pools")?.map(pool_scaling);
    Ok(ScalingShare {
        started_unix_ns: message.started_unix_ns,
        incarnation: message.incarnation,
        pools: pools.collect::<Result<_, _>>()?,
    })
}

fn pool_scaling(message: wire::PoolScaling) -> Result<PoolShare, DecodeError> {
    let row = message.row.unwrap_or_default();
    let drained = bounded(message.drained, REPLICAS_MAX, "drained replicas")?;
    let drained = drained.map(|address| name(address).map(|address| address.to_string()));
    Ok(PoolShare {
        model: name(message.model)?,
        minute: message.minute,
        interactive: demand_sums(message.interactive)?,
        batch: demand_sums(message.batch)?,
        waiting_s: figure(message.waiting_s)?,
        plan: AdoptedPlan {
            desired: message.desired,
            epoch: message.epoch,
            drained: drained.collect::<Result<_, _>>()?,
            hold: (message.held_until_unix_ns > 0).then(|| Hold {
                replicas: message.held_replicas,
                until: Time::from_nanos(message.held_until_unix_ns),
            }),
        },
        row: RegionRow {
            replicas: row.replicas,
            demand: figure(row.demand)?,
            capacity: figure(row.capacity)?,
            min: row.min,
            max: row.max,
        },
    })
}

fn demand_sums(sums: Option<wire::DemandSums>) -> Result<DemandSums, DecodeError> {
    let sums = sums.unwrap_or_default();
    Ok(DemandSums {
        requests: figure(sums.requests)?,
        requests_in_slo: figure(sums.requests_in_slo)?,
        work_s: figure(sums.work_s)?,
        input_tokens: figure(sums.input_tokens)?,
        kv_token_s: figure(sums.kv_token_s)?,
    })
}

fn figure(number: f64) -> Result<f64, DecodeError> {
    let is_valid = number.is_finite() && number >= 0.0;
    is_valid.then_some(number).ok_or(DecodeError::Demand)
}

fn charge(message: wire::TenantCharge) -> Result<TenantCharge, DecodeError> {
    if message.work_us.unsigned_abs() > CHARGE_US_MAX {
        return Err(DecodeError::Charge);
    }
    Ok(TenantCharge {
        tenant: TenantId(message.tenant),
        work_us: message.work_us,
    })
}

fn bounded<T>(
    list: Vec<T>,
    max: usize,
    of: &'static str,
) -> Result<std::vec::IntoIter<T>, DecodeError> {
    if list.len() > max {
        return Err(DecodeError::Many { of, max });
    }
    Ok(list.into_iter())
}

fn name(text: String) -> Result<Arc<str>, DecodeError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(DecodeError::Name);
    }
    Ok(text.into())
}

/// Text for people: decoding truncates it and does not refuse it.
fn truncated(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text
}
