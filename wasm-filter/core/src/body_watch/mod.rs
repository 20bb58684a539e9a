//! Finds out whether the host passes the body of a request whose headers the filter holds.
//!
//! Envoy does so only with `allow_on_headers_stop_iteration: true` in the filter's `PluginConfig`. Without the field, Envoy
//! withholds the body as well, and the request would wait for ever. No property shows the field, so the first requests of
//! each worker show it:
//!
//! ```text
//!           a body arrives while its request is held
//!   Unknown ─────────────────────────────────────────────> Passed     the filter holds requests and reads their prompts
//!    ^   │
//!    │   │ Envoy has received bytes and passes none: release the request without its prompt
//!    │   v
//!    │  probe ───────────────────────────────────────────> Withheld   the filter holds no request for its prompt
//!    │   │      PROOFS bodies follow their release at once
//!    └───┘ the body does not follow at once: patience doubles
//! ```
//! - A slow client proves nothing: Envoy has received none of its bytes. Its request stays held, for as long as
//!   [`crate::body_timer`] allows.
//! - A filter in front that delays the body proves nothing: its body does not follow the release at once. The patience
//!   grows until such a body arrives in time.
//! - A body that Envoy withheld follows its release before any other callback, because Envoy passes it in the same call.
//!
//! Rejected: sharing the finding between the workers through the host's shared data. It would outlive the listener, and the
//! corrected field would have no effect.

use std::time::Duration;

use crate::response::Nanoseconds;

/// The period of [`BodyWatch::tick`] while requests are held.
const TICK: Duration = Duration::from_millis(10);
/// The period of [`BodyWatch::tick`] while a probe waits for its body.
const PROBE_TICK: Duration = Duration::from_millis(1);
/// The shortest time that a request is held whose bytes Envoy has received and does not pass.
const PATIENCE_MIN: Nanoseconds = 5_000_000;
/// The longest time that a request is held whose bytes Envoy has received and does not pass.
const PATIENCE_MAX: Nanoseconds = 320_000_000;
/// The bodies that must follow their release at once. A second one guards against a coincidence.
const PROOFS: u32 = 2;
/// The most requests that are watched while the host's behaviour is unknown.
const HELD_MAX: usize = 1_024;

/// The log line for an Envoy that withholds bodies.
pub const WITHHELD: &str = "isotherm: Envoy withholds the bodies of requests that the filter holds, so the filter reads no \
    prompts: requests continue without a fingerprint, routed by session and load. Set `allow_on_headers_stop_iteration: \
    true` in the filter's PluginConfig (Istio: by an EnvoyFilter; Envoy Gateway: by an EnvoyPatchPolicy), or add an instance with the role `gate`";

/// The host's treatment of the body of a held request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyDelivery {
    /// No request has shown it yet.
    Unknown,
    /// The host passes the body to the filter.
    Passed,
    /// The host withholds the body until the filter releases the request.
    Withheld,
}

/// The knowledge of one plugin instance about its host, and the requests that are held to gain it. `T` is what the caller
/// needs to release a request without its prompt.
#[derive(Debug)]
pub struct BodyWatch<T> {
    delivery: BodyDelivery,
    /// A list, because it is short and lives shortly: its code is a fraction of a map's.
    held: Vec<HeldRequest<T>>,
    /// The requests that were released by the last tick to see whether their bodies follow.
    probes: Vec<u32>,
    proofs: u32,
    patience: Nanoseconds,
}

/// A request that waits for the first piece of its body.
#[derive(Debug)]
struct HeldRequest<T> {
    id: u32,
    since: Nanoseconds,
    /// The bytes that the host had received when the request was held.
    received_bytes: u64,
    data: T,
}

impl<T> Default for BodyWatch<T> {
    fn default() -> Self {
        Self {
            delivery: BodyDelivery::Unknown,
            held: Vec::new(),
            probes: Vec::new(),
            proofs: 0,
            patience: PATIENCE_MIN,
        }
    }
}

impl<T> BodyWatch<T> {
    /// The host's behaviour, as far as it is known.
    #[must_use]
    pub fn delivery(&self) -> BodyDelivery {
        self.delivery
    }

    /// Watches a request that the filter holds from now on. `received_bytes` is the host's count of its bytes. Returns false
    /// when too many requests are watched already.
    #[must_use]
    pub fn hold(&mut self, id: u32, now: Nanoseconds, received_bytes: u64, data: T) -> bool {
        self.end_probes();
        if self.held.len() >= HELD_MAX {
            return false;
        }
        let request = HeldRequest {
            id,
            since: now,
            received_bytes,
            data,
        };
        self.held.push(request);
        true
    }

    /// Records that a piece of a body has arrived. Returns whether its request is still held.
    pub fn on_body(&mut self, id: u32) -> bool {
        if self.delivery == BodyDelivery::Passed {
            return true;
        }
        if self.held.iter().any(|request| request.id == id) {
            self.delivery = BodyDelivery::Passed;
            self.held = Vec::new();
            return true;
        }
        if let Some(probe) = self.probes.iter().position(|probe| *probe == id) {
            self.probes.swap_remove(probe);
            self.proofs += 1;
            if self.proofs >= PROOFS {
                self.delivery = BodyDelivery::Withheld;
            }
        }
        false
    }

    /// Records that a piece of the body of a held request has arrived that is not watched. Beyond the bound of watched requests
    /// a client could keep the doubt up: requests without bodies prove nothing.
    pub fn on_unwatched_body(&mut self) {
        if self.delivery == BodyDelivery::Unknown {
            self.delivery = BodyDelivery::Passed;
            self.held = Vec::new();
        }
    }

    /// Records that a request is over.
    pub fn on_end(&mut self, id: u32) {
        self.held.retain(|request| request.id != id);
        self.probes.retain(|probe| *probe != id);
    }

    /// The requests that must continue now without their prompts. `received_bytes` is the host's count for a request.
    pub fn tick(
        &mut self,
        now: Nanoseconds,
        mut received_bytes: impl FnMut(u32) -> Option<u64>,
    ) -> Vec<(u32, T)> {
        self.end_probes();
        let (delivery, patience) = (self.delivery, self.patience);
        let probes = &mut self.probes;
        let due = self.held.extract_if(.., |request| {
            let received = received_bytes(request.id);
            let is_suspect = received.is_some_and(|bytes| bytes > request.received_bytes)
                && has_passed(request.since, now, patience);
            if is_suspect {
                probes.push(request.id);
            }
            is_suspect || delivery == BodyDelivery::Withheld
        });
        due.map(|request| (request.id, request.data)).collect()
    }

    /// The period in which the host must call [`Self::tick`]; `None` when it need not.
    #[must_use]
    pub fn period(&self) -> Option<Duration> {
        if !self.probes.is_empty() {
            return Some(PROBE_TICK);
        }
        (!self.held.is_empty()).then_some(TICK)
    }

    /// Records that another callback came before the bodies of the probes.
    fn end_probes(&mut self) {
        if !self.probes.is_empty() {
            self.probes.clear();
            self.proofs = 0;
            self.patience = (self.patience * 2).min(PATIENCE_MAX);
        }
    }
}

/// Whether this time has passed. A clock that was set back ends every wait.
fn has_passed(since: Nanoseconds, now: Nanoseconds, duration: Nanoseconds) -> bool {
    now.checked_sub(since)
        .is_none_or(|elapsed| elapsed >= duration)
}

#[cfg(test)]
mod tests;
