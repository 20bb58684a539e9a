//! The request of a stream: its headers, its body where the service reads it, and the reply with the decision.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::service::ext_proc::v3::{HttpBody, HttpHeaders};
use isotherm_fingerprint::names;
use isotherm_fingerprint::paths::PathUse;
use isotherm_wasm_filter_core::Headers;
use isotherm_wasm_filter_core::response::orca;

use super::super::held_bytes::HeldBytes;
use super::super::mode::BodyMode;
use super::super::prompt::PromptReader;
use super::super::reader::ResponseReader;
use super::super::response::{self, RequestPhase};
use super::super::{body, subset};
use super::{Inbound, RequestStream, decode_headers};
use crate::frontends::request::reply::Reply;
use crate::frontends::request::{RequestHead, RouteStatus};

impl<I: Inbound> RequestStream<I> {
    pub(super) fn headers(&mut self, message: HttpHeaders, metadata: Option<&Metadata>) {
        let has_body = !message.end_of_stream;
        self.has_ended = !has_body;
        let headers = decode_headers(message.headers);
        let head = self.read_head(&headers, metadata);
        self.lifecycle.note_path(&head.path);
        let table = self.lifecycle.context().pool_registry.table();
        let is_served = head.path_use(&table) == PathUse::Serve;
        let may_read = has_body && is_served && !head.has_fingerprint && !head.is_decided;
        let sends_bodies = self.modes.sends_bodies() && self.modes.request != BodyMode::Streamed;
        let can_ask = self.settings.config.mode_override && !sends_bodies;
        let reader = (may_read && (sends_bodies || can_ask)).then(|| {
            let held = HeldBytes::none(Arc::clone(&self.lifecycle.context().metrics));
            PromptReader::start(&self.settings, held, &with_path(headers), has_body)
        });
        match reader.flatten() {
            None => {
                if self.modes.request == BodyMode::Buffered {
                    self.form.response_override = Some(self.modes);
                }
                self.route(head);
            }
            Some(reader) => {
                if can_ask {
                    self.modes.request = BodyMode::FullDuplex;
                    self.outbox.push_back(response::ask_for_body());
                } else if !self.modes.sends_bodies_first() {
                    self.form.phase = RequestPhase::Body;
                    let forged = std::mem::take(&mut self.form.forged);
                    self.outbox
                        .push_back(response::await_body(forged, self.modes));
                }
                self.reading = Some(Box::new((head, reader)));
            }
        }
    }

    /// Reads a request's headers, and the gateway's restriction to some replicas from the metadata.
    fn read_head(&mut self, headers: &Headers, metadata: Option<&Metadata>) -> RequestHead {
        let is_trusted = self.settings.trusts_headers(self.modes);
        let known = headers.iter().map(|(name, value)| (&**name, &**value));
        let known = known.filter(|(name, _)| is_trusted || !name.starts_with(names::PREFIX));
        let metrics = &self.lifecycle.context().metrics;
        let mut head = RequestHead::read(known, self.listener, metrics);
        if !is_trusted {
            // A body that is read later may state other objectives.
            head.take_edits(&self.settings.objectives(headers), metrics);
        }
        head.request.subset = metadata.and_then(subset::read);
        // Envoy AI Gateway speaks the endpoint picker protocol also where the filter is in front of it.
        self.form.is_picker = !is_trusted || self.modes.sends_bodies();
        head.needs_endpoint = self.form.is_picker;
        self.form.endpoints_max = self.settings.config.endpoints_max;
        if !is_trusted {
            self.form.forged = self.settings.forged(headers);
            head.request.tenant = self.settings.tenant(headers);
        }
        let wants_report = |(name, _): &(String, _)| name == orca::FORMAT_HEADER;
        self.form.client_wants_report = headers.iter().any(wants_report);
        head
    }

    pub(super) fn body(&mut self, piece: HttpBody) {
        self.has_ended |= piece.end_of_stream;
        let Some(reading) = &mut self.reading else {
            if self.has_ended
                && let Some(response) = &mut self.response
            {
                response.end_request();
            }
            let full_duplex = self.modes.request == BodyMode::FullDuplex;
            body::pass(&mut self.outbox, piece, full_duplex, true);
            return;
        };
        // A buffered body is one message, which ends the request unless trailers follow.
        let is_whole = self.modes.request == BodyMode::Buffered;
        let can_decide = reading.1.feed(piece);
        if is_whole {
            reading.1.end_body();
        }
        if can_decide || is_whole {
            self.decide();
        }
    }

    pub(super) fn trailers(&mut self) {
        self.has_ended = true;
        if let Some(reading) = &mut self.reading {
            reading.1.end_body();
            self.has_trailers = true;
            self.decide();
        } else {
            self.outbox.push_back(response::request_trailers());
        }
    }

    /// Decides on the request whose body was read.
    fn decide(&mut self) {
        if let Some(reading) = self.reading.take() {
            let (mut head, reader) = *reading;
            let (edits, body) = reader.finish();
            head.apply(&edits, &self.lifecycle.context().metrics);
            self.held = Some(body);
            self.route(head);
        }
    }

    fn route(&mut self, mut head: RequestHead) {
        head.request.tells_start = self.modes.tells_start();
        let table = self.lifecycle.context().pool_registry.table();
        match self.lifecycle.route(head, &table) {
            RouteStatus::Replied(reply) => self.reply(reply),
            RouteStatus::Queued { timeout, decision } => {
                self.decision = Some(decision);
                if self.modes.has_timer() {
                    self.outbox.push_back(response::wait(timeout));
                }
            }
        }
    }

    /// Replies to the request, and sends the body back that was read.
    pub(super) fn reply(&mut self, mut reply: Reply) {
        self.lifecycle.context().metrics.count_request(reply.kind());
        let is_passed =
            matches!(&reply, Reply::PassThrough(reply) if reply.is_of_other_application);
        let needs_bodies = self.modes.sends_bodies() || self.modes.response != BodyMode::None;
        // Without the stream, Envoy sends nothing more of the request.
        let ends_here = is_passed && !needs_bodies;
        let is_immediate = matches!(reply, Reply::Immediate(_));
        self.is_over = is_immediate || ends_here;
        let decision = match &mut reply {
            Reply::Route(route) if self.form.is_picker => Some(route.decision.take()),
            Reply::Route(route) => Some(route.decision.clone()),
            Reply::Forward(forward) => Some(forward.decision.clone()),
            Reply::PassThrough(_) | Reply::Immediate(_) => None,
        };
        let wants_report = self.form.client_wants_report;
        self.response = decision.map(|decision| ResponseReader::start(wants_report, decision));
        if matches!(reply, Reply::Route(_)) && self.modes.response != BodyMode::None {
            if self.modes.tells_start() {
                self.hangs = Some(self.lifecycle.context().pool_registry.hangs());
            }
            self.form.reads_response = true;
        }
        self.outbox.push_back(response::encode(reply, &self.form));
        let held = self.held.take();
        if is_immediate {
            return;
        }
        if self.form.phase == RequestPhase::Headers {
            let full_duplex = self.modes.request == BodyMode::FullDuplex;
            for piece in held.into_iter().flat_map(|held| held.pieces) {
                body::pass(&mut self.outbox, piece, full_duplex, true);
            }
            if self.has_trailers {
                self.outbox.push_back(response::request_trailers());
            }
        }
    }
}

/// Gives a request without `:path` that of chats. Some gateways send no pseudo-headers.
fn with_path(mut headers: Vec<(String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    if !headers.iter().any(|(name, _)| name == ":path") {
        headers.push((":path".to_owned(), b"/v1/chat/completions".to_vec()));
    }
    headers
}
