//! How a request ended, as the response filter tells the service in one trailer.
//!
//! Plain `name=value` pairs rather than a packed form: the trailer is read by people in access logs too, and comes once a
//! response. The parser treats every byte as hostile all the same: an engine's answer may hold anything.

use alloc::string::{String, ToString};
use core::fmt::{self, Write as _};
use core::net::SocketAddr;
use core::str::FromStr;

use crate::number;

/// What an engine said of its own load in a response (ORCA's `endpoint-load-metrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Requests accepted but not yet in the continuous batch.
    pub waiting: u32,
    /// Requests in the continuous batch, where the engine tells.
    pub running: Option<u32>,
    /// Share of the KV cache in use, from 0 to 1, where the engine tells.
    pub kv_usage: Option<f32>,
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// HTTP status of the response.
    pub status: u16,
    /// From the end of the request (of its headers, where the answer does not wait for more) to the first body byte of the
    /// response, in microseconds.
    pub ttft_us: Option<u64>,
    /// Whether the answer is a stream of events. Of one that comes whole, the first byte comes with the last token.
    pub is_stream: bool,
    /// `usage`: prompt tokens, as the engine counted them.
    pub prompt_tokens: Option<u32>,
    /// `usage`: prompt tokens that the engine found in its cache.
    pub cached_tokens: Option<u32>,
    /// `usage`: output tokens.
    pub completion_tokens: Option<u32>,
    /// The engine's load report.
    pub load: Option<LoadReport>,
    /// The endpoint that really served, `ip:port`, after any retry; `envoy://NAME/...` where that is a listener inside
    /// Envoy itself.
    pub served: Option<String>,
}

/// The version that [`Outcome::encode`] writes.
pub const VERSION: u8 = 1;
/// The longest value that is read, in bytes.
pub const OUTCOME_BYTES_MAX: usize = 512;

/// Room for most values, so that they allocate once.
const VALUE_BYTES_EXPECTED: usize = 160;
/// How Envoy writes the address of a listener inside itself.
const INTERNAL_SCHEME: &str = "envoy://";
/// The longest rest of such an address that is read, in bytes.
const INTERNAL_BYTES_MAX: usize = 64;

/// Why a trailer is not an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeError {
    /// It is longer than [`OUTCOME_BYTES_MAX`].
    TooLong,
    /// It is not `name=value` pairs of visible ASCII, or a name comes twice.
    NotPairs,
    /// It does not begin with the version that this build reads.
    UnknownVersion,
    /// It has no status.
    NoStatus,
    /// The value of this field is not of its type.
    BadValue(&'static str),
}

impl fmt::Display for OutcomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "outcome is longer than {OUTCOME_BYTES_MAX} bytes"),
            Self::NotPairs => write!(
                f,
                "outcome is not a list of name=value pairs, each name once"
            ),
            Self::UnknownVersion => write!(
                f,
                "outcome does not begin with v={VERSION}: update the older of filter and service"
            ),
            Self::NoStatus => write!(f, "outcome has no status"),
            Self::BadValue(name) => write!(f, "outcome has a bad value for {name}"),
        }
    }
}

impl core::error::Error for OutcomeError {}

impl Outcome {
    /// [`Self::ttft_us`], where the first byte comes with the first token.
    #[must_use]
    pub fn first_token_us(&self) -> Option<u64> {
        self.ttft_us.filter(|_| self.is_stream)
    }

    /// The trailer's value: `v=1;status=200;ttft_us=..;stream=1;prompt=..;cached=..;completion=..;waiting=..;running=..;kv=..;served=..`,
    /// without what is not known.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut value = String::with_capacity(VALUE_BYTES_EXPECTED);
        value.push_str("v=");
        number::push(&mut value, VERSION);
        push(&mut value, ";status=", Some(self.status));
        push(&mut value, ";ttft_us=", self.ttft_us);
        push(&mut value, ";stream=", self.is_stream.then_some(1_u8));
        push(&mut value, ";prompt=", self.prompt_tokens);
        push(&mut value, ";cached=", self.cached_tokens);
        push(&mut value, ";completion=", self.completion_tokens);
        if let Some(load) = self.load {
            push(&mut value, ";waiting=", Some(load.waiting));
            push(&mut value, ";running=", load.running);
            if let Some(usage) = load.kv_usage.filter(|usage| is_share(*usage)) {
                // Writing to a String cannot fail.
                let _ = write!(value, ";kv={usage}");
            }
        }
        if let Some(served) = self.served.as_deref().filter(|served| is_address(served)) {
            value.push_str(";served=");
            value.push_str(served);
        }
        value
    }

    /// Reads what [`Outcome::encode`] wrote; safe on any bytes. Names that are not known are skipped, so that a newer filter
    /// may say more.
    ///
    /// # Errors
    /// When the value is not an outcome that this version reads.
    pub fn parse(value: &[u8]) -> Result<Self, OutcomeError> {
        if value.len() > OUTCOME_BYTES_MAX {
            return Err(OutcomeError::TooLong);
        }
        let value = str::from_utf8(value).map_err(|_| OutcomeError::NotPairs)?;
        let mut pairs = value.split(';');
        if pairs
            .next()
            .and_then(|pair| pair.strip_prefix("v="))
            .and_then(number::parse)
            != Some(VERSION)
        {
            return Err(OutcomeError::UnknownVersion);
        }
        let mut fields = Fields::default();
        for pair in pairs {
            let (name, value) = pair.split_once('=').ok_or(OutcomeError::NotPairs)?;
            fields.set(name, value)?;
        }
        fields.finish()
    }
}

/// What was read so far.
#[derive(Default)]
struct Fields {
    status: Option<u16>,
    waiting: Option<u32>,
    running: Option<u32>,
    kv_usage: Option<f32>,
    is_stream: Option<bool>,
    outcome: Outcome,
}

impl Fields {
    fn set(&mut self, name: &str, value: &str) -> Result<(), OutcomeError> {
        let outcome = &mut self.outcome;
        match name {
            "status" => once("status", &mut self.status, number::parse(value)),
            "ttft_us" => once("ttft_us", &mut outcome.ttft_us, number::parse(value)),
            "stream" => once(
                "stream",
                &mut self.is_stream,
                (value == "1").then_some(true),
            ),
            "prompt" => once("prompt", &mut outcome.prompt_tokens, number::parse(value)),
            "cached" => once("cached", &mut outcome.cached_tokens, number::parse(value)),
            "completion" => once(
                "completion",
                &mut outcome.completion_tokens,
                number::parse(value),
            ),
            "waiting" => once("waiting", &mut self.waiting, number::parse(value)),
            "running" => once("running", &mut self.running, number::parse(value)),
            "kv" => once("kv", &mut self.kv_usage, share(value)),
            "served" => once(
                "served",
                &mut outcome.served,
                is_address(value).then(|| value.to_string()),
            ),
            _ => Ok(()),
        }
    }

    fn finish(self) -> Result<Outcome, OutcomeError> {
        let load = match self.waiting {
            Some(waiting) => Some(LoadReport {
                waiting,
                running: self.running,
                kv_usage: self.kv_usage,
            }),
            // The rest of a load report without the one number that routing needs says nothing.
            None => None,
        };
        Ok(Outcome {
            status: self.status.ok_or(OutcomeError::NoStatus)?,
            load,
            is_stream: self.is_stream.unwrap_or_default(),
            ..self.outcome
        })
    }
}

fn once<T>(
    name: &'static str,
    place: &mut Option<T>,
    value: Option<T>,
) -> Result<(), OutcomeError> {
    if place.is_some() {
        return Err(OutcomeError::NotPairs);
    }
    *place = Some(value.ok_or(OutcomeError::BadValue(name))?);
    Ok(())
}

fn push(text: &mut String, name: &str, value: Option<impl itoa::Integer>) {
    if let Some(value) = value {
        text.push_str(name);
        number::push(text, value);
    }
}

fn share(text: &str) -> Option<f32> {
    text.parse().ok().filter(|usage| is_share(*usage))
}

fn is_share(usage: f32) -> bool {
    (0.0..=1.0).contains(&usage)
}

/// `ip:port`, v6 in brackets, or an Envoy's own listener. Only what the standard library reads as the former reaches the
/// service's maps.
fn is_address(text: &str) -> bool {
    SocketAddr::from_str(text).is_ok() || is_internal(text)
}

fn is_internal(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=');
    text.strip_prefix(INTERNAL_SCHEME).is_some_and(|name| {
        !name.is_empty() && name.len() <= INTERNAL_BYTES_MAX && name.bytes().all(fits)
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
            served: Some("10.0.0.7:8000".into()),
        }
    }

    #[test]
    fn what_is_encoded_parses_to_the_same_outcome() {
        let status_only = Outcome {
            status: 503,
            ..Outcome::default()
        };
        let internal = Outcome {
            served: Some("envoy://again/".into()),
            ..full()
        };
        for outcome in [full(), status_only, internal] {
            assert_eq!(Outcome::parse(outcome.encode().as_bytes()), Ok(outcome));
        }
        assert_eq!(
            full().encode(),
            "v=1;status=200;ttft_us=81000;stream=1;prompt=5120;cached=4096;completion=77;waiting=0;running=3;kv=0.25;served=10.0.0.7:8000"
        );
    }

    #[test]
    fn the_first_byte_of_a_whole_answer_is_not_its_first_token() {
        assert_eq!(full().first_token_us(), Some(81_000));
        let whole = Outcome {
            is_stream: false,
            ..full()
        };
        assert_eq!(whole.first_token_us(), None);
        assert_eq!(Outcome::parse(whole.encode().as_bytes()), Ok(whole));
    }

    #[test]
    fn a_newer_filter_may_say_more() {
        let outcome = Outcome::parse(b"v=1;status=200;engine=vllm").unwrap();
        assert_eq!(outcome.status, 200);
    }

    #[test]
    fn what_is_not_an_outcome_says_why() {
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
                "v=1;status=200;served=localhost",
                OutcomeError::BadValue("served"),
            ),
            (
                "v=1;status=200;served=envoy://",
                OutcomeError::BadValue("served"),
            ),
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
