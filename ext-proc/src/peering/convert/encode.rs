//! From the program's messages to the wire's.

use std::sync::Arc;

use isotherm_planner::DemandSums;
use isotherm_regions::Heartbeat;
use isotherm_router::PeerReport;

use crate::peering::message::Message;
use crate::peering::scaling_share::ScalingShare;
use crate::peering::wire::{self, Envelope, Payload};
use crate::pool::{SharedPlacement, SharedTarget};

pub(crate) fn encode(message: &Message) -> Envelope {
    let payload = match message {
        Message::Ping { nonce } => Payload::Ping(wire::Ping { nonce: *nonce }),
        Message::Heartbeat(message) => Payload::Heartbeat(heartbeat(message)),
        Message::Placements(placements) => Payload::Placements(wire::Placements {
            placements: placements.iter().map(placement).collect(),
        }),
        Message::Scaling(share) => Payload::Scaling(scaling(share)),
    };
    Envelope {
        payload: Some(payload),
    }
}

fn heartbeat(heartbeat: &Heartbeat) -> wire::Heartbeat {
    let pool = |(model, report): &(Arc<str>, PeerReport)| wire::PoolReport {
        model: model.to_string(),
        available: report.available,
        replicas: report.replicas,
        free_capacity: report.free_capacity,
        queue: report.queue,
        drain_per_s: report.drain_per_s,
        prompt_cost: report.prompt_cost.map(|cost| wire::PromptCost {
            first_token_s: cost.first_token_s,
            prompt_token_s: cost.prompt_token_s,
            others_s: cost.others_s,
            others_token_s: cost.others_token_s,
        }),
        utilisation: report.utilisation,
        kv_capacity_tokens: report.kv_capacity_tokens,
        batch_credit: report.batch_credit,
        batch_queue: report.batch_queue,
    };
    wire::Heartbeat {
        nonce: heartbeat.nonce,
        software_version: heartbeat.version.to_string(),
        pools: heartbeat.pools.iter().map(pool).collect(),
        has_gateway: heartbeat.has_gateway,
    }
}

fn placement((model, placement): &(Arc<str>, SharedPlacement)) -> wire::Placement {
    let blocks = placement.blocks.iter();
    wire::Placement {
        model: model.to_string(),
        target: Some(match &placement.target {
            SharedTarget::Replica(address) => wire::Target::Replica(address.to_string()),
            SharedTarget::Peer(name) => wire::Target::Region(name.to_string()),
        }),
        parent: placement.parent.map(|block| wire::PrefixBlock {
            hash: block.hash,
            end_bytes: block.end_bytes,
        }),
        hashes: blocks.clone().map(|block| block.hash).collect(),
        ends_bytes: blocks.map(|block| block.end_bytes).collect(),
        uncached_tokens: placement.uncached_tokens,
        charge: placement.charge.map(|charge| wire::TenantCharge {
            tenant: charge.tenant.0,
            work_us: charge.work_us,
        }),
    }
}

fn scaling(share: &ScalingShare) -> wire::Scaling {
    let pools = share.pools.iter().map(|pool| wire::PoolScaling {
        model: pool.model.to_string(),
        minute: pool.minute,
        interactive: Some(demand_sums(&pool.interactive)),
        batch: Some(demand_sums(&pool.batch)),
        waiting_s: pool.waiting_s,
        desired: pool.plan.desired,
        epoch: pool.plan.epoch,
        drained: pool.plan.drained.clone(),
        held_replicas: pool.plan.hold.map_or(0, |hold| hold.replicas),
        held_until_unix_ns: pool.plan.hold.map_or(0, |hold| hold.until.as_nanos()),
        row: Some(wire::RegionRow {
            replicas: pool.row.replicas,
            demand: pool.row.demand,
            capacity: pool.row.capacity,
            min: pool.row.min,
            max: pool.row.max,
        }),
    });
    wire::Scaling {
        started_unix_ns: share.started_unix_ns,
        incarnation: share.incarnation,
        pools: pools.collect(),
    }
}

fn demand_sums(sums: &DemandSums) -> wire::DemandSums {
    wire::DemandSums {
        requests: sums.requests,
        requests_in_slo: sums.requests_in_slo,
        work_s: sums.work_s,
        input_tokens: sums.input_tokens,
        kv_token_s: sums.kv_token_s,
    }
}
