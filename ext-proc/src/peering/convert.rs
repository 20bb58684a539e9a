//! Conversion between the messages on the wire and those of the program.
//!
//! Decoding checks every message, so that no other code has to: names are neither empty nor too long, lists are bounded,
//! rates are finite. A message that fails the check is rejected.

mod decode;
mod encode;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use prost::Message as _;

use super::MESSAGE_BYTES_MAX;
use super::message::Message;

pub(crate) use decode::decode;
pub(crate) use encode::encode;

/// The longest name of a region, a model or a replica, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The most pools in a message.
const POOLS_MAX: usize = 1024;
/// The most drained replicas of a pool.
const REPLICAS_MAX: usize = 16 * 1024;
/// The most placements in a message.
const PLACEMENTS_MAX: usize = 1024;
/// The most blocks in a placement.
const BLOCKS_MAX: usize = 512;

/// The message on the wire; `None` beyond a bound that the receiver checks.
pub(super) fn encode_within_bounds(message: &Message) -> Option<Bytes> {
    let envelope = encode(message);
    let is_short = envelope.encoded_len() <= MESSAGE_BYTES_MAX;
    (is_short && is_within_bounds(message)).then(|| envelope.encode_to_vec().into())
}

fn is_within_bounds(message: &Message) -> bool {
    match message {
        Message::Ping { .. } => true,
        Message::Scaling(share) => share.pools.len() <= POOLS_MAX,
        Message::Heartbeat(heartbeat) => heartbeat.pools.len() <= POOLS_MAX,
        Message::Placements(placements) => {
            let mut blocks = placements
                .iter()
                .map(|(_, placement)| placement.blocks.len());
            placements.len() <= PLACEMENTS_MAX && blocks.all(|blocks| blocks <= BLOCKS_MAX)
        }
    }
}
