//! The outcome of a request, which the filter reports to the service in a response trailer or on the decision stream.
//!
//! The encoding is plain `name=value` pairs, not a packed form: operators read the trailer in access logs, and it comes once
//! per response. The parser treats every byte as hostile, because an engine's response may contain the trailer.

use alloc::string::{String, ToString};
use core::fmt::Write as _;
use core::net::SocketAddr;
use core::str::FromStr;

use crate::{number, stored_response};

/// The load that an engine reports in a response (ORCA's `endpoint-load-metrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests accepted and not yet in the continuous batch.
    pub waiting: u32,
    /// Requests in the continuous batch, if the engine reports them.
    pub running: Option<u32>,
    /// The used share of the KV cache, from 0 to 1, if the engine reports it.
    pub kv_usage: Option<f32>,
}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// HTTP status of the response.
    pub status: u16,
    /// Microseconds from the end of the request to the first body byte of the response; from the end of the request's
    /// headers where the response precedes the end of the request.
    pub ttft_us: Option<u64>,
    /// Whether the response is a stream of events. The first byte of a whole response comes with the last token.
    pub is_stream: bool,
    /// `usage`: prompt tokens as counted by the engine.
    pub prompt_tokens: Option<u32>,
    /// `usage`: prompt tokens in the engine's cache.
    pub cached_tokens: Option<u32>,
    /// `usage`: output tokens.
    pub completion_tokens: Option<u32>,
    /// The engine's load report.
    pub load: Option<LoadReport>,
    /// The id of the response, where the engine may store it ([`stored_response`]).
    pub response_id: Option<String>,
    /// The endpoint that responded, after any retry: `ip:port`, or `envoy://NAME/...` for a listener inside Envoy.
    pub upstream: Option<String>,
    /// The number of the proxy's attempts, where the request did not go to the selected replica at last.
    pub attempts: Option<u32>,
    /// The proxy's cluster of the endpoint, in the same case.
    pub cluster: Option<String>,
    /// Whether the replica broke: its connection ended after it got the request and before the response began.
    pub is_broken: bool,
    /// Whether a timeout of the proxy ended the request.
    pub is_timeout: bool,
    /// Whether the proxy responded without sending the request to any endpoint.
    pub is_unsent: bool,
    /// Whether a response with a status of success is no answer: a stream that begins with an error, or neither JSON nor a stream of events.
    pub is_error: bool,
}

/// The version that [`Outcome::encode`] writes.
pub const VERSION: u8 = 1;
/// The longest value that [`Outcome::parse`] accepts, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 512;

/// The length of most values, so that they allocate once.
const VALUE_BYTES_EXPECTED: usize = 160;
/// The scheme of the address of a listener inside Envoy.
const INTERNAL_SCHEME: &str = "envoy://";
/// The longest internal address without its scheme, in bytes.
const INTERNAL_BYTES_MAX: usize = 64;

/// The longest name of a cluster, in bytes. An outcome leaves a longer one out.
const CLUSTER_BYTES_MAX: usize = 128;

/// The reason why a value is not an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum OutcomeError {
    /// The value is longer than [`OUTCOME_BYTES_MAX`].
    #[error("outcome is longer than {OUTCOME_BYTES_MAX} bytes")]
    TooLong,
    /// The value is not a list of `name=value` pairs, or has a name twice.
    #[error("outcome is not a list of name=value pairs, each name once")]
    NotPairs,
    /// The value does not begin with the version of this build.
    #[error("outcome does not begin with v={VERSION}: update the older of filter and service")]
    UnknownVersion,
    /// The status is missing.
    #[error("outcome has no status")]
    NoStatus,
    /// The value of this field has the wrong type.
    #[error("outcome has a bad value for {0}")]
    BadValue(&'static str),
}

impl Outcome {
    /// [`Self::ttft_us`], if the first byte comes with the first token.
    pub fn first_token_us(&self) -> Option<u64> {
        self.ttft_us.filter(|_| self.is_stream)
    }

    /// The encoding:
    /// `v=1;status=200;ttft_us=..;stream=1;prompt=..;cached=..;completion=..;waiting=..;running=..;kv=..;broke=1;timeout=1;unsent=1;error=1;response=..;attempts=..;cluster=..;upstream=..`,
    /// without unknown fields.
    pub fn encode(&self) -> String {
        let mut value = String::with_capacity(VALUE_BYTES_EXPECTED);
        push(&mut value, "v=", Some(VERSION));
        push(&mut value, ";status=", Some(self.status));
        push(&mut value, ";ttft_us=", self.ttft_us);
        push(&mut value, ";stream=", self.is_stream.then_some(1_u8));
        push(&mut value, ";prompt=", self.prompt_tokens);
        push(&mut value, ";cached=", self.cached_tokens);
        push(&mut value, ";completion=", self.completion_tokens);
        if let Some(load) = self.load {
            push(&mut value, ";waiting=", Some(load.waiting));
            push(&mut value, ";running=", load.running);
            if let Some(usage) = load.kv_usage.filter(is_share) {
                // Writing to a String cannot fail.
                let _ = write!(value, ";kv={usage}");
            }
        }
        push(&mut value, ";broke=", self.is_broken.then_some(1_u8));
        push(&mut value, ";timeout=", self.is_timeout.then_some(1_u8));
        push(&mut value, ";unsent=", self.is_unsent.then_some(1_u8));
        push(&mut value, ";error=", self.is_error.then_some(1_u8));
        let response = self.response_id.as_deref();
        if let Some(id) = response.filter(|id| stored_response::is_id(id.as_bytes())) {
            value.push_str(";response=");
            value.push_str(id);
        }
        push(&mut value, ";attempts=", self.attempts);
        if let Some(cluster) = self.cluster.as_deref().filter(|text| is_name(text)) {
            value.push_str(";cluster=");
            value.push_str(cluster);
        }
        if let Some(upstream) = self.upstream.as_deref().filter(|text| is_address(text)) {
            value.push_str(";upstream=");
            value.push_str(upstream);
        }
        value
    }

    /// Parses a value that [`Outcome::encode`] wrote. Any bytes are safe. Unknown names are ignored, so that a newer filter
    /// may report more. A value that is not an outcome of this version fails.
    pub fn parse(value: &[u8]) -> Result<Self, OutcomeError> {
        if value.len() > OUTCOME_BYTES_MAX {
            return Err(OutcomeError::TooLong);
        }
        let value = str::from_utf8(value).map_err(|_| OutcomeError::NotPairs)?;
        let mut pairs = value.split(';');
        let version = pairs.next().and_then(|pair| pair.strip_prefix("v="));
        if version.and_then(number::parse) != Some(VERSION) {
            return Err(OutcomeError::UnknownVersion);
        }
        let mut outcome = Self::default();
        let (mut status, mut is_stream) = (None, None);
        let (mut is_broken, mut is_error) = (None, None);
        let (mut is_timeout, mut is_unsent) = (None, None);
        let (mut waiting, mut running, mut kv_usage) = (None, None, None);
        for pair in pairs {
            let (name, value) = pair.split_once('=').ok_or(OutcomeError::NotPairs)?;
            match name {
                "status" => set("status", &mut status, number::parse(value)),
                "ttft_us" => set("ttft_us", &mut outcome.ttft_us, number::parse(value)),
                "stream" => set("stream", &mut is_stream, (value == "1").then_some(true)),
                "broke" => set("broke", &mut is_broken, (value == "1").then_some(true)),
                "error" => set("error", &mut is_error, (value == "1").then_some(true)),
                "timeout" => set("timeout", &mut is_timeout, (value == "1").then_some(true)),
                "unsent" => set("unsent", &mut is_unsent, (value == "1").then_some(true)),
                "attempts" => set("attempts", &mut outcome.attempts, number::parse(value)),
                "cluster" => set("cluster", &mut outcome.cluster, text(value, is_name)),
                "prompt" => set("prompt", &mut outcome.prompt_tokens, number::parse(value)),
                "cached" => set("cached", &mut outcome.cached_tokens, number::parse(value)),
                "completion" => {
                    let tokens = &mut outcome.completion_tokens;
                    set("completion", tokens, number::parse(value))
                }
                "waiting" => set("waiting", &mut waiting, number::parse(value)),
                "running" => set("running", &mut running, number::parse(value)),
                "kv" => set("kv", &mut kv_usage, value.parse().ok().filter(is_share)),
                "response" => {
                    let id = text(value, |id| stored_response::is_id(id.as_bytes()));
                    set("response", &mut outcome.response_id, id)
                }
                "upstream" => set("upstream", &mut outcome.upstream, text(value, is_address)),
                _ => Ok(()),
            }?;
        }
        // A load report without the number of waiting requests is useless for routing.
        outcome.load = waiting.map(|waiting| LoadReport {
            waiting,
            running,
            kv_usage,
        });
        outcome.is_stream = is_stream.unwrap_or_default();
        outcome.is_broken = is_broken.unwrap_or_default();
        outcome.is_error = is_error.unwrap_or_default();
        outcome.is_timeout = is_timeout.unwrap_or_default();
        outcome.is_unsent = is_unsent.unwrap_or_default();
        outcome.status = status.ok_or(OutcomeError::NoStatus)?;
        Ok(outcome)
    }
}

fn text(value: &str, is_valid: impl FnOnce(&str) -> bool) -> Option<String> {
    is_valid(value).then(|| value.to_string())
}

/// Sets a field that has no value yet.
fn set<T>(name: &'static str, field: &mut Option<T>, value: Option<T>) -> Result<(), OutcomeError> {
    if field.is_some() {
        return Err(OutcomeError::NotPairs);
    }
    *field = Some(value.ok_or(OutcomeError::BadValue(name))?);
    Ok(())
}

fn push(text: &mut String, name: &str, value: Option<impl itoa::Integer>) {
    if let Some(value) = value {
        text.push_str(name);
        number::push(text, value);
    }
}

fn is_share(usage: &f32) -> bool {
    (0.0..=1.0).contains(usage)
}

/// Whether the text is the name of a cluster that an outcome can carry.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=');
    (1..=CLUSTER_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// Whether the text is `ip:port` (IPv6 in brackets) or the address of a listener inside Envoy. The service uses it as a map
/// key, so the parser accepts only what the standard library parses.
fn is_address(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=');
    let internal = text.strip_prefix(INTERNAL_SCHEME);
    SocketAddr::from_str(text).is_ok()
        || internal.is_some_and(|name| {
            (1..=INTERNAL_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Outcome {
        Outcome {
            status: 200,
            ttft_us: Some(81_000),
            is_stream: true,
            prompt_tokens: Some(5120),
            cached_tokens: Some(4096),
            completion_tokens: Some(77),
            load: Some(LoadReport {
                waiting: 0,
                running: Some(3),
                kv_usage: Some(0.25),
            }),
            response_id: Some("resp_0a".into()),
            upstream: Some("10.0.0.7:8000".into()),
            attempts: None,
            cluster: None,
            is_broken: false,
            is_timeout: false,
            is_unsent: false,
            is_error: false,
        }
    }

    #[test]
    fn an_encoded_outcome_parses_to_the_same_outcome() {
        let status_only = Outcome {
            status: 503,
            ..Outcome::default()
        };
        let internal = Outcome {
            upstream: Some("envoy://again/".into()),
            ..full()
        };
        let broken = Outcome {
            is_broken: true,
            ..full()
        };
        let error = Outcome {
            is_error: true,
            ..full()
        };
        let elsewhere = Outcome {
            attempts: Some(1),
            cluster: Some("outbound|8000||old.llm".into()),
            ..full()
        };
        let late = Outcome {
            is_timeout: true,
            ..status_only.clone()
        };
        let unsent = Outcome {
            is_unsent: true,
            ..status_only.clone()
        };
        for outcome in [
            full(),
            status_only,
            internal,
            broken,
            error,
            elsewhere,
            late,
            unsent,
        ] {
            assert_eq!(Outcome::parse(outcome.encode().as_bytes()), Ok(outcome));
        }
        assert_eq!(
            full().encode(),
            "v=1;status=200;ttft_us=81000;stream=1;prompt=5120;cached=4096;completion=77;waiting=0;running=3;kv=0.25;response=resp_0a;upstream=10.0.0.7:8000"
        );
    }

    #[test]
    fn the_first_byte_of_a_whole_response_is_not_its_first_token() {
        assert_eq!(full().first_token_us(), Some(81_000));
        let whole = Outcome {
            is_stream: false,
            ..full()
        };
        assert_eq!(whole.first_token_us(), None);
        assert_eq!(Outcome::parse(whole.encode().as_bytes()), Ok(whole));
    }

    #[test]
    fn unknown_fields_of_a_newer_filter_are_ignored() {
        let outcome = Outcome::parse(b"v=1;status=200;engine=vllm").unwrap();
        assert_eq!(outcome.status, 200);
    }

    #[test]
    fn malformed_outcomes_are_refused_with_a_reason() {
        for (value, error) in [
            ("", OutcomeError::UnknownVersion),
            ("v=2;status=200", OutcomeError::UnknownVersion),
            ("v=1", OutcomeError::NoStatus),
            ("v=1;status=+200", OutcomeError::BadValue("status")),
            ("v=1;status=70000", OutcomeError::BadValue("status")),
            ("v=1;status=200;kv=NaN", OutcomeError::BadValue("kv")),
            (
                "v=1;status=200;stream=yes",
                OutcomeError::BadValue("stream"),
            ),
            (
                "v=1;status=200;upstream=localhost",
                OutcomeError::BadValue("upstream"),
            ),
            (
                "v=1;status=200;upstream=envoy://",
                OutcomeError::BadValue("upstream"),
            ),
            (
                "v=1;status=200;response=msg_1",
                OutcomeError::BadValue("response"),
            ),
            (
                "v=1;status=200;cluster=a=b",
                OutcomeError::BadValue("cluster"),
            ),
            ("v=1;status=200;unsent=0", OutcomeError::BadValue("unsent")),
            ("v=1;status=200;status=200", OutcomeError::NotPairs),
            ("v=1;status", OutcomeError::NotPairs),
        ] {
            assert_eq!(Outcome::parse(value.as_bytes()), Err(error), "{value:?}");
        }
        assert_eq!(
            Outcome::parse(&[b'v'; OUTCOME_BYTES_MAX + 1]),
            Err(OutcomeError::TooLong)
        );
    }
}
