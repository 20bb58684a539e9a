//! The configuration of one instance of the filter.
//!
//! What Envoy holds is JSON; it becomes a [`Plugin`] that cannot be wrong, or an error which tells everything
//! that is wrong. Unknown members are errors: a misspelt option that silently does nothing costs more than a
//! listener that does not start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use isotherm_fingerprint::MemberPaths;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// How much of a body is held back at most, in bytes, before it is let go with the fingerprint of what was
/// seen: well below Envoy's default buffer limit of 1 MiB, past which the client would get a 413.
const BUFFER_BYTES_MAX: usize = 700 * 1024;

/// How long a request waits for a word of the service on the decision stream, in milliseconds: what `envoy/` gives external
/// processing, too.
const LINE_TIMEOUT_MS: u32 = 500;

/// Envoy's default buffer limit, in bytes. It bounds how much is buffered and also how much one read brings.
pub(crate) const ENVOY_BUFFER_BYTES: usize = 1024 * 1024;

/// What one instance of the filter is for.
#[derive(Clone, Debug)]
pub enum Plugin {
    /// In front of the external processor: turns the prompt into headers.
    Request(Rc<RequestConfig>),
    /// Behind the external processor: turns the answer into one trailer.
    Response(ResponseConfig),
}

/// How requests become headers.
#[derive(Clone, Debug)]
pub struct RequestConfig {
    pub(crate) cluster_of_model: BTreeMap<String, String>,
    pub(crate) default_cluster: Option<String>,
    pub(crate) buffer_bytes_max: usize,
    pub(crate) request_body_buffer_limit: usize,
    pub(crate) session: Vec<Source>,
    pub(crate) tier: Vec<Source>,
    /// The body members that `session` and `tier` name.
    pub(crate) wanted: MemberPaths,
    pub(crate) trusted_origin: bool,
    pub(crate) decision_stream: Option<DecisionStreamConfig>,
}

/// The decision stream on which requests are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionStreamConfig {
    /// Envoy's cluster of the service.
    pub cluster: String,
    /// How long a request is held back without a word of the service.
    pub timeout: Duration,
    /// Whether clients are told what was decided.
    pub(crate) decision: bool,
}

/// What becomes of responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseConfig {
    pub(crate) decision: bool,
}

/// Where a value may come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A request header, by its name in lower case.
    Header(String),
    /// A cookie, by its name.
    Cookie(String),
    /// A member of the body, by its place in [`MemberPaths`].
    Body(usize),
    /// The client's address, without its port.
    ClientAddress,
}

/// Why a configuration is refused: every reason at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for ConfigError {}

impl Plugin {
    /// Reads the plugin's configuration.
    ///
    /// # Errors
    /// When it is not JSON, has members that do not exist, or makes no sense.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let Role { role } = from_json(json)?;
        match role {
            RoleName::Request => {
                let raw: RawRequest = from_json(json)?;
                let errors = raw.errors();
                if !errors.is_empty() {
                    return Err(ConfigError(errors));
                }
                Ok(Self::Request(Rc::new(raw.into_config())))
            }
            RoleName::Response => {
                let RawResponse { decision, .. } = from_json(json)?;
                Ok(Self::Response(ResponseConfig { decision }))
            }
        }
    }
}

impl RequestConfig {
    /// Whether Envoy can buffer what is held back and what one more read may bring.
    pub(crate) fn has_room_for_a_read(&self) -> bool {
        let needed_bytes = self.buffer_bytes_max.saturating_add(ENVOY_BUFFER_BYTES);
        self.request_body_buffer_limit >= needed_bytes
    }

    /// The decision stream on which requests are asked about, where there is to be one.
    #[must_use]
    pub fn decision_stream(&self) -> Option<&DecisionStreamConfig> {
        self.decision_stream.as_ref()
    }

    /// The cluster for requests that name this model.
    pub(crate) fn cluster(&self, model: Option<&str>) -> Option<&str> {
        model
            .and_then(|model| self.cluster_of_model.get(model))
            .or(self.default_cluster.as_ref())
            .map(String::as_str)
    }
}

impl Default for RequestConfig {
    /// What a configuration that says nothing but the role means.
    fn default() -> Self {
        RawRequest::default().into_config()
    }
}

fn from_json<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ConfigError> {
    serde_json::from_slice(json).map_err(|error| ConfigError(vec![error.to_string()]))
}

/// Only the role, whatever else there is: it decides which members may be there. (serde's own tagged enums do
/// the same in one step, and lose the line and column of an error.)
#[derive(Deserialize)]
struct Role {
    role: RoleName,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RoleName {
    Request,
    Response,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawRequest {
    #[serde(rename = "role")]
    _role: IgnoredAny,
    pools: Vec<RawPool>,
    default_cluster: Option<String>,
    buffer_bytes_max: usize,
    request_body_buffer_limit: usize,
    session: Vec<RawSource>,
    tier: Vec<RawSource>,
    trusted_origin: bool,
    decision_stream: Option<RawDecisionStream>,
}

impl Default for RawRequest {
    fn default() -> Self {
        let body = |member: &str| RawSource::Body(member.to_owned());
        Self {
            _role: IgnoredAny,
            pools: Vec::new(),
            default_cluster: None,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            request_body_buffer_limit: 0,
            session: vec![
                RawSource::Header("x-session-id".to_owned()),
                body("session_id"),
                body("prompt_cache_key"),
                body("conversation"),
                body("user"),
                body("metadata.session_id"),
                body("metadata.user_id"),
                RawSource::ClientAddress,
            ],
            tier: vec![
                RawSource::Header("x-tier".to_owned()),
                body("metadata.tier"),
            ],
            trusted_origin: false,
            decision_stream: None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDecisionStream {
    cluster: String,
    #[serde(default = "decision_stream_timeout_ms")]
    timeout_ms: u32,
    #[serde(default)]
    decision: bool,
}

fn decision_stream_timeout_ms() -> u32 {
    LINE_TIMEOUT_MS
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPool {
    models: Vec<String>,
    cluster: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawSource {
    Header(String),
    Cookie(String),
    Body(String),
    ClientAddress,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawResponse {
    #[serde(rename = "role")]
    _role: IgnoredAny,
    #[serde(default)]
    decision: bool,
}

impl RawRequest {
    fn errors(&self) -> Vec<String> {
        let mut errors = Vec::new();
        let mut models = BTreeSet::new();
        for (index, pool) in self.pools.iter().enumerate() {
            let path = format!("pools[{index}]");
            check_name(&pool.cluster, &format!("{path}.cluster"), &mut errors);
            if pool.models.is_empty() {
                errors.push(format!("{path}.models is empty: name at least one model"));
            }
            for model in &pool.models {
                if !models.insert(model) {
                    errors.push(format!("{path}.models: {model:?} is named twice"));
                }
            }
        }
        if let Some(cluster) = &self.default_cluster {
            check_name(cluster, "default_cluster", &mut errors);
        }
        if self.buffer_bytes_max == 0 {
            errors.push("buffer_bytes_max is 0: no prompt could ever be read".to_owned());
        }
        if let Some(decision_stream) = &self.decision_stream {
            check_name(
                &decision_stream.cluster,
                "decision_stream.cluster",
                &mut errors,
            );
            if decision_stream.timeout_ms == 0 {
                errors.push(
                    "decision_stream.timeout_ms is 0: no answer could ever be in time".to_owned(),
                );
            }
            if self.trusted_origin {
                errors.push(
                    "decision_stream: not where trusted_origin is set, since only external processing sends requests to regions"
                        .to_owned(),
                );
            }
        }
        for (list, sources) in [("session", &self.session), ("tier", &self.tier)] {
            for (index, source) in sources.iter().enumerate() {
                let path = format!("{list}[{index}]");
                match source {
                    RawSource::Header(name) | RawSource::Cookie(name) | RawSource::Body(name) => {
                        check_name(name, &path, &mut errors);
                    }
                    RawSource::ClientAddress if list == "tier" => {
                        errors.push(format!("{path}: an address does not name a tier"));
                    }
                    RawSource::ClientAddress => {}
                }
            }
        }
        errors
    }

    fn into_config(self) -> RequestConfig {
        let mut wanted = MemberPaths::default();
        let resolve = |sources: Vec<RawSource>, members: &mut Vec<String>| {
            sources
                .into_iter()
                .map(|source| source.resolve(members))
                .collect()
        };
        RequestConfig {
            cluster_of_model: self
                .pools
                .into_iter()
                .flat_map(|RawPool { models, cluster }| {
                    models
                        .into_iter()
                        .map(move |model| (model, cluster.clone()))
                })
                .collect(),
            default_cluster: self.default_cluster,
            buffer_bytes_max: self.buffer_bytes_max,
            request_body_buffer_limit: self.request_body_buffer_limit,
            session: resolve(self.session, &mut wanted.session),
            tier: resolve(self.tier, &mut wanted.tier),
            wanted,
            trusted_origin: self.trusted_origin,
            decision_stream: self
                .decision_stream
                .map(|decision_stream| DecisionStreamConfig {
                    cluster: decision_stream.cluster,
                    timeout: Duration::from_millis(decision_stream.timeout_ms.into()),
                    decision: decision_stream.decision,
                }),
        }
    }
}

impl RawSource {
    fn resolve(self, members: &mut Vec<String>) -> Source {
        match self {
            Self::Header(name) => Source::Header(name.to_ascii_lowercase()),
            Self::Cookie(name) => Source::Cookie(name),
            Self::Body(member) => {
                members.push(member);
                Source::Body(members.len() - 1)
            }
            Self::ClientAddress => Source::ClientAddress,
        }
    }
}

/// Names travel in headers: a cluster's as a value, the others to be compared with one.
fn check_name(name: &str, path: &str, errors: &mut Vec<String>) {
    if name.is_empty() || name.bytes().any(|byte| !byte.is_ascii_graphic()) {
        errors.push(format!(
            "{path}: {name:?} is not a name of visible ASCII characters"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Rc<RequestConfig> {
        match Plugin::parse(json.as_bytes()).unwrap() {
            Plugin::Request(config) => config,
            Plugin::Response(_) => panic!("another role"),
        }
    }

    fn refusal(json: &str) -> String {
        Plugin::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn the_role_alone_is_enough() {
        let config = request(r#"{"role":"request"}"#);
        assert_eq!(config.buffer_bytes_max, BUFFER_BYTES_MAX);
        assert_eq!(
            config.session.first(),
            Some(&Source::Header("x-session-id".to_owned()))
        );
        assert_eq!(config.session.last(), Some(&Source::ClientAddress));
        assert_eq!(config.cluster(Some("any")), None);
        assert!(matches!(
            Plugin::parse(br#"{"role":"response"}"#),
            Ok(Plugin::Response(ResponseConfig { decision: false }))
        ));
    }

    #[test]
    fn models_match_exactly_and_the_rest_goes_to_the_default() {
        let config = request(
            r#"{"role":"request","pools":[{"models":["a","b"],"cluster":"one"}],"default_cluster":"other"}"#,
        );
        assert_eq!(config.cluster(Some("b")), Some("one"));
        assert_eq!(config.cluster(Some("B")), Some("other"));
        assert_eq!(config.cluster(None), Some("other"));
    }

    #[test]
    fn body_sources_are_numbered_among_themselves() {
        let config = request(
            r#"{"role":"request","session":[{"body":"a"},{"cookie":"c"},{"body":"b.c"},"client_address"]}"#,
        );
        assert_eq!(
            config.session,
            [
                Source::Body(0),
                Source::Cookie("c".to_owned()),
                Source::Body(1),
                Source::ClientAddress
            ]
        );
        assert_eq!(config.wanted.session, ["a", "b.c"]);
    }

    #[test]
    fn unknown_members_are_refused_with_their_place() {
        let error = refusal("{\"role\":\"request\",\n \"bufer_bytes_max\":1}");
        assert!(
            error.contains("bufer_bytes_max") && error.contains("line 2"),
            "{error}"
        );
        let error = refusal(r#"{"role":"response","pools":[]}"#);
        assert!(error.contains("unknown field `pools`"), "{error}");
        let error = refusal(r#"{"role":"both"}"#);
        assert!(error.contains("`request` or `response`"), "{error}");
        assert!(refusal("").contains("EOF"));
    }

    #[test]
    fn a_decision_stream_needs_a_cluster_and_has_half_a_second() {
        assert_eq!(request(r#"{"role":"request"}"#).decision_stream(), None);
        let config = request(r#"{"role":"request","decision_stream":{"cluster":"isotherm"}}"#);
        let decision_stream = DecisionStreamConfig {
            cluster: "isotherm".into(),
            timeout: Duration::from_millis(500),
            decision: false,
        };
        assert_eq!(config.decision_stream(), Some(&decision_stream));
        let error = refusal(
            r#"{"role":"request","trusted_origin":true,"decision_stream":{"cluster":"","timeout_ms":0}}"#,
        );
        for part in [
            "decision_stream.cluster",
            "decision_stream.timeout_ms",
            "decision_stream: not where",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn every_error_is_told_at_once() {
        let error = refusal(
            r#"{"role":"request","buffer_bytes_max":0,"default_cluster":"",
                "pools":[{"models":[],"cluster":"a b"},{"models":["m","m"],"cluster":"c"}],
                "session":[{"header":""}],"tier":["client_address"]}"#,
        );
        for part in [
            "buffer_bytes_max",
            "default_cluster",
            "pools[0].cluster",
            "pools[0].models",
            "pools[1].models: \"m\"",
            "session[0]",
            "tier[0]",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }
}
