//! Messages as bytes, and their bounds.
//!
//! Both ends check every message, so that no other code has to. Names are neither empty nor too long, lists are bounded, and
//! figures are finite.

use std::fmt::Display;

use bytes::Bytes;
use isotherm_planner::DemandSums;

use super::MESSAGE_BYTES_MAX;
use super::message::{Message, PoolShare};
use crate::pool::{SharedPlacement, SharedTarget};

/// The longest name of a region, a model or a replica, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// The longest description of an error, in bytes.
const ERROR_BYTES_MAX: usize = 256;
/// The most pools in a message.
const POOLS_MAX: usize = 1024;
/// The most drained replicas of a pool.
const REPLICAS_MAX: usize = 16 * 1024;
/// The most placements in a message.
const PLACEMENTS_MAX: usize = 1024;
/// The most blocks in a placement.
const BLOCKS_MAX: usize = 512;

/// Why a message is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MessageError(String);

impl MessageError {
    /// The bytes are no message of this protocol. The other side may choose the text.
    fn form(error: impl Display) -> Self {
        let mut text = format!("the message cannot be read: {error}");
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        Self(text)
    }
}

/// Returns the message on the wire.
/// Fails beyond a bound that the receiver checks.
pub fn encode(message: &Message) -> Result<Bytes, MessageError> {
    check(message)?;
    let mut bytes = Vec::new();
    ciborium::into_writer(message, &mut bytes).map_err(MessageError::form)?;
    many("bytes", bytes.len(), MESSAGE_BYTES_MAX)?;
    Ok(bytes.into())
}

/// Returns the message of a body; `None` for an empty one, with which a caller asks whether it is accepted.
/// Fails when the message is not valid.
pub fn decode(body: &[u8]) -> Result<Option<Message>, MessageError> {
    if body.is_empty() {
        return Ok(None);
    }
    let mut rest = body;
    let message = ciborium::from_reader(&mut rest).map_err(MessageError::form)?;
    if !rest.is_empty() {
        return Err(MessageError::form("bytes behind the message"));
    }
    check(&message)?;
    Ok(Some(message))
}

/// Checks a message.
/// Fails when a name, a list or a figure is beyond its bound.
fn check(message: &Message) -> Result<(), MessageError> {
    match message {
        Message::Ping => {}
        Message::Heartbeat(heartbeat) => {
            many(
                "bytes of a version",
                heartbeat.version.len(),
                NAME_BYTES_MAX,
            )?;
            many("pools", heartbeat.pools.len(), POOLS_MAX)?;
            for (model, report) in &heartbeat.pools {
                name(model)?;
                let rates = [report.drain_per_s, report.utilisation.unwrap_or_default()];
                let cost = report.prompt_cost.unwrap_or_default().parts();
                figures(rates.into_iter().chain(cost).map(f64::from))?;
            }
        }
        Message::Placements(placements) => {
            many("placements", placements.len(), PLACEMENTS_MAX)?;
            for (model, placement) in placements {
                name(model)?;
                check_placement(placement)?;
            }
        }
        Message::Scaling(share) => {
            many("pools", share.pools.len(), POOLS_MAX)?;
            share.pools.iter().try_for_each(check_share)?;
        }
    }
    Ok(())
}

fn check_placement(placement: &SharedPlacement) -> Result<(), MessageError> {
    if let SharedTarget::Peer(region) = &placement.target {
        name(region)?;
    }
    many("blocks", placement.blocks.len(), BLOCKS_MAX)
}

fn check_share(pool: &PoolShare) -> Result<(), MessageError> {
    name(&pool.model)?;
    many("drained replicas", pool.plan.drained.len(), REPLICAS_MAX)?;
    let mut drained = pool.plan.drained.iter();
    drained.try_for_each(|address| name(address))?;
    let sums = [&pool.interactive, &pool.batch].map(|sums: &DemandSums| {
        [
            sums.requests,
            sums.requests_in_slo,
            sums.work_s,
            sums.input_tokens,
            sums.kv_token_s,
        ]
    });
    let row = [pool.waiting_s, pool.row.demand, pool.row.capacity];
    figures(sums.into_iter().flatten().chain(row))
}

fn name(text: &str) -> Result<(), MessageError> {
    ensure((1..=NAME_BYTES_MAX).contains(&text.len()), || {
        format!("a name is empty or longer than {NAME_BYTES_MAX} bytes")
    })
}

fn many(of: &str, count: usize, max: usize) -> Result<(), MessageError> {
    ensure(count <= max, || format!("more than {max} {of}"))
}

fn figures(mut all: impl Iterator<Item = f64>) -> Result<(), MessageError> {
    let are_valid = all.all(|number| number.is_finite() && number >= 0.0);
    ensure(are_valid, || {
        "a figure is negative or not finite".to_owned()
    })
}

fn ensure(holds: bool, error: impl FnOnce() -> String) -> Result<(), MessageError> {
    holds.then_some(()).ok_or_else(|| MessageError(error()))
}

#[cfg(test)]
mod tests;
