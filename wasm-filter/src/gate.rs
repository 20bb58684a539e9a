//! The role behind the request role on a host that withholds the bodies of held headers: it holds the headers.

use std::cell::RefCell;
use std::rc::Rc;

use isotherm_decision_proto::Header;
use isotherm_fingerprint::names;
use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::gate::{self, GateAddress, HeaderGate};
use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, MapType};

use crate::host;

/// The shared data that numbers the queues, so that each worker has its own.
const QUEUE_NUMBER: &str = "isotherm.gate.queues";
/// The most attempts to get a number while other workers get theirs.
const ATTEMPTS_MAX: u32 = 1_000;

/// The state that all requests of a plugin instance share.
#[derive(Debug)]
pub(crate) struct GateRole {
    root: u32,
    queue: u32,
    gate: RefCell<HeaderGate>,
}

impl GateRole {
    /// Registers the queue of this worker. Runs in the root context.
    pub(crate) fn start(root: u32) -> Option<Self> {
        let name = format!("isotherm.gate.{}", queue_number()?);
        Some(Self {
            root,
            queue: hostcalls::register_shared_queue(&name).ok()?,
            gate: RefCell::default(),
        })
    }

    /// Opens the gate for the requests in the queue. Runs in the root context.
    pub(crate) fn on_queue(&self) {
        while let Ok(Some(message)) = hostcalls::dequeue_shared_queue(self.queue) {
            let Some(opening) = gate::decode_opening(&message) else {
                continue;
            };
            let request = opening.request_id;
            let is_held = self
                .gate
                .try_borrow_mut()
                .is_ok_and(|mut gate| gate.release(request));
            if is_held {
                host::in_request(self.root, request, || {
                    for Header { name, value } in &opening.headers {
                        let map = MapType::HttpRequestHeaders;
                        let _ = hostcalls::set_map_value_bytes(map, name, Some(value));
                    }
                    let _ = hostcalls::resume_http_request();
                });
            }
        }
    }

    /// Opens the gate for the requests whose bodies have stalled. Runs in the root context.
    pub(crate) fn on_timer(&self) {
        let Ok(mut gate) = self.gate.try_borrow_mut() else {
            return;
        };
        let received = |request| {
            let received = || match host::property(gate::READ) {
                Some(_) => None,
                None => host::received_bytes(),
            };
            host::in_request(self.root, request, received).flatten()
        };
        let now = host::now();
        for request in gate.tick(now, received) {
            host::in_request(self.root, request, || {
                let time = now.to_le_bytes();
                let _ = hostcalls::set_property(vec![gate::STALLED], Some(&time));
                let _ = hostcalls::resume_http_request();
            });
        }
        host::set_timer(gate.period());
    }

    /// Holds a request, unless too many are held. Runs in the request's context.
    fn hold(&self, request: u32) -> bool {
        let address = GateAddress {
            queue: self.queue,
            request,
        };
        let is_known =
            hostcalls::set_property(vec![gate::ADDRESS], Some(&address.encode())).is_ok();
        let Ok(mut gate) = self.gate.try_borrow_mut() else {
            return false;
        };
        let is_first = gate.period().is_none();
        let is_held = is_known && gate.hold(request, host::now());
        if is_held && is_first {
            let _ = hostcalls::set_effective_context(self.root);
            host::set_timer(gate.period());
            let _ = hostcalls::set_effective_context(request);
        }
        is_held
    }
}

/// A number that no other worker has.
fn queue_number() -> Option<u32> {
    for _ in 0..ATTEMPTS_MAX {
        let (last, version) = hostcalls::get_shared_data(QUEUE_NUMBER).ok()?;
        let last = last.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        let next = last.unwrap_or_default().wrapping_add(1);
        let value = next.to_le_bytes();
        if hostcalls::set_shared_data(QUEUE_NUMBER, Some(&value), version).is_ok() {
            return Some(next);
        }
    }
    None
}

/// Opens the gate of the current request with these headers. Runs in the context of the request role.
pub(crate) fn open(edits: Vec<HeaderEdit>) -> bool {
    let address = host::property(gate::ADDRESS);
    let Some(address) = address.and_then(|value| GateAddress::decode(&value)) else {
        return false;
    };
    let message = gate::encode_opening(address.request, edits);
    hostcalls::enqueue_shared_queue(address.queue, Some(&message)).is_ok()
}

/// A request at the gate.
pub(crate) struct GateContext {
    role: Rc<GateRole>,
    id: u32,
}

impl GateContext {
    pub(crate) fn new(role: &Rc<GateRole>, id: u32) -> Self {
        Self {
            role: Rc::clone(role),
            id,
        }
    }
}

impl Drop for GateContext {
    fn drop(&mut self) {
        if let Ok(mut gate) = self.role.gate.try_borrow_mut() {
            gate.release(self.id);
        }
    }
}

impl Context for GateContext {}

impl HttpContext for GateContext {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        if self.get_http_request_header_bytes(names::GATE).is_none() {
            return Action::Continue;
        }
        self.remove_http_request_header(names::GATE);
        if !end_of_stream && self.role.hold(self.id) {
            Action::Pause
        } else {
            Action::Continue
        }
    }

    /// A host that passes the body of held headers must hold it as well.
    fn on_http_request_body(&mut self, _: usize, _: bool) -> Action {
        let gate = self.role.gate.try_borrow();
        if gate.is_ok_and(|gate| gate.is_holding(self.id)) {
            Action::Pause
        } else {
            Action::Continue
        }
    }
}
