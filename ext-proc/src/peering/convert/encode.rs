//! What is said, as the wire has it.

use std::sync::Arc;

use isotherm_router::PeerReport;
use isotherm_router::region::{Heartbeat, Held, Members, Record, RegionName, Sight, Stance, View};

use crate::peering::message::{NamedPlacement, NamedTarget};
use crate::peering::wire;

pub(super) fn held(held: Held) -> wire::Held {
    let Held {
        replicas,
        heirs,
        settled,
    } = held;
    wire::Held {
        replicas,
        heirs,
        settled,
    }
}

pub(super) fn stance(stance: &Stance) -> wire::Stance {
    wire::Stance {
        incarnation: stance.incarnation.0,
        number: stance.number,
        gateway: stance.gateway,
        holds: names(&stance.holds),
        yields: names(&stance.yields),
        asks: names(&stance.asks),
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
        room: report.room,
        queue: report.queue,
        drain_per_s: report.drain_per_s,
    };
    let view = |view: &View| wire::View {
        region: view.region.to_string(),
        alive: match view.sight {
            Sight::Silent => None,
            Sight::Alive {
                gateway,
                round_trip,
            } => Some(wire::Alive {
                gateway,
                round_trip_us: u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX),
            }),
        },
        has: Some(held(view.has)),
    };
    wire::Heartbeat {
        answers: heartbeat.answers,
        software: heartbeat.version.to_string(),
        stance: Some(stance(&heartbeat.stance)),
        pools: heartbeat.pools.iter().map(pool).collect(),
        views: heartbeat.views.iter().map(view).collect(),
    }
}

pub(super) fn record(record: &Record) -> wire::Record {
    let members = |members: &Members| wire::Members {
        model: members.model.to_string(),
        replicas: members.replicas.iter().map(ToString::to_string).collect(),
    };
    let heirs = &record.heirs;
    wire::Record {
        region: record.region.to_string(),
        version: record.version,
        pools: record.pools.iter().map(members).collect(),
        heirs: Some(wire::Heirs {
            version: heirs.version,
            order: names(&heirs.order),
            prior: heirs.prior.as_ref().map(|prior| wire::RegionList {
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
