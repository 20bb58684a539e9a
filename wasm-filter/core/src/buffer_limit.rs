//! The bytes of a body that the host buffers, corrected by the host's 413.
//!
//! No property of the host shows its limit: the filter relies on its configuration, or on Envoy's default. Where the limit is
//! lower (Envoy Gateway sets 32 KiB), Envoy answers 413 to a request whose body the filter holds. The filter then names the
//! key that it needs, and holds less from then on.

use crate::RequestConfig;

/// The lowest limit that gateways set. Envoy Gateway sets it on every listener, Istio with its `EDGE` profile.
const GATEWAY_BYTES: usize = 32 * 1024;

/// Envoy's reason for a 413 of its own.
const PAYLOAD_TOO_LARGE: &str = "request_payload_too_large";

/// The way in which the host shows that its buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The host answered 413.
    Refusal,
    /// The host stopped reading, behind the filter's gate.
    Stall,
}

/// The bytes of a body that the host buffers, as far as the filter knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferLimit(usize);

impl BufferLimit {
    /// The limit of a configuration.
    #[must_use]
    pub fn of(config: &RequestConfig) -> Self {
        Self(config.buffer_limit())
    }

    /// The limit in bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.0
    }

    /// Whether a response tells that the host's buffer was exceeded. `details` looks up the host's reason.
    pub fn is_exceeded(status: Option<&[u8]>, details: impl FnOnce() -> Option<String>) -> bool {
        status == Some(b"413") && details().as_deref() == Some(PAYLOAD_TOO_LARGE)
    }

    /// Lowers the limit after the host's buffer was full at `held_bytes`, of which it had accepted `accepted_bytes`. Returns the
    /// log line.
    pub fn lower(&mut self, excess: Excess, held_bytes: usize, accepted_bytes: usize) -> String {
        let sign = match excess {
            Excess::Refusal => "answered 413",
            Excess::Stall => "stopped reading",
        };
        let lower = accepted_bytes.max(GATEWAY_BYTES.min(held_bytes / 2));
        self.0 = self.0.min(lower).max(1);
        format!(
            "isotherm: Envoy {sign} while the filter held {held_bytes} bytes of a body: its buffer limit is lower than \
             the filter knows. Set `request_body_buffer_limit` in the filter's configuration to the listener's \
             per_connection_buffer_limit_bytes, or raise that limit (Envoy Gateway: connection.bufferLimit of a \
             ClientTrafficPolicy). From now on this worker assumes a limit of {} bytes",
            self.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PluginConfig;

    fn limit(json: &str) -> BufferLimit {
        match PluginConfig::parse(json.as_bytes()).unwrap() {
            PluginConfig::Request(config) => BufferLimit::of(&config),
            PluginConfig::Response(_) | PluginConfig::Gate => panic!("another role"),
        }
    }

    #[test]
    fn a_limit_is_configured_or_envoys_default() {
        assert_eq!(limit("{}").bytes(), 1 << 20);
        let configured = limit(r#"{"request_body_buffer_limit":32768}"#);
        assert_eq!(configured.bytes(), 32_768);
    }

    #[test]
    fn a_413_lowers_the_limit_to_what_the_host_accepted_or_to_that_of_gateways() {
        for (held, accepted, expected) in [
            (220_000, 120_000, 120_000),
            (220_000, 0, 32_768),
            (40_000, 16_000, 20_000),
            (1, 0, 1),
        ] {
            let mut limit = limit("{}");
            let line = limit.lower(Excess::Refusal, held, accepted);
            assert_eq!(limit.bytes(), expected, "{held} {accepted}");
            assert!(line.contains("`request_body_buffer_limit`"), "{line}");
            assert!(
                line.contains(&format!("limit of {expected} bytes")),
                "{line}"
            );
        }
    }

    #[test]
    fn a_limit_never_rises() {
        let mut limit = limit(r#"{"request_body_buffer_limit":10000}"#);
        limit.lower(Excess::Stall, 220_000, 120_000);
        assert_eq!(limit.bytes(), 10_000);
    }

    #[test]
    fn only_envoys_own_413_tells_of_the_buffer() {
        let details = |text: &str| Some(text.to_owned());
        let own = || details(PAYLOAD_TOO_LARGE);
        assert!(BufferLimit::is_exceeded(Some(b"413"), own));
        assert!(!BufferLimit::is_exceeded(Some(b"413"), || details(
            "via_upstream"
        )));
        assert!(!BufferLimit::is_exceeded(Some(b"200"), own));
        assert!(!BufferLimit::is_exceeded(None, own));
    }
}
