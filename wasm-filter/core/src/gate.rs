//! The gate: an instance of the filter behind the request role, for hosts that withhold the body of held headers.
//!
//! ```text
//!              headers                       body                                    end of the body, or the decision
//!   request role ──continue──┐      reads each piece, lets it pass ─┐      sends the headers through a queue ─┐
//!   gate         <───────────┘ hold   (Envoy keeps it for the gate) <┘                  set them, release <────┘
//! ```
//! Envoy withholds the body only from the instance that holds the headers, so the instance in front of it sees every piece.
//! Both instances may run in VMs of their own (Envoy Gateway gives each its own): the gate puts its address into the
//! request's filter state, and the request role answers through a shared queue of that worker.
//!
//! Envoy stops reading a body at its buffer limit. A request role that does not know the limit would wait for ever, so the
//! gate opens where no byte arrives for [`STALL_MAX`] while the body is still being read.
//!
//! Rejected: releasing held requests by a timer of the gate. At a period of a millisecond, many queued requests would cost a
//! whole core.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_decision_proto::{DecisionRequest, Header};
use prost::Message as _;

use crate::headers::HeaderEdit;
use crate::response::Nanoseconds;

/// The property of a request with the address of its gate.
pub const ADDRESS: &str = "isotherm.gate";
/// The property of a request whose prompt was read.
pub const READ: &str = "isotherm.read";
/// The property of a request whose gate has opened because its body stalled: the time.
pub const STALLED: &str = "isotherm.stalled";

/// The log line for a request role without a gate behind it.
pub const MISSING: &str = "isotherm: `gate` is true, but no instance with the role `gate` follows this one in the filter chain: \
    requests continue without a fingerprint";

/// The period of [`HeaderGate::tick`] while requests are held.
const TICK: Duration = Duration::from_millis(250);
/// The longest time without a byte of a body that fills a buffer.
const STALL_MAX: Nanoseconds = 1_000_000_000;
/// The longest time between the opening of a gate and the next piece of a body that waited in a full buffer. A piece of a slow
/// client comes later. Envoy reads on when external processing and the replica have taken what it has buffered.
const RESUME_MAX: Nanoseconds = 100_000_000;
/// The fewest bytes that fill a buffer. A client that has sent less is slow.
const STALL_BYTES_MIN: u64 = 16 * 1024;
/// The most requests that one gate holds.
const HELD_MAX: usize = 65_536;

/// The address of a request at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateAddress {
    /// The gate's queue.
    pub queue: u32,
    /// The request's context in the gate.
    pub request: u32,
}

impl GateAddress {
    /// The value of [`ADDRESS`].
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        (u64::from(self.queue) << 32 | u64::from(self.request)).to_le_bytes()
    }

    /// The address in a value of [`ADDRESS`].
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let value = u64::from_le_bytes(value.try_into().ok()?);
        Some(Self {
            queue: u32::try_from(value >> 32).ok()?,
            request: u32::try_from(value & u64::from(u32::MAX)).ok()?,
        })
    }
}

/// The message that opens the gate for a request with these headers.
#[must_use]
pub fn encode_opening(request: u32, edits: Vec<HeaderEdit>) -> Vec<u8> {
    let headers = edits.into_iter().filter_map(|edit| match edit {
        HeaderEdit::Set(name, value) => Some(Header {
            name: name.to_owned(),
            value,
        }),
        HeaderEdit::Remove(_) => None, // the request role removes headers before the gate sees them
    });
    let message = DecisionRequest {
        request_id: request,
        headers: headers.collect(),
    };
    message.encode_to_vec()
}

/// The request that a message opens the gate for, with its headers.
#[must_use]
pub fn decode_opening(message: &[u8]) -> Option<DecisionRequest> {
    DecisionRequest::decode(message).ok()
}

/// Whether a full buffer had stalled a body whose next piece comes `now`. `stalled` is the value of [`STALLED`].
#[must_use]
pub fn was_buffer_full(stalled: &[u8], now: Nanoseconds) -> bool {
    let opened = stalled.try_into().map(Nanoseconds::from_le_bytes);
    opened.is_ok_and(|opened| now.saturating_sub(opened) <= RESUME_MAX)
}

/// The requests that a gate holds.
#[derive(Debug, Default)]
pub struct HeaderGate {
    held: BTreeMap<u32, Upload>,
}

/// The progress of a body.
#[derive(Clone, Copy, Debug)]
struct Upload {
    received_bytes: u64,
    since: Nanoseconds,
}

impl HeaderGate {
    /// Holds a request. Returns false when the gate holds too many already.
    #[must_use]
    pub fn hold(&mut self, id: u32, now: Nanoseconds) -> bool {
        let has_room = self.held.len() < HELD_MAX;
        if has_room {
            let upload = Upload {
                received_bytes: 0,
                since: now,
            };
            self.held.insert(id, upload);
        }
        has_room
    }

    /// Whether the gate holds a request.
    #[must_use]
    pub fn is_holding(&self, id: u32) -> bool {
        self.held.contains_key(&id)
    }

    /// Ends the hold of a request. Returns whether the gate held it.
    pub fn release(&mut self, id: u32) -> bool {
        self.held.remove(&id).is_some()
    }

    /// Releases the requests whose bodies have stalled. `received_bytes` is the host's count for a request, or `None` once its
    /// prompt was read.
    pub fn tick(
        &mut self,
        now: Nanoseconds,
        mut received_bytes: impl FnMut(u32) -> Option<u64>,
    ) -> Vec<u32> {
        let stalled = self.held.extract_if(.., |id, upload| {
            let received = received_bytes(*id).unwrap_or_default();
            if received != upload.received_bytes || now < upload.since {
                *upload = Upload {
                    received_bytes: received,
                    since: now,
                };
            }
            received >= STALL_BYTES_MIN && now - upload.since >= STALL_MAX
        });
        stalled.map(|(id, _)| id).collect()
    }

    /// The period in which the host must call [`Self::tick`]; `None` when it need not.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        (!self.held.is_empty()).then_some(TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanoseconds = 1_000_000;

    #[test]
    fn an_address_and_an_opening_are_read_as_they_were_written() {
        let address = GateAddress {
            queue: 7,
            request: u32::MAX,
        };
        assert_eq!(GateAddress::decode(&address.encode()), Some(address));
        assert_eq!(GateAddress::decode(b"short"), None);
        let edits = vec![
            HeaderEdit::set("x-isotherm-session", "s"),
            HeaderEdit::Remove("x-isotherm-tier".to_owned()),
        ];
        let opening = decode_opening(&encode_opening(9, edits));
        let opening = opening.unwrap();
        assert_eq!(opening.request_id, 9);
        let headers: Vec<_> = opening.headers.iter().map(|header| &*header.name).collect();
        assert_eq!(headers, ["x-isotherm-session"]);
        assert_eq!(decode_opening(b"\xff"), None);
    }

    #[test]
    fn a_gate_opens_where_a_body_fills_the_buffer_and_stalls() {
        let mut gate = HeaderGate::default();
        assert!(gate.hold(1, 0));
        assert!(gate.tick(500 * MS, |_| Some(20_000)).is_empty());
        assert!(gate.tick(1_400 * MS, |_| Some(40_000)).is_empty());
        assert!(gate.tick(2_399 * MS, |_| Some(40_000)).is_empty());
        assert_eq!(gate.tick(2_400 * MS, |_| Some(40_000)), [1]);
        assert_eq!(gate.period(), None);
        assert!(!gate.release(1));
    }

    #[test]
    fn a_piece_that_comes_late_is_a_slow_clients() {
        let opened = (5 * MS).to_le_bytes();
        assert!(was_buffer_full(&opened, 6 * MS));
        assert!(!was_buffer_full(&opened, 500 * MS));
        assert!(!was_buffer_full(b"", 6 * MS));
    }

    #[test]
    fn a_gate_waits_for_a_slow_client_and_for_a_decision() {
        let mut gate = HeaderGate::default();
        assert!(gate.hold(1, 0));
        assert!(gate.hold(2, 0));
        for second in 0..100 {
            let received = |id| (id == 1).then_some(1_000);
            assert!(gate.tick(second * 1_000 * MS, received).is_empty());
        }
        assert!(gate.release(1) && gate.release(2));
    }

    #[test]
    fn held_requests_are_bounded() {
        let mut gate = HeaderGate::default();
        for id in 0..HELD_MAX {
            assert!(gate.hold(u32::try_from(id).unwrap(), 0));
        }
        assert!(!gate.hold(u32::MAX, 0));
    }
}
