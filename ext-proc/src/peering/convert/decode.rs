//! What is heard, as the program has it, if it makes sense.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::BlockHash;
use isotherm_regions::{
    Advertisement, Heartbeat, Incarnation, Liveness, PeerView, PoolReplicas, RecordVersion,
    RegionName, RegionRecord, Session, SuccessorList,
};
use isotherm_router::PeerReport;

use super::{BLOCKS_MAX, DecodeError, NAME_BYTES_MAX, POOLS_MAX, REGIONS_MAX, REPLICAS_MAX};
use crate::peering::message::{NamedPlacement, NamedTarget};
use crate::peering::wire;

pub(super) fn held(held: Option<&wire::Held>) -> RecordVersion {
    held.map_or_else(RecordVersion::default, |held| RecordVersion {
        replicas: held.replicas,
        successors: held.heirs,
        has_previous: held.settled,
    })
}

pub(super) fn stance(stance: Option<wire::Stance>) -> Result<Advertisement, DecodeError> {
    let stance = stance.ok_or(DecodeError::Missing("the stance"))?;
    let set = |names| regions(names)?.collect::<Result<BTreeSet<_>, _>>();
    Ok(Advertisement {
        incarnation: Incarnation(stance.incarnation),
        version: stance.number,
        has_gateway: stance.gateway,
        adopted: set(stance.holds)?,
        yielded: set(stance.yields)?,
        requested: set(stance.asks)?,
    })
}

pub(super) fn heartbeat(session: Session, said: wire::Heartbeat) -> Result<Heartbeat, DecodeError> {
    let pools = bounded(said.pools, POOLS_MAX, "pools")?.map(pool);
    let views = bounded(said.views, REGIONS_MAX, "regions")?.map(view);
    Ok(Heartbeat {
        session,
        ping_seq: said.answers,
        version: short(said.software).into(),
        advertisement: stance(said.stance)?,
        pools: pools.collect::<Result<_, _>>()?,
        views: views.collect::<Result<_, _>>()?,
    })
}

fn pool(said: wire::PoolReport) -> Result<(Arc<str>, PeerReport), DecodeError> {
    if !(said.drain_per_s.is_finite() && said.drain_per_s >= 0.0) {
        return Err(DecodeError::Rate);
    }
    let report = PeerReport {
        available: said.available,
        replicas: said.replicas,
        free_capacity: said.free_capacity,
        queue: said.queue,
        drain_per_s: said.drain_per_s,
    };
    Ok((name(said.model)?, report))
}

fn view(said: wire::View) -> Result<PeerView, DecodeError> {
    Ok(PeerView {
        region: region(said.region)?,
        liveness: said
            .alive
            .map_or(Liveness::Silent, |alive| Liveness::Alive {
                has_gateway: alive.gateway,
                round_trip: Duration::from_micros(alive.round_trip_us),
            }),
        record_version: held(said.has.as_ref()),
    })
}

pub(super) fn record(said: wire::Record) -> Result<RegionRecord, DecodeError> {
    let replicas: usize = said.pools.iter().map(|pool| pool.replicas.len()).sum();
    if replicas > REPLICAS_MAX {
        return Err(DecodeError::Many {
            of: "replicas",
            max: REPLICAS_MAX,
        });
    }
    let members = |pool: wire::Members| {
        let replicas = pool.replicas.into_iter().map(name);
        Ok(PoolReplicas {
            model: name(pool.model)?,
            replicas: replicas.collect::<Result<_, _>>()?,
        })
    };
    let pools = bounded(said.pools, POOLS_MAX, "pools")?.map(members);
    let heirs = said.heirs.unwrap_or_default();
    let list = |names| regions(names)?.collect::<Result<Vec<_>, _>>();
    Ok(RegionRecord {
        region: region(said.region)?,
        version: said.version,
        pools: pools.collect::<Result<_, _>>()?,
        successors: SuccessorList {
            version: heirs.version,
            order: list(heirs.order)?,
            previous: heirs.prior.map(|prior| list(prior.regions)).transpose()?,
        },
    })
}

pub(super) fn placed(said: wire::Placement) -> Result<NamedPlacement, DecodeError> {
    if said.hashes.len() != said.ends_bytes.len() {
        return Err(DecodeError::Blocks);
    }
    let ends = said.ends_bytes.into_iter();
    let blocks = bounded(said.hashes, BLOCKS_MAX, "blocks")?.zip(ends);
    Ok(NamedPlacement {
        model: name(said.model)?,
        at: match said.target.ok_or(DecodeError::Missing("the target"))? {
            wire::Target::Replica(address) => NamedTarget::Replica(name(address)?),
            wire::Target::Region(region) => NamedTarget::Region(name(region)?),
        },
        parent: said.parent.map(|block| BlockHash {
            hash: block.hash,
            end_bytes: block.end_bytes,
        }),
        blocks: blocks
            .map(|(hash, end_bytes)| BlockHash { hash, end_bytes })
            .collect(),
    })
}

pub(super) fn bounded<T>(
    list: Vec<T>,
    max: usize,
    of: &'static str,
) -> Result<std::vec::IntoIter<T>, DecodeError> {
    if list.len() > max {
        return Err(DecodeError::Many { of, max });
    }
    Ok(list.into_iter())
}

fn regions(
    names: Vec<String>,
) -> Result<impl Iterator<Item = Result<RegionName, DecodeError>>, DecodeError> {
    Ok(bounded(names, REGIONS_MAX, "regions")?.map(region))
}

fn region(text: String) -> Result<RegionName, DecodeError> {
    name(text).map(|name| RegionName::from(&*name))
}

fn name(text: String) -> Result<Arc<str>, DecodeError> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(DecodeError::Name);
    }
    Ok(text.into())
}

/// Text for people only: cut rather than refused.
fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text
}
