//! The role behind the external processor, on the host.
//!
//! The request role reads the responses to requests that were decided on the decision stream. Envoy's configuration keeps
//! such requests out of this role; the role ignores them otherwise.

use isotherm_fingerprint::names;
use isotherm_wasm_filter_core::ResponseConfig;
use isotherm_wasm_filter_core::response::ResponseFlow;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::host;
use crate::metrics::ResponseMetrics;

/// The state that all requests of a plugin instance share.
#[derive(Clone, Copy)]
pub(crate) struct ResponseRole {
    pub(crate) config: ResponseConfig,
    pub(crate) metrics: ResponseMetrics,
}

/// A request and its response, which pass without delay.
pub(crate) struct ResponseContext {
    role: ResponseRole,
    /// `None` before the request's headers, because the proxy's own response to a request that was not sent is no outcome;
    /// and for a request that was decided on the decision stream.
    flow: Option<ResponseFlow>,
}

impl ResponseContext {
    pub(crate) fn new(role: ResponseRole) -> Self {
        Self { role, flow: None }
    }

    fn end_request(&mut self) {
        if let Some(flow) = &mut self.flow {
            flow.end_request(host::now());
        }
    }

    /// Sets the trailer. The host allows that in the callback of the last piece of the body or of trailers.
    fn report_outcome(&mut self) {
        if let Some(flow) = self.flow.take()
            && let Some(outcome) = host::outcome(&flow, &self.role.metrics)
        {
            self.set_http_response_trailer(names::OUTCOME, Some(&outcome));
        }
    }
}

impl Context for ResponseContext {}

impl HttpContext for ResponseContext {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let header = |name| self.get_http_request_header_bytes(name);
        if header(names::DECIDED).is_some() {
            return Action::Continue;
        }
        let (flow, report) = ResponseFlow::new(self.role.config, header, host::now());
        if let Some((name, value)) = report {
            self.set_http_request_header(name, Some(value));
        }
        self.flow = Some(flow);
        Action::Continue
    }

    fn on_http_request_body(&mut self, _: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            self.end_request();
        }
        Action::Continue
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        self.end_request();
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        if let Some(flow) = &mut self.flow {
            host::response_headers(flow);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, piece_bytes: usize, end_of_stream: bool) -> Action {
        if let Some(flow) = &mut self.flow {
            host::response_body(flow, piece_bytes);
        }
        if end_of_stream {
            self.report_outcome();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.report_outcome();
        Action::Continue
    }
}
