//! The role behind the external processor, on the host.

use std::rc::Rc;

use isotherm_filter_logic::response::ResponseFlow;
use isotherm_filter_logic::{Edit, ResponseConfig};
use isotherm_fingerprint::names;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::metrics::ResponseMetrics;
use crate::{host, line};

/// One request and its answer, both of which pass without delay.
pub(crate) struct ResponseContext {
    config: ResponseConfig,
    metrics: Rc<ResponseMetrics>,
    /// `None` before the request's headers: the proxy's own answer to a request that was never sent is not
    /// an outcome.
    flow: Option<ResponseFlow>,
    /// The request's number on the line, if it was decided there.
    line: Option<u32>,
    /// This context's number on the host.
    id: u32,
}

impl ResponseContext {
    pub(crate) fn new(config: ResponseConfig, metrics: ResponseMetrics) -> Self {
        Self {
            config,
            metrics: Rc::new(metrics),
            flow: None,
            line: None,
            id: 0,
        }
    }

    pub(crate) fn for_request(&self, id: u32) -> Self {
        Self {
            config: self.config,
            metrics: Rc::clone(&self.metrics),
            flow: None,
            line: None,
            id,
        }
    }

    /// Tells the end on the line, or sets the trailer: the host allows that in the callback of the last piece of the
    /// body, or of trailers.
    fn tell(&mut self) {
        let Some(flow) = self.flow.take() else {
            return;
        };
        let served = host::text_property(self, ["upstream", "address"]);
        if let Some(outcome) = flow.outcome(served) {
            self.metrics.answered(outcome.prompt_tokens.is_some());
            match self.line {
                Some(request) => line::tell_end(self.id, request, outcome.encode()),
                None => self.set_http_response_trailer(names::OUTCOME, Some(&outcome.encode())),
            }
        }
    }
}

impl Context for ResponseContext {}

impl HttpContext for ResponseContext {
    fn on_http_request_headers(&mut self, _: usize, _: bool) -> Action {
        let header = |name| self.get_http_request_header_bytes(name);
        let (flow, added) = ResponseFlow::start(self.config, header, host::now(self));
        if let Some((name, value)) = added {
            self.set_http_request_header(name, Some(value));
        }
        self.flow = Some(flow);
        let line = self.get_http_request_header_bytes(names::LINE);
        self.line = line.and_then(|number| str::from_utf8(&number).ok()?.parse().ok());
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
            for edit in flow.headers(&self.get_http_response_headers_bytes()) {
                match edit {
                    Edit::Remove(name) => self.set_http_response_header_bytes(&name, None),
                    Edit::Set(name, value) => {
                        self.set_http_response_header_bytes(name, Some(&value));
                    }
                }
            }
            self.flow = Some(flow);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, piece_bytes: usize, end_of_stream: bool) -> Action {
        if let Some(mut flow) = self.flow.take() {
            let wanted = flow.body_came(piece_bytes, || host::now(self));
            if !wanted.is_empty()
                && let Some(bytes) = self.get_http_response_body(wanted.start, wanted.len())
            {
                flow.body(&bytes);
            }
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
