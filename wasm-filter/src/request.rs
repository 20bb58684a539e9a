//! The role in front of the external processor, on the host. What it asks about on its decision stream it watches to the end itself.

use std::rc::Rc;

use isotherm_wasm_filter_core::request::{
    RESPONSE_TRAILERS_TO_REMOVE, Release, RequestFlow, strip,
};
use isotherm_wasm_filter_core::response::ResponseFlow;
use isotherm_wasm_filter_core::{Edit, RequestConfig};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::decision_stream::Shared;
use crate::metrics::{RequestMetrics, ResponseMetrics};
use crate::{answer, host};

/// How much of the body is copied in at once, in bytes: what a processor's own cache holds. One read of the host may bring
/// a megabyte, and a copy of that has left the cache before it is read.
const COPY_BYTES_MAX: usize = 128 * 1024;

/// One request, held back while its body is read.
pub(crate) struct RequestContext {
    config: Rc<RequestConfig>,
    metrics: Rc<Metrics>,
    /// `None` before the request's headers, and once the request has been let go.
    flow: Option<RequestFlow>,
    decision_stream: Option<Shared>,
    /// This context's number on the host, and the request's on the decision stream.
    id: u32,
    /// Whether the decision stream was asked about it.
    is_asked: bool,
    /// The answer to what was decided on the decision stream, once it comes.
    answer: Option<Box<ResponseFlow>>,
}

/// What this role counts.
struct Metrics {
    requests: RequestMetrics,
    /// Of requests that are decided on the decision stream.
    answers: ResponseMetrics,
}

impl RequestContext {
    pub(crate) fn new(config: Rc<RequestConfig>, decision_stream: Option<Shared>) -> Self {
        let metrics = Metrics {
            requests: RequestMetrics::define(),
            answers: ResponseMetrics::define(),
        };
        Self {
            config,
            metrics: Rc::new(metrics),
            flow: None,
            decision_stream,
            id: 0,
            is_asked: false,
            answer: None,
        }
    }

    pub(crate) fn for_request(&self, id: u32) -> Self {
        Self {
            config: Rc::clone(&self.config),
            metrics: Rc::clone(&self.metrics),
            flow: None,
            decision_stream: self.decision_stream.clone(),
            id,
            is_asked: false,
            answer: None,
        }
    }

    fn apply(&self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::Remove(name) => self.set_http_request_header_bytes(name, None),
                Edit::Set(name, value) => self.set_http_request_header_bytes(name, Some(value)),
            }
        }
    }

    /// Whether the client's protocol puts no bound on how much one read brings.
    fn reads_may_be_large(&self) -> bool {
        host::text_property(self, ["request", "protocol"])
            .is_none_or(|protocol| protocol.starts_with("HTTP/1"))
    }

    /// Lets the request go, or asks on the decision stream where it is to go.
    fn let_go(&mut self, flow: RequestFlow) -> Action {
        let release = flow.release(|| host::text_property(self, ["source", "address"]));
        self.metrics.requests.released(&release);
        match self.ask(release) {
            Ok(()) => Action::Pause,
            Err(edits) => {
                self.apply(&edits);
                Action::Continue
            }
        }
    }

    /// Asks on the decision stream, or gives the request's headers again.
    fn ask(&mut self, release: Release) -> Result<(), Vec<Edit>> {
        let (Some(decision_stream), Some(target)) = (&self.decision_stream, &release.target) else {
            return Err(release.edits);
        };
        let Ok(mut decision_stream) = decision_stream.try_borrow_mut() else {
            return Err(release.edits);
        };
        decision_stream.ask(self.id, target, release.edits)?;
        self.is_asked = true;
        Ok(())
    }

    /// What watches the answer, which begins to come, if the decision stream has decided on the request.
    fn decided(&self) -> Option<Box<ResponseFlow>> {
        let decision_stream = self.decision_stream.as_ref().filter(|_| self.is_asked)?;
        decision_stream.try_borrow_mut().ok()?.answer(self.id)
    }

    /// The answer has come to its end.
    fn tell(&mut self) {
        if let Some(flow) = self.answer.take()
            && let Some(outcome) = answer::outcome(self, &flow, &self.metrics.answers)
        {
            self.tell_end(Some(outcome));
        }
    }

    /// Says on the decision stream that the request is over, if that was not said.
    fn tell_end(&self, outcome: Option<String>) {
        if let Some(decision_stream) = &self.decision_stream
            && self.is_asked
            && let Ok(mut decision_stream) = decision_stream.try_borrow_mut()
        {
            decision_stream.tell_end(self.id, outcome);
        }
    }
}

impl Drop for RequestContext {
    /// The request is over. Where nobody has told how, its client went away.
    fn drop(&mut self) {
        self.tell_end(None);
    }
}

impl Context for RequestContext {}

impl HttpContext for RequestContext {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        let headers = self.get_http_request_headers_bytes();
        self.apply(&strip(&self.config, &headers));
        let mut flow = RequestFlow::start(Rc::clone(&self.config), &headers, !end_of_stream);
        if flow.holds_back() {
            if flow.outgrows_the_buffer() && self.reads_may_be_large() {
                flow.let_go_with_the_first_piece();
            }
            self.flow = Some(flow);
            Action::Pause
        } else {
            self.let_go(flow)
        }
    }

    fn on_http_request_body(&mut self, buffered_bytes: usize, end_of_stream: bool) -> Action {
        let Some(mut flow) = self.flow.take() else {
            return Action::Continue;
        };
        // While a request is held back, the host's buffer grows: the new bytes are those behind the known ones.
        let mut is_full = false;
        while flow.body_bytes() < buffered_bytes {
            let start = flow.body_bytes();
            let bytes = (buffered_bytes - start).min(COPY_BYTES_MAX);
            match self.get_http_request_body(start, bytes) {
                Some(piece) if !piece.is_empty() => is_full = flow.body(&piece),
                Some(_) | None => break,
            }
        }
        if is_full || end_of_stream {
            self.let_go(flow)
        } else {
            self.flow = Some(flow);
            Action::Pause
        }
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        match self.flow.take() {
            Some(flow) => self.let_go(flow),
            None => Action::Continue,
        }
    }

    fn on_http_response_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        if let Some(mut flow) = self.decided() {
            answer::headers(self, &mut flow);
            self.answer = Some(flow);
        }
        if end_of_stream {
            self.tell();
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, piece_bytes: usize, end_of_stream: bool) -> Action {
        if let Some(mut flow) = self.answer.take() {
            answer::body(self, &mut flow, piece_bytes);
            self.answer = Some(flow);
        }
        if end_of_stream {
            self.tell();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _: usize) -> Action {
        self.tell();
        for name in RESPONSE_TRAILERS_TO_REMOVE {
            self.remove_http_response_trailer(name);
        }
        Action::Continue
    }
}
