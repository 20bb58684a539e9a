//! The paths that clients may use: the option `paths` of the filter and of the service, and the routes in `envoy/`.
//!
//! Engines answer to more than the inference APIs: their metrics, their profiler, the content of their cache. A request to any
//! path outside the list gets a 404. An entry is a whole path, because vLLM serves its metrics at every path below `/metrics`:
//! `/metrics/v1/completions` must not pass. Rejected: a list of forbidden paths, which each new engine makes incomplete.
//!
//! With the entry `*`, Isotherm shares its routes with other applications. It serves the APIs, under any prefix, and what the list
//! names. Every other request passes untouched ([`PathUse::Pass`]): it has no replica, so it reaches no engine through Isotherm.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use percent_encoding::percent_decode_str;

use crate::{Api, model_in_path, stored_response};

/// The paths that clients may use by default: those of [`crate::Api`], stored responses, the count of a prompt's tokens, the list of
/// models, and the health of the service.
pub const DEFAULT_PATHS: [&str; 12] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/responses/*",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/v1/models/*",
    "/health",
    "/generate",
    "/generate_stream",
];

/// The message to a client that uses any other path.
pub const UNKNOWN_PATH_MESSAGE: &str = "This path does not exist. GET /v1/models lists the models.";

/// The message to a client that uses another method than those of the path.
pub const METHOD_MESSAGE: &str =
    "This path does not take this method. The header `allow` names the methods that it takes.";

/// The methods of one of [`DEFAULT_PATHS`], as the header `allow` lists them. An operator who adds another path wants it as it
/// is: `None`.
#[must_use]
pub fn allowed_methods(path: &str) -> Option<&'static str> {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let whole = path.strip_suffix('/').unwrap_or(path);
    if [MODELS_PATH, HEALTH_PATH].contains(&whole) || whole.starts_with("/v1/models/") {
        return Some("GET, HEAD");
    }
    let stored = stored_response::allowed_methods(whole);
    stored.or_else(|| DEFAULT_PATHS.contains(&whole).then_some("POST"))
}

/// Whether a method is in the list of [`allowed_methods`].
#[must_use]
pub fn allows_method(path: &str, method: &str) -> bool {
    allowed_methods(path).is_none_or(|methods| methods.split(", ").any(|allowed| allowed == method))
}

/// The path of the list of models.
const MODELS_PATH: &str = "/v1/models";
/// The path of the service's health.
pub const HEALTH_PATH: &str = "/health";

/// The ends of the paths at which gateways publish the APIs under a prefix. `/generate` is not among them: paths of other
/// applications end so.
const PUBLISHED_ENDINGS: [&str; 6] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
];

/// The segment of a path below which engines serve their metrics, whatever follows.
const METRICS_SEGMENT: &str = "metrics";

/// The entry that stands for every path.
const ANY: &str = "*";
/// The end of an entry that stands for every path below another.
const BELOW: &str = "/*";

/// A list of paths that clients may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPaths {
    is_any: bool,
    whole: Vec<String>,
    /// The entries for every path below another, each with the slash at its end.
    below: Vec<String>,
    /// The paths whose API their own ends do not tell, because a route rewrites them.
    apis: Vec<(String, Api)>,
}

/// The use of a path, with a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathUse {
    /// A replica or the service answers the request.
    Serve,
    /// The request belongs to another application, and passes untouched.
    Pass,
    /// The client gets a 404.
    Reject,
}

/// An entry that is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a path is needed, such as /v1/completions, or /v1/models/* for every path below, or * to let the paths of other applications pass"
)]
pub struct PathEntryError;

impl Default for AllowedPaths {
    fn default() -> Self {
        let mut paths = Self::none();
        for entry in DEFAULT_PATHS {
            paths.add(entry);
        }
        paths
    }
}

impl AllowedPaths {
    /// Parses a list. Fails with every entry that is no path.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, Vec<(usize, PathEntryError)>> {
        let mut paths = Self::none();
        let mut errors = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match check_entry(entry.as_ref()) {
                Ok(()) => paths.add(entry.as_ref()),
                Err(error) => errors.push((index, error)),
            }
        }
        if errors.is_empty() {
            Ok(paths)
        } else {
            Err(errors)
        }
    }

    /// Adds a path and its API, which a route rewrites to the API's own path. Fails for what is no whole path.
    pub fn add_api(&mut self, path: &str, api: Api) -> Result<(), PathEntryError> {
        check_entry(path)?;
        if path.ends_with('*') {
            return Err(PathEntryError);
        }
        self.apis.push((path.to_owned(), api));
        Ok(())
    }

    /// The API of a path: the configured one, or the one that its end tells.
    #[must_use]
    pub fn api_of(&self, path: &str) -> Option<Api> {
        self.configured_api(path).or_else(|| Api::from_path(path))
    }

    fn configured_api(&self, path: &str) -> Option<Api> {
        if self.apis.is_empty() {
            return None;
        }
        let path = path.split(['?', '#']).next().unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut apis = self.apis.iter();
        apis.find(|(known, _)| known == path).map(|(_, api)| *api)
    }

    /// Returns how Isotherm uses a path. A query and a trailing slash of the path are ignored. A host may hide the path and the
    /// method; a request to open a tunnel has no path.
    #[must_use]
    pub fn use_of(&self, path: Option<&[u8]>, method: Option<&[u8]>) -> PathUse {
        let Some(path) = path else {
            let is_tunnel = method == Some(b"CONNECT");
            return if self.is_any && is_tunnel {
                PathUse::Pass
            } else {
                PathUse::Serve
            };
        };
        let path = str::from_utf8(path).unwrap_or_default();
        match self.is_any {
            _ if self.names(path) => PathUse::Serve,
            true if is_published(path, method) => PathUse::Serve,
            true => PathUse::Pass,
            false => PathUse::Reject,
        }
    }

    /// Whether an entry names a path.
    fn names(&self, path: &str) -> bool {
        if self.configured_api(path).is_some() {
            return true;
        }
        let path = path.split(['?', '#']).next().unwrap_or(path);
        let whole = path.strip_suffix('/').unwrap_or(path);
        self.whole.iter().any(|allowed| allowed == whole)
            || self.below.iter().any(|folder| {
                let rest = path.strip_prefix(folder.as_str());
                rest.is_some_and(stays_below)
            })
    }

    fn none() -> Self {
        Self {
            is_any: false,
            whole: Vec::new(),
            below: Vec::new(),
            apis: Vec::new(),
        }
    }

    fn add(&mut self, entry: &str) {
        if entry == ANY {
            self.is_any = true;
        } else if let Some(folder) = entry.strip_suffix('*') {
            self.below.push(folder.to_owned());
        } else {
            self.whole.push(entry.to_owned());
        }
    }
}

/// Whether a request belongs to an API where the list does not say so. Under a prefix, only the methods of the API do: another
/// application may have a `GET` at such a path.
fn is_published(path: &str, method: Option<&[u8]>) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let whole = path.strip_suffix('/').unwrap_or(path);
    if DEFAULT_PATHS.contains(&whole) {
        return true;
    }
    if path.split('/').any(|segment| segment == METRICS_SEGMENT) {
        return false;
    }
    if stored_response::id_in_path(path).is_some() {
        return true;
    }
    let has_method = |methods: &[&[u8]]| method.is_none_or(|method| methods.contains(&method));
    let is_published = PUBLISHED_ENDINGS.iter().any(|end| whole.ends_with(end));
    let is_api = is_published || model_in_path(path).is_some() && Api::from_path(path).is_some();
    let models = path.rsplit_once(MODELS_PATH);
    let models = models.filter(|(_, id)| stays_below(id) && (id.is_empty() || id.starts_with('/')));
    let is_models =
        models.is_some_and(|(prefix, _)| prefix.is_empty() || has_method(&[b"GET", b"HEAD"]));
    is_api && has_method(&[b"POST"]) || is_models
}

/// Checks an entry of a list.
pub fn check_entry(entry: &str) -> Result<(), PathEntryError> {
    let path = entry.strip_suffix(BELOW).unwrap_or(entry);
    let is_path = path.starts_with('/') && path.len() > 1 && !path.ends_with('/');
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*?#\\%".contains(&byte);
    let is_valid = is_path && path.bytes().all(is_plain) && stays_below(path);
    if entry == ANY || is_valid {
        Ok(())
    } else {
        Err(PathEntryError)
    }
}

/// Whether no segment of a path leads up, as an engine or another proxy may read it.
fn stays_below(path: &str) -> bool {
    let decoded = percent_decode_str(path).decode_utf8();
    decoded.is_ok_and(|path| {
        let mut segments = path.split(['/', '\\']);
        segments.all(|segment| segment != "." && segment != "..")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &AllowedPaths, path: &str) -> PathUse {
        paths.use_of(Some(path.as_bytes()), None)
    }

    #[test]
    fn the_default_has_every_api_and_the_models() {
        let paths = AllowedPaths::default();
        for path in DEFAULT_PATHS {
            assert_eq!(check_entry(path), Ok(()), "{path}");
            assert!(allowed_methods(path).is_some(), "{path}");
        }
        for path in [
            "/v1/chat/completions",
            "/v1/chat/completions/",
            "/v1/chat/completions?api-version=1",
            "/generate_stream",
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/v1/models",
            "/v1/models/",
            "/v1/models/org/model",
            "/v1/models/org%2Fmodel",
            "/v1/models/gpt-4..5",
        ] {
            assert_eq!(of(&paths, path), PathUse::Serve, "{path}");
        }
    }

    #[test]
    fn no_spelling_of_another_path_passes() {
        let paths = AllowedPaths::default();
        for path in [
            "",
            "/",
            "*",
            "/metrics",
            "/metrics/",
            "//metrics",
            "/load",
            "/flush_cache",
            "/abort_request",
            "/tokenize",
            "/metrics/v1/completions",
            "/metrics?x=/v1/completions",
            "/metrics#/v1/completions",
            "/metrics%3f/v1/completions",
            "/metrics;/v1/completions",
            "/v1/../metrics",
            "/v1/completions/../../metrics",
            "/v1/models/../../metrics",
            "/v1/models/%2e%2E/%2e./metrics",
            "/v1/models/..%2f..%2Fmetrics",
            "/v1/models/..%5c..%5Cmetrics",
            "/v1/models\\..\\metrics",
            "/v1/responses/../../metrics",
            "/v1/models/%ff",
            "/V1/completions",
            "/v1/completions;x",
            "/v1/chat",
        ] {
            assert_eq!(of(&paths, path), PathUse::Reject, "{path}");
        }
    }

    #[test]
    fn a_configured_list_replaces_the_default() {
        let paths = AllowedPaths::parse(&["/v1/rerank", "/openai/*"]).unwrap();
        for path in ["/v1/rerank", "/openai/v1/completions"] {
            assert_eq!(of(&paths, path), PathUse::Serve, "{path}");
        }
        for path in ["/v1/completions", "/openai"] {
            assert_eq!(of(&paths, path), PathUse::Reject, "{path}");
        }
        let none = AllowedPaths::parse::<&str>(&[]).unwrap();
        assert_eq!(of(&none, "/"), PathUse::Reject);
    }

    #[test]
    fn beside_other_applications_the_apis_are_served_and_the_rest_passes() {
        let paths = AllowedPaths::parse(&["*", "/v1/rerank"]).unwrap();
        for path in [
            "/v1/chat/completions?x=1",
            "/llm/v1/chat/completions/",
            "/llm/v1/messages/count_tokens",
            "/openai/deployments/llama/chat/completions?api-version=1",
            "/generate",
            "/v1/rerank",
            "/v1/responses/resp_1/cancel",
            "/llm/v1/responses/resp_1?stream=true",
        ] {
            assert_eq!(of(&paths, path), PathUse::Serve, "{path}");
        }
        for path in [
            "/",
            "/metrics",
            "/v1/files",
            "/v1/responses/compact",
            "/metrics/v1/responses/resp_1",
            "/v1/realtime",
            "/images/generate",
            "/openai/deployments/llama/images/generations",
            "/demo.Echo/Bidi",
            "/files/a?x=/v1/completions",
            "/v1/models/../../metrics",
            "/llm/v1/models/%2e%2e/metrics",
            "/v1/modelsx",
            "/metrics/v1/completions",
            "/llm/metrics/v1/models",
        ] {
            for method in ["GET", "POST"] {
                let found = paths.use_of(Some(path.as_bytes()), Some(method.as_bytes()));
                assert_eq!(found, PathUse::Pass, "{method} {path}");
            }
        }
        for (method, path, expected) in [
            ("GET", "/chat/v1/messages", PathUse::Pass),
            ("OPTIONS", "/chat/v1/messages", PathUse::Pass),
            ("POST", "/registry/v1/models", PathUse::Pass),
            ("GET", "/llm/v1/models/org/model", PathUse::Serve),
            ("DELETE", "/v1/models", PathUse::Serve),
            ("DELETE", "/v1/models/org/model", PathUse::Serve),
        ] {
            let found = paths.use_of(Some(path.as_bytes()), Some(method.as_bytes()));
            assert_eq!(found, expected, "{method} {path}");
        }
        assert_eq!(paths.use_of(Some(b"/\xff"), None), PathUse::Pass);
        assert_eq!(paths.use_of(None, Some(b"CONNECT")), PathUse::Pass);
        for method in [None, Some(&b"POST"[..])] {
            assert_eq!(paths.use_of(None, method), PathUse::Serve, "{method:?}");
        }
    }

    #[test]
    fn a_path_that_a_route_rewrites_has_the_configured_api() {
        let mut paths = AllowedPaths::default();
        paths.add_api("/llm/openai", Api::ChatCompletions).unwrap();
        for path in ["/llm/openai", "/llm/openai/?x=1"] {
            assert_eq!(paths.api_of(path), Some(Api::ChatCompletions), "{path}");
            assert_eq!(of(&paths, path), PathUse::Serve, "{path}");
        }
        assert_eq!(paths.api_of("/v1/messages"), Some(Api::Messages));
        assert_eq!(paths.api_of("/llm/openai/files"), None);
        assert_eq!(of(&paths, "/llm/openai/files"), PathUse::Reject);
        for entry in ["*", "/a/*", "a", "/a/../b"] {
            let added = paths.add_api(entry, Api::Generate);
            assert_eq!(added, Err(PathEntryError), "{entry}");
        }
    }

    #[test]
    fn an_entry_that_is_no_path_is_refused() {
        for entry in [
            "", "/", "metrics", "/a/", "/a?b", "/a*", "/*", "/*/b", "/a/../b", "/a b",
        ] {
            assert_eq!(check_entry(entry), Err(PathEntryError), "{entry}");
        }
        let errors = AllowedPaths::parse(&["/a", "b"]).unwrap_err();
        assert_eq!(errors, [(1, PathEntryError)]);
    }

    #[test]
    fn a_known_path_takes_its_methods_and_any_other_all() {
        for path in [
            "/v1/completions",
            "/v1/messages/count_tokens?beta=true",
            "/generate/",
        ] {
            assert!(allows_method(path, "POST"), "{path}");
            for method in ["GET", "DELETE", "OPTIONS", "TRACE", "PUT", "post", ""] {
                assert!(!allows_method(path, method), "{method} {path}");
            }
        }
        for path in ["/v1/models", "/v1/models/org/a", "/health"] {
            assert!(
                allows_method(path, "GET") && allows_method(path, "HEAD"),
                "{path}"
            );
            assert!(
                !allows_method(path, "POST") && !allows_method(path, "DELETE"),
                "{path}"
            );
        }
        for (method, path) in [
            ("GET", "/v1/responses/resp_1?stream=true"),
            ("DELETE", "/v1/responses/resp_1"),
            ("POST", "/v1/responses/resp_1/cancel"),
            ("GET", "/v1/responses/resp_1/input_items/"),
        ] {
            assert!(allows_method(path, method), "{method} {path}");
            assert!(!allows_method(path, "PUT"), "{path}");
        }
        assert!(!allows_method("/v1/responses/resp_1", "POST"));
        assert!(!allows_method("/v1/responses/resp_1/cancel", "GET"));
        assert!(allows_method("/x/v1/completions", "GET"));
        assert!(allows_method("/v1/files", "DELETE") && allows_method("/v1/rerank", "POST"));
    }
}
