//! The configuration of one instance of the filter.
//!
//! Envoy passes JSON. [`PluginConfig::parse`] makes a valid configuration of it or an error that lists every mistake. An
//! unknown key is an error: a misspelt option without effect costs more than a listener that does not start. No
//! configuration at all is the request role with every default, which serves an external processor behind the filter.
//! `docs/filter-configuration.md` lists the keys.

mod secret;
mod tenant;

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_fingerprint::paths::{AllowedPaths, DEFAULT_PATHS};
use isotherm_fingerprint::session::SessionSecret;
use isotherm_fingerprint::{Api, MemberPaths, names, tenant as tenant_name};
use serde::Deserialize;
use serde::de::IgnoredAny;

use secret::SecretSource;
pub(crate) use tenant::TenantSource;

/// Envoy's default buffer limit, in bytes. It bounds the buffered bytes and the bytes of one read.
pub(crate) const ENVOY_BUFFER_BYTES: usize = 1024 * 1024;

/// The default of `buffer_bytes_max`: well below [`ENVOY_BUFFER_BYTES`], past which the client would get a 413.
const BUFFER_BYTES_MAX: usize = 700 * 1024;

/// The default of `body_timeout_ms`.
const BODY_TIMEOUT_MS: u32 = 30_000;

/// The default of `body_bytes_per_s_min`.
const BODY_BYTES_PER_S_MIN: u32 = 16 * 1024;

/// The default of `decision_stream.timeout_ms`, and the timeout of external processing in `envoy/`.
const DECISION_STREAM_TIMEOUT_MS: u32 = 500;

/// The configuration of one instance of the filter.
#[derive(Clone, Debug)]
pub enum PluginConfig {
    /// The role in front of the external processor: turns the prompt into headers.
    Request(Arc<RequestConfig>),
    /// The role behind the external processor: turns the response into one trailer.
    Response(ResponseConfig),
    /// The role right behind the request role, which holds the headers.
    Gate,
}

/// The configuration of the request role.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RequestConfig {
    #[serde(rename = "role")]
    _role: IgnoredAny,
    pools: Vec<PoolConfig>,
    default_cluster: Option<String>,
    paths: Vec<String>,
    apis: Vec<ApiPath>,
    pub(crate) buffer_bytes_max: usize,
    request_body_buffer_limit: usize,
    pub(crate) body_timeout_ms: u32,
    pub(crate) body_bytes_per_s_min: u32,
    pub(crate) session: Vec<Source>,
    session_secret: Option<SecretSource>,
    pub(crate) tier: Vec<Source>,
    pub(crate) ttft_ms: Vec<Source>,
    pub(crate) deadline: Vec<Source>,
    pub(crate) tenant_sources: Vec<TenantSource>,
    hide_cache: bool,
    keep_accept_encoding: bool,
    pub(crate) trusted_origin: bool,
    gate: bool,
    decision_stream: Option<DecisionStreamConfig>,
    #[serde(skip)]
    pub(crate) secret: SessionSecret,
    #[serde(skip)]
    pub(crate) allowed_paths: AllowedPaths,
    #[serde(skip)]
    cluster_of_model: BTreeMap<String, String>,
    /// The body members that `session`, `tier`, `ttft_ms` and `deadline` name.
    #[serde(skip)]
    pub(crate) members: MemberPaths,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolConfig {
    models: Vec<String>,
    cluster: String,
}

/// A path that a route rewrites, and its API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiPath {
    path: String,
    api: String,
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

/// The configuration of the gate, which has no key but the role.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateConfig {
    #[serde(rename = "role")]
    _role: IgnoredAny,
}

/// A source of a session key or an objective.
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

/// The end of the name of a plugin in the response role, for a configuration without `role`.
const RESPONSE_NAME: &str = "response";

/// A configuration to begin with, for errors.
const EXAMPLE: &str = r#"{"role": "request", "default_cluster": "llama", "decision_stream": {"cluster": "isotherm"}}"#;

/// Every mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct ConfigError(Vec<String>);

/// The role, without the other keys: it decides which keys are valid. Serde's tagged enums would do the same in one step and
/// lose the line and column of an error.
#[derive(Deserialize)]
struct RoleConfig {
    role: Option<Role>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    Request,
    Response,
    Gate,
}

impl PluginConfig {
    /// Whether a plugin of this name has the response role, where its configuration names no role.
    #[must_use]
    pub fn is_response_name(name: &str) -> bool {
        name.ends_with(RESPONSE_NAME)
    }

    /// Parses the configuration of a plugin without a name.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        Self::parse_named(json, "")
    }

    /// Parses the configuration of a plugin. Fails when the text is not JSON, has unknown keys, or has invalid values.
    ///
    /// Without `role`, a plugin whose name or root id ends in `response` has the response role, and every other plugin the
    /// request role.
    pub fn parse_named(json: &[u8], name: &str) -> Result<Self, ConfigError> {
        // An error's line counts from the beginning of the text, so the text stays whole.
        let json = match json.trim_ascii() {
            b"" | b"null" => b"{}",
            _ => json,
        };
        check_is_object(json.trim_ascii())?;
        let named = if Self::is_response_name(name) {
            Role::Response
        } else {
            Role::Request
        };
        let RoleConfig { role } = from_json(json)?;
        Ok(match role.unwrap_or(named) {
            Role::Request => Self::Request(Arc::new(from_json::<RequestConfig>(json)?.resolve()?)),
            Role::Response => Self::Response(from_json(json)?),
            Role::Gate => {
                from_json::<GateConfig>(json)?;
                Self::Gate
            }
        })
    }
}

/// Checks that a text begins as a JSON object does; serde's message would not say what is needed.
fn check_is_object(json: &[u8]) -> Result<(), ConfigError> {
    let problem = match json.first() {
        Some(b'{') => return Ok(()),
        Some(byte) if byte.is_ascii_control() => {
            "it is a binary message: Envoy must pass a `google.protobuf.StringValue`".to_owned()
        }
        _ => {
            let start: String = String::from_utf8_lossy(json).chars().take(20).collect();
            format!("it begins with `{start}`")
        }
    };
    let message = format!("a JSON object is needed, such as {EXAMPLE}, but {problem}");
    Err(ConfigError(vec![message]))
}

fn from_json<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ConfigError> {
    serde_json::from_slice(json).map_err(|error| {
        ConfigError(vec![if error.is_data() {
            error.to_string()
        } else {
            format!("the text is no valid JSON: {error}; a valid configuration is {EXAMPLE}")
        }])
    })
}

impl Default for RequestConfig {
    /// The configuration with no key but the role.
    fn default() -> Self {
        let header = |name: &str| Source::Header(name.to_owned());
        let body = |member: &str| Source::Body(member.to_owned());
        let mut config = Self {
            _role: IgnoredAny,
            pools: Vec::new(),
            default_cluster: None,
            paths: DEFAULT_PATHS.map(str::to_owned).to_vec(),
            apis: Vec::new(),
            buffer_bytes_max: BUFFER_BYTES_MAX,
            request_body_buffer_limit: 0,
            body_timeout_ms: BODY_TIMEOUT_MS,
            body_bytes_per_s_min: BODY_BYTES_PER_S_MIN,
            session: vec![
                header("x-session-id"),
                header("x-claude-code-agent-id"),
                header("x-claude-code-session-id"),
                header("session-id"),
                header("x-dynamo-session-id"),
                body("session_id"),
                body("prompt_cache_key"),
                body("conversation"),
                body("user"),
                body("metadata.session_id"),
                body("metadata.user_id"),
                Source::ClientAddress,
            ],
            session_secret: None,
            tier: vec![
                header("x-tier"),
                body("metadata.tier"),
                body("service_tier"),
            ],
            ttft_ms: vec![header("x-llm-d-slo-ttft-ms"), header("x-slo-ttft-ms")],
            deadline: vec![header("x-deadline")],
            tenant_sources: Vec::new(),
            hide_cache: false,
            keep_accept_encoding: false,
            trusted_origin: false,
            gate: false,
            decision_stream: None,
            secret: SessionSecret::default(),
            allowed_paths: AllowedPaths::default(),
            cluster_of_model: BTreeMap::new(),
            members: MemberPaths::default(),
        };
        config.members = config.member_paths();
        config
    }
}

impl RequestConfig {
    /// This configuration for a reader that holds bodies itself, up to `buffer_bytes_max`, without a buffer of Envoy.
    #[must_use]
    pub fn with_buffer(self, buffer_bytes_max: usize) -> Self {
        Self {
            buffer_bytes_max,
            request_body_buffer_limit: usize::MAX,
            ..self
        }
    }

    /// This configuration with a header, in lower case, as the only source of the tenant.
    #[must_use]
    pub fn with_tenant_header(self, name: Option<String>) -> Self {
        Self {
            tenant_sources: name.map(TenantSource::Header).into_iter().collect(),
            ..self
        }
    }

    /// This configuration for the paths of the service.
    #[must_use]
    pub fn with_paths(self, allowed_paths: AllowedPaths) -> Self {
        Self {
            allowed_paths,
            ..self
        }
    }

    /// The header value of a tenant's name; `None` for an empty name.
    #[must_use]
    pub fn tenant_value(&self, name: &[u8]) -> Option<String> {
        tenant_name::encode(&self.secret, name)
    }

    /// The most bytes of a body that Envoy buffers, as configured or by Envoy's default.
    pub(crate) fn buffer_limit(&self) -> usize {
        match self.request_body_buffer_limit {
            0 => ENVOY_BUFFER_BYTES,
            bytes => bytes,
        }
    }

    /// Whether an instance with the role `gate` follows, which holds the headers.
    pub fn has_gate(&self) -> bool {
        self.gate
    }

    /// Whether clients must not learn what an engine had in its cache.
    pub fn hides_cache(&self) -> bool {
        self.hide_cache
    }

    /// Whether the filter keeps engines from compressing their responses. `hide_cache` removes the header by itself.
    pub(crate) fn removes_accept_encoding(&self) -> bool {
        !self.keep_accept_encoding && !self.hide_cache
    }

    /// The metadata of the decision stream: it names the listener of the requests.
    pub fn stream_metadata(&self) -> Option<(&'static str, &'static str)> {
        self.trusted_origin
            .then_some((names::LISTENER, names::LISTENER_REGIONS))
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
            ttft_ms: of(&self.ttft_ms),
            deadline: of(&self.deadline),
        }
    }

    /// Checks the lists of paths, the secret of session keys and what clients may learn, and derives what requests need of both.
    fn resolve_edge(&mut self, errors: &mut Vec<String>) {
        match AllowedPaths::parse(&self.paths) {
            Ok(paths) => self.allowed_paths = paths,
            Err(wrong) => {
                errors.extend(
                    wrong
                        .iter()
                        .map(|(at, error)| format!("paths[{at}]: {error}")),
                );
            }
        }
        if self.hide_cache && self.keep_accept_encoding {
            let error = "hide_cache excludes keep_accept_encoding: the filter could not hide numbers in a compressed response";
            errors.push(error.to_owned());
        }
        for (at, ApiPath { path, api }) in self.apis.iter().enumerate() {
            let Some(api) = Api::from_name(api) else {
                let names: Vec<_> = Api::all().map(Api::name).collect();
                let names = names.join(", ");
                errors.push(format!("apis[{at}].api: {api:?} is not one of {names}"));
                continue;
            };
            if let Err(error) = self.allowed_paths.add_api(path, api) {
                errors.push(format!("apis[{at}].path: {error}"));
            }
        }
        if let Some(source) = self.session_secret.take() {
            match source.read() {
                Ok(secret) => self.secret = secret,
                Err(error) => errors.push(error),
            }
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
        self.resolve_edge(&mut errors);
        if self.buffer_bytes_max == 0 {
            errors.push("buffer_bytes_max is 0: the filter could never read a prompt".to_owned());
        }
        if self.body_bytes_per_s_min == 0 {
            let error = "body_bytes_per_s_min is 0: no body could be too slow; body_timeout_ms: 0 turns the limit off";
            errors.push(error.to_owned());
        }
        if let Some(stream) = &self.decision_stream {
            check_name(&stream.cluster, "decision_stream.cluster", &mut errors);
            if stream.timeout_ms == 0 {
                errors.push(
                    "decision_stream.timeout_ms is 0: no response could be in time".to_owned(),
                );
            }
        }
        for (list, sources) in [
            ("session", &mut self.session),
            ("tier", &mut self.tier),
            ("ttft_ms", &mut self.ttft_ms),
            ("deadline", &mut self.deadline),
        ] {
            for (index, source) in sources.iter_mut().enumerate() {
                source.resolve(&format!("{list}[{index}]"), list != "session", &mut errors);
            }
        }
        for (index, source) in self.tenant_sources.iter_mut().enumerate() {
            source.resolve(&format!("tenant_sources[{index}]"), &mut errors);
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
    fn resolve(&mut self, path: &str, is_objective: bool, errors: &mut Vec<String>) {
        match self {
            Self::Header(name) => {
                check_name(name, path, errors);
                name.make_ascii_lowercase();
            }
            Self::Cookie(name) | Self::Body(name) => check_name(name, path, errors),
            Self::ClientAddress if is_objective => {
                errors.push(format!(
                    "{path}: an address is no source of an objective: name a header, a cookie or a body member"
                ));
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
mod tests;
