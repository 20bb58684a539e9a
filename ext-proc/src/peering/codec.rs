//! Messages as bytes, and their bounds.
//!
//! Both ends check every message, so that no other code has to. Names are neither empty nor too long, lists are bounded, and
//! figures are finite.

use bytes::Bytes;
use ciborium::de;
use isotherm_planner::DemandSums;
use isotherm_router::PeerReport;

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
/// The most work of one charge, in microseconds: 30 days.
const CHARGE_US_MAX: u64 = 30 * 86_400 * 1_000_000;

/// Why a message is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes are no message of this protocol.
    #[error("the message cannot be read: {0}")]
    Form(String),
    /// The message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("the message is too long")]
    Long,
    /// A name is empty or too long.
    #[error("a name is empty or longer than {NAME_BYTES_MAX} bytes")]
    Name,
    /// A list is too long.
    #[error("more than {1} {0}")]
    Many(&'static str, usize),
    /// A figure is negative or not finite.
    #[error("{0} is negative or not finite")]
    Figure(&'static str),
    /// A charge is too large.
    #[error("a tenant is charged more than {CHARGE_US_MAX} microseconds at once")]
    Charge,
}

impl MessageError {
    /// The error of a foreign message, whose text the other side may choose.
    fn form(error: de::Error<std::io::Error>) -> Self {
        let mut text = match error {
            de::Error::Syntax(at) => format!("no CBOR at byte {at}"),
            de::Error::Semantic(_, text) => text,
            other => other.to_string(),
        };
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
        Self::Form(text)
    }
}

/// Returns the message on the wire.
/// Fails beyond a bound that the receiver checks.
pub fn encode(message: &Message) -> Result<Bytes, MessageError> {
    check(message)?;
    let mut bytes = Vec::new();
    let written = ciborium::into_writer(message, &mut bytes);
    written.map_err(|error| MessageError::Form(error.to_string()))?;
    match bytes.len() <= MESSAGE_BYTES_MAX {
        true => Ok(bytes.into()),
        false => Err(MessageError::Long),
    }
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
        return Err(MessageError::Form("bytes behind the message".to_owned()));
    }
    check(&message)?;
    Ok(Some(message))
}

/// Checks a message.
/// Fails when a name, a list or a figure is beyond its bound.
fn check(message: &Message) -> Result<(), MessageError> {
    match message {
        Message::Ping => Ok(()),
        Message::Heartbeat(heartbeat) => {
            if heartbeat.version.len() > NAME_BYTES_MAX {
                return Err(MessageError::Name);
            }
            many("pools", heartbeat.pools.len(), POOLS_MAX)?;
            let mut pools = heartbeat.pools.iter();
            pools.try_for_each(|(model, report)| name(model).and_then(|()| check_report(report)))
        }
        Message::Placements(placements) => {
            many("placements", placements.len(), PLACEMENTS_MAX)?;
            let mut placements = placements.iter();
            placements
                .try_for_each(|(model, placed)| name(model).and_then(|()| check_placement(placed)))
        }
        Message::Scaling(share) => {
            many("pools", share.pools.len(), POOLS_MAX)?;
            share.pools.iter().try_for_each(check_share)
        }
    }
}

fn check_report(report: &PeerReport) -> Result<(), MessageError> {
    figure("the drain rate", report.drain_per_s.into())?;
    figure(
        "the utilisation",
        report.utilisation.unwrap_or_default().into(),
    )?;
    let cost = report.prompt_cost.unwrap_or_default().parts();
    let mut parts = cost.into_iter();
    parts.try_for_each(|part| figure("the cost of a prompt", part.into()))
}

fn check_placement(placement: &SharedPlacement) -> Result<(), MessageError> {
    if let SharedTarget::Peer(region) = &placement.target {
        name(region)?;
    }
    if placement
        .charge
        .is_some_and(|charge| charge.work_us.unsigned_abs() > CHARGE_US_MAX)
    {
        return Err(MessageError::Charge);
    }
    many("blocks", placement.blocks.len(), BLOCKS_MAX)
}

fn check_share(pool: &PoolShare) -> Result<(), MessageError> {
    name(&pool.model)?;
    many("drained replicas", pool.plan.drained.len(), REPLICAS_MAX)?;
    pool.plan
        .drained
        .iter()
        .try_for_each(|address| name(address))?;
    let sums = |sums: &DemandSums| {
        [
            sums.requests,
            sums.requests_in_slo,
            sums.work_s,
            sums.input_tokens,
            sums.kv_token_s,
        ]
    };
    let mut figures = sums(&pool.interactive).into_iter().chain(sums(&pool.batch));
    figures.try_for_each(|number| figure("a figure of the demand", number))?;
    let row = [pool.waiting_s, pool.row.demand, pool.row.capacity];
    row.into_iter()
        .try_for_each(|number| figure("a figure of the demand", number))
}

fn name(text: &str) -> Result<(), MessageError> {
    let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX;
    is_name.then_some(()).ok_or(MessageError::Name)
}

fn many(of: &'static str, count: usize, max: usize) -> Result<(), MessageError> {
    (count <= max)
        .then_some(())
        .ok_or(MessageError::Many(of, max))
}

fn figure(of: &'static str, number: f64) -> Result<(), MessageError> {
    let is_figure = number.is_finite() && number >= 0.0;
    is_figure.then_some(()).ok_or(MessageError::Figure(of))
}

#[cfg(test)]
mod tests;
