//! The response of a stream: it passes, and its outcome goes to the pool.

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, Metadata};
use envoy_types::pb::envoy::service::ext_proc::v3::{HttpBody, HttpHeaders};
use isotherm_fingerprint::names;

use super::super::mode::BodyMode;
use super::super::reader::{Attributes, ResponseReader};
use super::super::{body, response};
use super::{Inbound, RequestStream, decode_headers};

impl<I: Inbound> RequestStream<I> {
    pub(super) fn response_headers(
        &mut self,
        message: HttpHeaders,
        metadata: Option<&Metadata>,
        attributes: &Attributes,
    ) {
        let Some(reader) = &mut self.response else {
            self.outbox.push_back(response::response_headers(&[]));
            return;
        };
        let edits = reader.headers(&decode_headers(message.headers), metadata, attributes);
        if self.modes.response == BodyMode::None {
            reader.begin();
        }
        self.outbox.push_back(response::response_headers(&edits));
        if message.end_of_stream {
            self.finish(None);
        }
    }

    pub(super) fn response_body(&mut self, piece: HttpBody) {
        let is_end = piece.end_of_stream;
        if let Some(reader) = &mut self.response
            && reader.body(&piece.body)
        {
            self.lifecycle.begin_response();
        }
        if let Some(id) = self.response.as_mut().and_then(ResponseReader::take_new_id) {
            self.lifecycle.store_response(id);
        }
        let full_duplex = self.modes.response == BodyMode::FullDuplex;
        body::pass(&mut self.outbox, piece, full_duplex, false);
        if is_end {
            self.finish(None);
        }
    }

    /// Passes the outcome to the pool: the filter's in the response trailers, or the one that was read.
    ///
    /// The reply then ends the stream, because a stream that ends with its last reply needs no reset by Envoy. It stays
    /// open for a request that outlasts its response.
    pub(super) fn finish(&mut self, trailers: Option<&HeaderMap>) {
        let mut trailer = trailers.iter().flat_map(|trailers| &trailers.headers);
        let reported = trailer.find(|trailer| trailer.key == names::OUTCOME);
        match (reported, &self.response) {
            (None, Some(reader)) => self.lifecycle.finish(reader.outcome()),
            (reported, _) => self
                .lifecycle
                .finish_reported(reported.map(response::value)),
        }
        self.is_over = self.has_ended || !self.modes.sends_bodies();
    }

    /// Ends the response of a gateway that sends its headers alone: the stream lives as long as the response. A client that
    /// leaves before the end of the body looks the same.
    pub(super) fn finish_with_stream(&mut self) {
        if self.modes.response == BodyMode::None
            && self.lifecycle.is_in_flight()
            && let Some(outcome) = self.response.as_ref().and_then(ResponseReader::outcome)
        {
            self.lifecycle.finish(Some(outcome));
        }
    }
}
