//! The parts of a request that a gateway sends, as the first message of its stream announces them.

use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::ProtocolConfiguration;

/// How a gateway sends the bodies of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyMode {
    /// No bodies.
    #[default]
    None,
    /// Piece by piece, after the reply to the headers; each piece waits for its reply.
    Streamed,
    /// As one message, after the reply to the headers.
    Buffered,
    /// Piece by piece, before the reply to the headers. The gateway keeps no copy: the service sends the body back.
    FullDuplex,
}

/// The modes of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamModes {
    pub(super) request: BodyMode,
    pub(super) response: BodyMode,
    /// Whether the gateway has announced its modes. NGINX Gateway Fabric does not: it sends headers and the whole body, and
    /// closes its side. Then it waits for the reply to the headers.
    pub(super) is_announced: bool,
}

impl BodyMode {
    fn of(mode: i32) -> Self {
        match BodySendMode::try_from(mode) {
            Ok(BodySendMode::Streamed) => Self::Streamed,
            Ok(BodySendMode::Buffered | BodySendMode::BufferedPartial) => Self::Buffered,
            Ok(BodySendMode::FullDuplexStreamed) => Self::FullDuplex,
            Ok(BodySendMode::None | BodySendMode::Grpc) | Err(_) => Self::None,
        }
    }
}

impl StreamModes {
    pub(super) fn of(config: &ProtocolConfiguration) -> Self {
        Self {
            request: BodyMode::of(config.request_body_mode),
            response: BodyMode::of(config.response_body_mode),
            is_announced: true,
        }
    }

    /// Whether the gateway sends request bodies.
    pub(super) fn sends_bodies(self) -> bool {
        !self.is_announced || self.request != BodyMode::None
    }

    /// Whether the gateway shows when the response begins.
    pub(super) fn tells_start(self) -> bool {
        matches!(self.response, BodyMode::Streamed | BodyMode::FullDuplex)
    }

    /// Whether body pieces may arrive before the reply to the headers, which can then wait for them.
    pub(super) fn sends_bodies_first(self) -> bool {
        !self.is_announced || self.request == BodyMode::FullDuplex
    }

    /// Whether the gateway limits the time until the next reply. It has no timer for bodies in full-duplex mode.
    pub(super) fn has_timer(self) -> bool {
        self.is_announced && self.request != BodyMode::FullDuplex
    }
}
