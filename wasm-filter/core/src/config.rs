//! The configuration of one instance of the filter.
//!
//! Envoy passes JSON. [`PluginConfig::parse`] makes a valid configuration of it or an error that lists every mistake. An
//! unknown key is an error: a misspelt option without effect costs more than a listener that does not start.
//! `docs/filter-configuration.md` lists the keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_fingerprint::MemberPaths;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Envoy's default buffer limit, in bytes. It bounds the buffered bytes and the bytes of one read.
pub(crate) const ENVOY_BUFFER_BYTES: usize = 1024 * 1024;

/// The default of `buffer_bytes_max`: well below [`ENVOY_BUFFER_BYTES`], past which the client would get a 413.
const BUFFER_BYTES_MAX: usize = 700 * 1024;

/// The default of `decision_stream.timeout_ms`, and the timeout of external processing in `envoy/`.
const DECISION_STREAM_TIMEOUT_MS: u32 = 500;

/// The configuration of one instance of the filter.
#[derive(Clone, Debug)]
pub enum PluginConfig {
    /// The role in front of the external processor: turns the prompt into headers.
    Request(Arc<RequestConfig>),
    /// The role behind the external processor: turns the response into one trailer.
    Response(ResponseConfig),
}

/// The configuration of the request role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestConfig {
    #[serde(rename = "role")]
    _role: IgnoredAny,
    pools: Vec<PoolConfig>,
    default_cluster: Option<String>,
    pub(crate) buffer_bytes_max: usize,
    request_body_buffer_limit: usize,
    pub(crate) session: Vec<Source>,
    pub(crate) tier: Vec<Source>,
    pub(crate) trusted_origin: bool,
    decision_stream: Option<DecisionStreamConfig>,
    #[serde(skip)]
    cluster_of_model: BTreeMap<String, String>,
    /// The body members that `session` and `tier` name.
    #[serde(skip)]
    pub(crate) members: MemberPaths,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolConfig {
    models: Vec<String>,
    cluster: String,
}

/// The configuration of the decision stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DecisionStreamConfig {
    /// Envoy's cluster of the service.
    pub cluster: String,
    /// The longest that the filter holds a request without a message from the service.
    #[serde(default = "decision_stream_timeout_ms")]
    pub timeout_ms: u32,
    /// Whether clients see the decision.
    #[serde(default)]
    pub(crate) decision: bool,
}

fn decision_stream_timeout_ms() -> u32 {
    DECISION_STREAM_TIMEOUT_MS
}

/// The configuration of the response role.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ResponseConfig {
    #[serde(rename = "role")]
    pub(crate) _role: IgnoredAny,
    /// Whether clients see the decision.
    pub(crate) decision: bool,
}

/// A source of a session key or a tier.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    Header(String),
    Cookie(String),
    /// A member of the body, as a dotted path.
    Body(String),
    /// The client's address without its port.
    ClientAddress,
}

/// Every mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(Vec<String>);

/// The role, without the other keys: it decides which keys are valid. Serde's tagged enums would do the same in one step and
/// lose the line and column of an error.
#[derive(Deserialize)]
struct RoleConfig {
    role: Role,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Request,
    Response,
}

impl PluginConfig {
    /// Parses the plugin's configuration. Fails when the text is not JSON, has unknown keys, or has invalid values.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let RoleConfig { role } = from_json(json)?;
        Ok(match role {
            Role::Request => Self::Request(Arc::new(from_json::<RequestConfig>(json)?.resolve()?)),
            Role::Response => Self::Response(from_json(json)?),
        })
    }
}

fn from_json<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ConfigError> {
    serde_json::from_slice(json).map_err(|error| ConfigError(vec![error.to_string()]))
}

impl Default for RequestConfig {
    /// The configuration with no key but the role.
    fn default() -> Self {
        let body = |member: &str| Source::Body(member.to_owned());
        let mut config = Self {
            _role: IgnoredAny,
            pools: Vec::new(),
            default_cluster: None,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            request_body_buffer_limit: 0,
            session: vec![
                Source::Header("x-session-id".to_owned()),
                body("session_id"),
                body("prompt_cache_key"),
                body("conversation"),
                body("user"),
                body("metadata.session_id"),
                body("metadata.user_id"),
                Source::ClientAddress,
            ],
            tier: vec![Source::Header("x-tier".to_owned()), body("metadata.tier")],
            trusted_origin: false,
            decision_stream: None,
            cluster_of_model: BTreeMap::new(),
            members: MemberPaths::default(),
        };
        config.members = config.member_paths();
        config
    }
}

impl RequestConfig {
    /// The same configuration with another `buffer_bytes_max`.
    #[must_use]
    pub fn with_buffer(self, buffer_bytes_max: usize) -> Self {
        Self {
            buffer_bytes_max,
            ..self
        }
    }

    /// Whether Envoy can buffer the held bytes and one more read.
    pub(crate) fn allows_large_reads(&self) -> bool {
        let needed_bytes = self.buffer_bytes_max.saturating_add(ENVOY_BUFFER_BYTES);
        self.request_body_buffer_limit >= needed_bytes
    }

    /// The decision stream, if one is configured.
    pub fn decision_stream(&self) -> Option<&DecisionStreamConfig> {
        self.decision_stream.as_ref()
    }

    pub(crate) fn cluster(&self, model: Option<&str>) -> Option<&str> {
        model
            .and_then(|model| self.cluster_of_model.get(model))
            .or(self.default_cluster.as_ref())
            .map(String::as_str)
    }

    /// The rank of the session source with this index in [`MemberPaths::session`].
    pub(crate) fn rank_of_body_session(&self, member: usize) -> Option<usize> {
        let sources = self.session.iter().enumerate();
        let mut in_body = sources.filter(|(_, source)| matches!(source, Source::Body(_)));
        in_body.nth(member).map(|(rank, _)| rank)
    }

    fn member_paths(&self) -> MemberPaths {
        let of = |sources: &[Source]| {
            let paths = sources.iter().filter_map(|source| match source {
                Source::Body(path) => Some(path.clone()),
                _ => None,
            });
            paths.collect()
        };
        MemberPaths {
            session: of(&self.session),
            tier: of(&self.tier),
        }
    }

    /// Checks the values and derives the lookup tables.
    fn resolve(mut self) -> Result<Self, ConfigError> {
        let mut errors = Vec::new();
        for (index, PoolConfig { models, cluster }) in self.pools.drain(..).enumerate() {
            let path = format!("pools[{index}]");
            check_name(&cluster, &format!("{path}.cluster"), &mut errors);
            if models.is_empty() {
                errors.push(format!("{path}.models is empty: name at least one model"));
            }
            for model in models {
                if self.cluster_of_model.contains_key(&model) {
                    errors.push(format!("{path}.models: {model:?} is named twice"));
                }
                self.cluster_of_model.insert(model, cluster.clone());
            }
        }
        if let Some(cluster) = &self.default_cluster {
            check_name(cluster, "default_cluster", &mut errors);
        }
        if self.buffer_bytes_max == 0 {
            errors.push("buffer_bytes_max is 0: the filter could never read a prompt".to_owned());
        }
        if let Some(stream) = &self.decision_stream {
            check_name(&stream.cluster, "decision_stream.cluster", &mut errors);
            if stream.timeout_ms == 0 {
                errors.push(
                    "decision_stream.timeout_ms is 0: no response could be in time".to_owned(),
                );
            }
            if self.trusted_origin {
                errors.push(
                    "decision_stream excludes trusted_origin: only external processing sends requests to regions"
                        .to_owned(),
                );
            }
        }
        for (list, sources) in [("session", &mut self.session), ("tier", &mut self.tier)] {
            for (index, source) in sources.iter_mut().enumerate() {
                source.resolve(&format!("{list}[{index}]"), list == "tier", &mut errors);
            }
        }
        self.members = self.member_paths();
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(ConfigError(errors))
        }
    }
}

impl Source {
    fn resolve(&mut self, path: &str, is_tier: bool, errors: &mut Vec<String>) {
        match self {
            Self::Header(name) => {
                check_name(name, path, errors);
                name.make_ascii_lowercase();
            }
            Self::Cookie(name) | Self::Body(name) => check_name(name, path, errors),
            Self::ClientAddress if is_tier => {
                errors.push(format!("{path}: an address does not name a tier"));
            }
            Self::ClientAddress => {}
        }
    }
}

/// Checks a name that appears in headers: a cluster as a value, other names in comparisons.
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

    fn request(json: &str) -> Arc<RequestConfig> {
        match PluginConfig::parse(json.as_bytes()).unwrap() {
            PluginConfig::Request(config) => config,
            PluginConfig::Response(_) => panic!("another role"),
        }
    }

    fn refusal(json: &str) -> String {
        PluginConfig::parse(json.as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_role_alone_is_a_valid_configuration() {
        let config = request(r#"{"role":"request"}"#);
        assert_eq!(config.buffer_bytes_max, BUFFER_BYTES_MAX);
        assert_eq!(
            config.session.first(),
            Some(&Source::Header("x-session-id".to_owned()))
        );
        assert_eq!(config.session.last(), Some(&Source::ClientAddress));
        assert_eq!(config.cluster(Some("any")), None);
        assert!(matches!(
            PluginConfig::parse(br#"{"role":"response"}"#),
            Ok(PluginConfig::Response(ResponseConfig {
                decision: false,
                ..
            }))
        ));
    }

    #[test]
    fn a_model_matches_exactly_or_gets_the_default_cluster() {
        let config = request(
            r#"{"role":"request","pools":[{"models":["a","b"],"cluster":"one"}],"default_cluster":"other"}"#,
        );
        assert_eq!(config.cluster(Some("b")), Some("one"));
        assert_eq!(config.cluster(Some("B")), Some("other"));
        assert_eq!(config.cluster(None), Some("other"));
    }

    #[test]
    fn body_sources_keep_their_rank_among_all_sources() {
        let config = request(
            r#"{"role":"request","session":[{"body":"a"},{"cookie":"c"},{"body":"b.c"},"client_address"]}"#,
        );
        assert_eq!(
            config.session,
            [
                Source::Body("a".to_owned()),
                Source::Cookie("c".to_owned()),
                Source::Body("b.c".to_owned()),
                Source::ClientAddress
            ]
        );
        assert_eq!(config.members.session, ["a", "b.c"]);
        assert_eq!(config.rank_of_body_session(1), Some(2));
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
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
    fn a_decision_stream_needs_a_cluster_and_defaults_to_half_a_second() {
        assert_eq!(request(r#"{"role":"request"}"#).decision_stream(), None);
        let config = request(r#"{"role":"request","decision_stream":{"cluster":"isotherm"}}"#);
        let decision_stream = DecisionStreamConfig {
            cluster: "isotherm".into(),
            timeout_ms: 500,
            decision: false,
        };
        assert_eq!(config.decision_stream(), Some(&decision_stream));
        let error = refusal(
            r#"{"role":"request","trusted_origin":true,"decision_stream":{"cluster":"","timeout_ms":0}}"#,
        );
        for part in [
            "decision_stream.cluster",
            "decision_stream.timeout_ms",
            "decision_stream excludes",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn every_mistake_is_reported_at_once() {
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
