//! What is said, as the wire has it.

use std::sync::Arc;

use isotherm_regions::{
    Advertisement, Heartbeat, Liveness, PeerView, PoolReplicas, RecordVersion, RegionName,
    RegionRecord,
};
use isotherm_router::PeerReport;

use crate::peering::message::{NamedPlacement, NamedTarget};
use crate::peering::wire;

pub(super) fn held(held: RecordVersion) -> wire::Held {
    let RecordVersion {
        replicas,
        successors: heirs,
        has_previous: settled,
    } = held;
    wire::Held {
        replicas,
        heirs,
        settled,
    }
}

pub(super) fn stance(stance: &Advertisement) -> wire::Stance {
    wire::Stance {
        incarnation: stance.incarnation.0,
        number: stance.version,
        gateway: stance.has_gateway,
        holds: names(&stance.adopted),
        yields: names(&stance.yielded),
        asks: names(&stance.requested),
    }
}

fn names<'a>(names: impl IntoIterator<Item = &'a RegionName>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}

pub(super) fn heartbeat(heartbeat: &Heartbeat) -> wire::Heartbeat {
    let pool = |(model, report): &(Arc<str>, PeerReport)| wire::PoolReport {
        model: model.to_string(),
        available: report.available,
        replicas: report.replicas,
        free_capacity: report.free_capacity,
        queue: report.queue,
        drain_per_s: report.drain_per_s,
    };
    let view = |view: &PeerView| wire::View {
        region: view.region.to_string(),
        alive: match view.liveness {
            Liveness::Silent => None,
            Liveness::Alive {
                has_gateway: gateway,
                round_trip,
            } => Some(wire::Alive {
                gateway,
                round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            }),
        },
        has: Some(held(view.record_version)),
    };
    wire::Heartbeat {
        answers: heartbeat.ping_seq,
        software: heartbeat.version.to_string(),
        stance: Some(stance(&heartbeat.advertisement)),
        pools: heartbeat.pools.iter().map(pool).collect(),
        views: heartbeat.views.iter().map(view).collect(),
    }
}

pub(super) fn record(record: &RegionRecord) -> wire::Record {
    let members = |members: &PoolReplicas| wire::Members {
        model: members.model.to_string(),
        replicas: members.replicas.iter().map(ToString::to_string).collect(),
    };
    let heirs = &record.successors;
    wire::Record {
        region: record.region.to_string(),
        version: record.version,
        pools: record.pools.iter().map(members).collect(),
        heirs: Some(wire::Heirs {
            version: heirs.version,
            order: names(&heirs.order),
            prior: heirs.previous.as_ref().map(|prior| wire::RegionList {
                regions: names(prior),
            }),
        }),
    }
}

pub(super) fn placed(placed: &NamedPlacement) -> wire::Placement {
    wire::Placement {
        model: placed.model.to_string(),
        target: Some(match &placed.at {
            NamedTarget::Replica(address) => wire::Target::Replica(address.to_string()),
            NamedTarget::Region(name) => wire::Target::Region(name.to_string()),
        }),
        parent: placed.parent.map(|block| wire::BlockHash {
            hash: block.hash,
            end_bytes: block.end_bytes,
        }),
        hashes: placed.blocks.iter().map(|block| block.hash).collect(),
        ends_bytes: placed.blocks.iter().map(|block| block.end_bytes).collect(),
    }
}
