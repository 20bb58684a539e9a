//! The time limit of held bodies on the host: the root context responds to the clients whose bodies are late.

use std::cell::RefCell;
use std::time::Duration;

use isotherm_wasm_filter_core::body_timer::{self, BodyIndex, BodyTimer};
use isotherm_wasm_filter_core::response::Nanoseconds;
use isotherm_wasm_filter_core::{RequestConfig, error_body, gate};
use proxy_wasm::hostcalls;

use crate::metrics::Metric;
use crate::{access_log, host};

/// The bodies that a plugin instance holds.
#[derive(Debug)]
pub(crate) struct HeldBodies {
    root: u32,
    timer: RefCell<BodyTimer>,
    late: Metric,
}

impl HeldBodies {
    /// Starts the timer of the host. Runs in the root context.
    pub(crate) fn start(root: u32, config: &RequestConfig) -> Self {
        let timer = BodyTimer::new(config);
        if let Some(period) = timer.period() {
            host::set_timer(Some(period));
        }
        Self {
            root,
            timer: RefCell::new(timer),
            late: Metric::counter("isotherm_filter_body_timeouts"),
        }
    }

    /// Starts the time of a request that is held.
    pub(crate) fn hold(&self, request: u32) -> Option<BodyIndex> {
        self.timer.try_borrow_mut().ok()?.start(request)
    }

    /// Stops the time of a request that continues or ends.
    pub(crate) fn release(&self, index: &mut Option<BodyIndex>) {
        if let Some(index) = index.take()
            && let Ok(mut timer) = self.timer.try_borrow_mut()
        {
            timer.stop(index);
        }
    }

    /// Stops the time of a request that the root context releases.
    pub(crate) fn abandon(&self, request: u32) {
        if let Ok(mut timer) = self.timer.try_borrow_mut() {
            timer.abandon(request);
        }
    }

    /// The period that the host's timer needs.
    pub(crate) fn timer_period(&self) -> Option<Duration> {
        self.timer.try_borrow().ok()?.period()
    }

    /// Responds to the clients whose bodies are late. Runs in the root context.
    pub(crate) fn on_timer(&self, now: Nanoseconds) {
        let received =
            |request| host::in_request(self.root, request, host::received_bytes).flatten();
        let Ok(mut timer) = self.timer.try_borrow_mut() else {
            return;
        };
        let late = timer.tick(now, received);
        drop(timer); // a response may end its request at once
        for request in late {
            host::in_request(self.root, request, || self.respond());
        }
    }

    /// Responds to the client of the current request, unless its gate has opened.
    #[cold]
    #[inline(never)]
    fn respond(&self) {
        if host::property(gate::STALLED).is_some() {
            return;
        }
        self.late.add(1);
        access_log::reason(body_timer::CODE);
        let headers = vec![("content-type", "application/json")];
        let path = host::text_property(["request", "path"]).unwrap_or_default();
        let status = body_timer::STATUS;
        let body = error_body::for_path(&path, status, body_timer::body()).to_string();
        // An error means that the request is gone.
        let _ = hostcalls::send_http_response(status.into(), headers, Some(body.as_bytes()));
    }
}
