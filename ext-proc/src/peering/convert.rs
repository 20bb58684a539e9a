//! Between the messages on the wire and those of the program.
//!
//! What comes in is checked here, so that nobody behind has to: names are not empty and not too long, lists have an
//! end, numbers are numbers. Whoever says something else is not the program that it should be, and its stream ends.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use isotherm_regions::{Ping, Session};

use super::message::{Message, NamedPlacement};
use super::wire::{self, Payload};
use decode::bounded;

/// The longest name of a region, a model or a replica, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most regions in a list, and the most pools.
const REGIONS_MAX: usize = 1024;
const POOLS_MAX: usize = 1024;
/// The most replicas in a record, over all pools.
const REPLICAS_MAX: usize = 16 * 1024;
/// The most placements in a message, and the most blocks in one.
const PLACEMENTS_MAX: usize = 1024;
const BLOCKS_MAX: usize = 512;

/// A message that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("a name is empty or longer than {NAME_BYTES_MAX} bytes")]
    Name,
    #[error("more than {max} {of}")]
    Many { of: &'static str, max: usize },
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the drain rate is no rate")]
    Rate,
    #[error("as many hashes as ends of blocks are needed")]
    Blocks,
}

/// Whether the other side will take a message of this many of everything. It would end the stream of one that has more,
/// and of the next one again.
pub(super) fn has_bounds(said: &Message) -> bool {
    match said {
        Message::Ping(_) => true,
        Message::Heartbeat(said) => {
            said.pools.len() <= POOLS_MAX && said.views.len() <= REGIONS_MAX
        }
        Message::Record(said) => {
            let replicas: usize = said.pools.iter().map(|pool| pool.replicas.len()).sum();
            replicas <= REPLICAS_MAX && said.pools.len() <= POOLS_MAX
        }
        Message::Placements(said) => {
            let blocks = |placed: &NamedPlacement| placed.blocks.len() <= BLOCKS_MAX;
            said.len() <= PLACEMENTS_MAX && said.iter().all(blocks)
        }
    }
}

/// A message on the wire.
pub(super) fn to_wire(session: u64, said: &Message) -> wire::Envelope {
    let what = match said {
        Message::Ping(ping) => Payload::Ping(wire::Ping {
            seq: ping.seq,
            has: Some(encode::held(ping.record_version)),
            stance: Some(encode::stance(&ping.advertisement)),
        }),
        Message::Heartbeat(heartbeat) => Payload::Heartbeat(encode::heartbeat(heartbeat)),
        Message::Record(record) => Payload::Record(encode::record(record)),
        Message::Placements(placements) => Payload::Placements(wire::Placements {
            placements: placements.iter().map(encode::placed).collect(),
        }),
    };
    wire::Envelope {
        session,
        payload: Some(what),
    }
}

/// A message of the program. `None` for one that this version does not know, and for a Hello that comes late.
pub(super) fn from_wire(said: wire::Envelope) -> Result<Option<Message>, DecodeError> {
    let session = Session(said.session);
    let said = match said.payload {
        None | Some(Payload::Hello(_)) => return Ok(None),
        Some(Payload::Ping(ping)) => Message::Ping(Ping {
            session,
            seq: ping.seq,
            record_version: decode::held(ping.has.as_ref()),
            advertisement: decode::stance(ping.stance)?,
        }),
        Some(Payload::Heartbeat(said)) => Message::Heartbeat(decode::heartbeat(session, said)?),
        Some(Payload::Record(said)) => Message::Record(Arc::new(decode::record(said)?)),
        Some(Payload::Placements(said)) => {
            let placements = bounded(said.placements, PLACEMENTS_MAX, "placements")?;
            Message::Placements(placements.map(decode::placed).collect::<Result<_, _>>()?)
        }
    };
    Ok(Some(said))
}
