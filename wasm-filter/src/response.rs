//! The role behind the external processor, on the host.
//!
//! What was decided on the decision stream is watched by the role that asked there. Envoy ought not to lead such a request through
//! here at all; where it does, nothing is done with it.

use std::rc::Rc;

use isotherm_fingerprint::names;
use isotherm_wasm_filter_core::ResponseConfig;
use isotherm_wasm_filter_core::response::ResponseFlow;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::metrics::ResponseMetrics;
use crate::{answer, host};

/// One request and its answer, both of which pass without delay.
pub(crate) struct ResponseContext {
    config: ResponseConfig,
    metrics: Rc<ResponseMetrics>,
    /// `None` before the request's headers: the proxy's own answer to a request that was never sent is not
    /// an outcome. None either when the decision stream has decided on the request.
    flow: Option<ResponseFlow>,
}

impl ResponseContext {
    pub(crate) fn new(config: ResponseConfig, metrics: ResponseMetrics) -> Self {
        Self {
            config,
            metrics: Rc::new(metrics),
            flow: None,
        }
    }

    pub(crate) fn for_request(&self) -> Self {
        Self {
            config: self.config,
            metrics: Rc::clone(&self.metrics),
            flow: None,
        }
    }

    /// Sets the trailer: the host allows that in the callback of the last piece of the body, or of trailers.
    fn tell(&mut self) {
        if let Some(flow) = self.flow.take()
            && let Some(outcome) = answer::outcome(self, &flow, &self.metrics)
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
        let (flow, added) = ResponseFlow::start(self.config, header, host::now(self));
        if let Some((name, value)) = added {
            self.set_http_request_header(name, Some(value));
        }
        self.flow = Some(flow);
        Action::Continue
    }

    fn on_http_request_body(&mut self, _: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            let now = host::now(self);
            if let Some(flow) = &mut self.flow {
                flow.request_ended(now);
            }
        }
        Action::Continue
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        let now = host::now(self);
        if let Some(flow) = &mut self.flow {
            flow.request_ended(now);
        }
        Action::Continue
    }

    fn on_http_response_headers(&mut self, _: usize, _: bool) -> Action {
        if let Some(mut flow) = self.flow.take() {
            answer::headers(self, &mut flow);
            self.flow = Some(flow);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, piece_bytes: usize, end_of_stream: bool) -> Action {
        if let Some(mut flow) = self.flow.take() {
            answer::body(self, &mut flow, piece_bytes);
            self.flow = Some(flow);
        }
        if end_of_stream {
            self.tell();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.tell();
        Action::Continue
    }
}
