//! Between the messages on the wire and those of the program.
//!
//! What comes in is checked here, so that nobody behind has to: names are not empty and not too long, lists have an
//! end, numbers are numbers. Whoever says something else is not the program that it should be, and its stream ends.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::Edge;
use isotherm_router::PeerReport;
use isotherm_router::region::{
    Heartbeat, Heirs, Held, Incarnation, Members, Ping, Record, RegionName, Session, Sight, Stance,
    View,
};

use super::said::{Placed, PlacedAt, Said};
use super::wire::{self, What};

/// The longest name of a region, a model or a replica, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most regions in a list, and the most pools.
const REGIONS_MAX: usize = 1024;
const POOLS_MAX: usize = 1024;
/// The most replicas in a record, over all pools.
const REPLICAS_MAX: usize = 16 * 1024;
/// The most placements in a message, and the most edges in one.
const PLACEMENTS_MAX: usize = 1024;
const EDGES_MAX: usize = 512;

/// A message that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Nonsense {
    #[error("a name is empty or longer than {NAME_BYTES_MAX} bytes")]
    Name,
    #[error("more than {max} {of}")]
    Many { of: &'static str, max: usize },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the drain rate is no rate")]
    Rate,
    #[error("as many hashes as ends of edges are needed")]
    Edges,
}

/// Whether the other side will take a message of this many of everything. It would end the stream of one that has more,
/// and of the next one again.
pub(super) fn has_bounds(said: &Said) -> bool {
    match said {
        Said::Ping(_) => true,
        Said::Heartbeat(said) => said.pools.len() <= POOLS_MAX && said.views.len() <= REGIONS_MAX,
        Said::Record(said) => {
            let replicas: usize = said.pools.iter().map(|pool| pool.replicas.len()).sum();
            replicas <= REPLICAS_MAX && said.pools.len() <= POOLS_MAX
        }
        Said::Placements(said) => {
            let edges = |placed: &Placed| placed.edges.len() <= EDGES_MAX;
            said.len() <= PLACEMENTS_MAX && said.iter().all(edges)
        }
    }
}

/// A message on the wire.
pub(super) fn to_wire(session: u64, said: &Said) -> wire::Said {
    let what = match said {
        Said::Ping(ping) => What::Ping(wire::Ping {
            seq: ping.seq,
            has: Some(held_to(ping.has)),
            stance: Some(stance_to(&ping.stance)),
        }),
        Said::Heartbeat(heartbeat) => What::Heartbeat(heartbeat_to(heartbeat)),
        Said::Record(record) => What::Record(record_to(record)),
        Said::Placements(placements) => What::Placements(wire::Placements {
            placements: placements.iter().map(placed_to).collect(),
        }),
    };
    wire::Said {
        session,
        what: Some(what),
    }
}

/// A message of the program. `None` for one that this version does not know, and for a Hello that comes late.
pub(super) fn from_wire(said: wire::Said) -> Result<Option<Said>, Nonsense> {
    let session = Session(said.session);
    let said = match said.what {
        None | Some(What::Hello(_)) => return Ok(None),
        Some(What::Ping(ping)) => Said::Ping(Ping {
            session,
            seq: ping.seq,
            has: held(ping.has.as_ref()),
            stance: stance(ping.stance)?,
        }),
        Some(What::Heartbeat(said)) => Said::Heartbeat(heartbeat(session, said)?),
        Some(What::Record(said)) => Said::Record(Arc::new(record(said)?)),
        Some(What::Placements(said)) => {
            let placements = bounded(said.placements, PLACEMENTS_MAX, "placements")?;
            Said::Placements(placements.map(placed).collect::<Result<_, _>>()?)
        }
    };
    Ok(Some(said))
}

fn held_to(held: Held) -> wire::Held {
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

fn stance_to(stance: &Stance) -> wire::Stance {
    wire::Stance {
        incarnation: stance.incarnation.0,
        number: stance.number,
        gateway: stance.gateway,
        holds: names_to(&stance.holds),
        yields: names_to(&stance.yields),
        asks: names_to(&stance.asks),
    }
}

fn names_to<'a>(names: impl IntoIterator<Item = &'a RegionName>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}

fn heartbeat_to(heartbeat: &Heartbeat) -> wire::Heartbeat {
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
        has: Some(held_to(view.has)),
    };
    wire::Heartbeat {
        answers: heartbeat.answers,
        software: heartbeat.version.to_string(),
        stance: Some(stance_to(&heartbeat.stance)),
        pools: heartbeat.pools.iter().map(pool).collect(),
        views: heartbeat.views.iter().map(view).collect(),
    }
}

fn record_to(record: &Record) -> wire::Record {
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
            order: names_to(&heirs.order),
            prior: heirs.prior.as_ref().map(|prior| wire::RegionList {
                regions: names_to(prior),
            }),
        }),
    }
}

fn placed_to(placed: &Placed) -> wire::Placement {
    wire::Placement {
        model: placed.model.to_string(),
        target: Some(match &placed.at {
            PlacedAt::Replica(address) => wire::Target::Replica(address.to_string()),
            PlacedAt::Region(name) => wire::Target::Region(name.to_string()),
        }),
        parent: placed.parent.map(|edge| wire::Edge {
            hash: edge.hash,
            end_bytes: edge.end_bytes,
        }),
        hashes: placed.edges.iter().map(|edge| edge.hash).collect(),
        ends_bytes: placed.edges.iter().map(|edge| edge.end_bytes).collect(),
    }
}

fn held(held: Option<&wire::Held>) -> Held {
    held.map_or_else(Held::default, |held| Held {
        replicas: held.replicas,
        heirs: held.heirs,
        settled: held.settled,
    })
}

fn stance(stance: Option<wire::Stance>) -> Result<Stance, Nonsense> {
    let stance = stance.ok_or(Nonsense::Missing("the stance"))?;
    let set = |names| regions(names)?.collect::<Result<BTreeSet<_>, _>>();
    Ok(Stance {
        incarnation: Incarnation(stance.incarnation),
        number: stance.number,
        gateway: stance.gateway,
        holds: set(stance.holds)?,
        yields: set(stance.yields)?,
        asks: set(stance.asks)?,
    })
}

fn heartbeat(session: Session, said: wire::Heartbeat) -> Result<Heartbeat, Nonsense> {
    let pools = bounded(said.pools, POOLS_MAX, "pools")?.map(pool);
    let views = bounded(said.views, REGIONS_MAX, "regions")?.map(view);
    Ok(Heartbeat {
        session,
        answers: said.answers,
        version: short(said.software).into(),
        stance: stance(said.stance)?,
        pools: pools.collect::<Result<_, _>>()?,
        views: views.collect::<Result<_, _>>()?,
    })
}

fn pool(said: wire::PoolReport) -> Result<(Arc<str>, PeerReport), Nonsense> {
    if !(said.drain_per_s.is_finite() && said.drain_per_s >= 0.0) {
        return Err(Nonsense::Rate);
    }
    let report = PeerReport {
        available: said.available,
        replicas: said.replicas,
        room: said.room,
        queue: said.queue,
        drain_per_s: said.drain_per_s,
    };
    Ok((name(said.model)?, report))
}

fn view(said: wire::View) -> Result<View, Nonsense> {
    Ok(View {
        region: region(said.region)?,
        sight: said.alive.map_or(Sight::Silent, |alive| Sight::Alive {
            gateway: alive.gateway,
            round_trip: Duration::from_micros(alive.round_trip_us),
        }),
        has: held(said.has.as_ref()),
    })
}

fn record(said: wire::Record) -> Result<Record, Nonsense> {
    let replicas: usize = said.pools.iter().map(|pool| pool.replicas.len()).sum();
    if replicas > REPLICAS_MAX {
        return Err(Nonsense::Many {
            of: "replicas",
            max: REPLICAS_MAX,
        });
    }
    let members = |pool: wire::Members| {
        let replicas = pool.replicas.into_iter().map(name);
        Ok(Members {
            model: name(pool.model)?,
            replicas: replicas.collect::<Result<_, _>>()?,
        })
    };
    let pools = bounded(said.pools, POOLS_MAX, "pools")?.map(members);
    let heirs = said.heirs.unwrap_or_default();
    let list = |names| regions(names)?.collect::<Result<Vec<_>, _>>();
    Ok(Record {
        region: region(said.region)?,
        version: said.version,
        pools: pools.collect::<Result<_, _>>()?,
        heirs: Heirs {
            version: heirs.version,
            order: list(heirs.order)?,
            prior: heirs.prior.map(|prior| list(prior.regions)).transpose()?,
        },
    })
}

fn placed(said: wire::Placement) -> Result<Placed, Nonsense> {
    if said.hashes.len() != said.ends_bytes.len() {
        return Err(Nonsense::Edges);
    }
    let ends = said.ends_bytes.into_iter();
    let edges = bounded(said.hashes, EDGES_MAX, "edges")?.zip(ends);
    Ok(Placed {
        model: name(said.model)?,
        at: match said.target.ok_or(Nonsense::Missing("the target"))? {
            wire::Target::Replica(address) => PlacedAt::Replica(name(address)?),
            wire::Target::Region(region) => PlacedAt::Region(name(region)?),
        },
        parent: said.parent.map(|edge| Edge {
            hash: edge.hash,
            end_bytes: edge.end_bytes,
        }),
        edges: edges
            .map(|(hash, end_bytes)| Edge { hash, end_bytes })
            .collect(),
    })
}

fn bounded<T>(
    list: Vec<T>,
    max: usize,
    of: &'static str,
) -> Result<std::vec::IntoIter<T>, Nonsense> {
    if list.len() > max {
        return Err(Nonsense::Many { of, max });
    }
    Ok(list.into_iter())
}

fn regions(
    names: Vec<String>,
) -> Result<impl Iterator<Item = Result<RegionName, Nonsense>>, Nonsense> {
    Ok(bounded(names, REGIONS_MAX, "regions")?.map(region))
}

fn region(text: String) -> Result<RegionName, Nonsense> {
    name(text).map(|name| RegionName::from(&*name))
}

fn name(text: String) -> Result<Arc<str>, Nonsense> {
    if text.is_empty() || text.len() > NAME_BYTES_MAX {
        return Err(Nonsense::Name);
    }
    Ok(text.into())
}

/// Text for people only: cut rather than refused.
fn short(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text
}

#[cfg(test)]
mod tests;
