//! The requests that the filter reads, lets pass or answers, and the headers of clients that none of them keeps.

use isotherm_fingerprint::names;
use isotherm_fingerprint::paths::{self, PathUse};

use super::ACCEPT_ENCODING;
use super::target::SET_BY_PEER;
use crate::RequestConfig;
use crate::error_body;
use crate::headers::{self, HeaderEdit, Headers};
use crate::response::orca;

/// A response of the filter to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The status of the response.
    pub status: u16,
    /// The header `allow`, for a method that the path does not take.
    pub allow: Option<&'static str>,
    /// The body, in JSON.
    pub body: String,
}

/// The admission of a request, by its path and its method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Reads the request, and has a replica selected.
    Serve,
    /// Leaves a request of another application alone, but for these edits.
    Pass(Vec<HeaderEdit>),
    /// Responds to the client.
    Reject(Rejection),
}

impl Admission {
    /// Decides by the path and the method of a request. A host may show no pseudo-headers.
    #[must_use]
    pub fn of(config: &RequestConfig, headers: &Headers) -> Self {
        let method = headers::get(headers, ":method");
        let path = headers::get(headers, ":path");
        let is_known = match config.allowed_paths.use_of(path, method) {
            PathUse::Serve => true,
            PathUse::Reject => false,
            PathUse::Pass => return Self::Pass(strip_own(headers)),
        };
        let path = path.and_then(|path| str::from_utf8(path).ok());
        let path = path.unwrap_or_default();
        let method = method.and_then(|method| str::from_utf8(method).ok());
        let takes_method = method.is_none_or(|method| paths::allows_method(path, method));
        let (status, message, code) = match (is_known, takes_method) {
            (true, true) => return Self::Serve,
            (true, false) => (405, paths::METHOD_MESSAGE, "method_not_allowed"),
            (false, _) => (404, paths::UNKNOWN_PATH_MESSAGE, "unknown_url"),
        };
        let body = error_body::openai(message, "invalid_request_error", None, code);
        Self::Reject(Rejection {
            status,
            allow: paths::allowed_methods(path).filter(|_| status == 405),
            body: error_body::for_path(path, status, body).to_string(),
        })
    }
}

/// The edits that remove the internal headers of a client, each name once. Of a trusted peer only its routing is removed.
///
/// A listener may name the default cluster in the header from which its route takes the cluster. The header stays then: the
/// request goes there while nothing names another cluster.
#[must_use]
pub fn strip(config: &RequestConfig, headers: &Headers) -> Vec<HeaderEdit> {
    let names_default = names_default_cluster(config, headers);
    let mut edits = remove_where(headers, |name| {
        let is_kept = (config.trusted_origin && SET_BY_PEER.contains(&name))
            || (names_default && name == names::CLUSTER);
        headers::is_internal(name) && !is_kept
    });
    if config.hides_cache() {
        // A compressed response could not be read, and the engine's report tells the use of its cache.
        let names = [ACCEPT_ENCODING, orca::FORMAT_HEADER];
        edits.extend(names.map(|name| HeaderEdit::Remove(name.to_owned())));
    }
    edits
}

/// Whether the headers name the default cluster and no other.
fn names_default_cluster(config: &RequestConfig, headers: &Headers) -> bool {
    let mut values = headers.iter().filter(|(name, _)| name == names::CLUSTER);
    let default = config.cluster(None).map(str::as_bytes);
    let first = values.next().map(|(_, value)| value.as_slice());
    first.is_some() && first == default && values.next().is_none()
}

/// The edits that remove Isotherm's own headers, by which Envoy would send a request to a pool. Headers that steer engines mean
/// something else to another application.
fn strip_own(headers: &Headers) -> Vec<HeaderEdit> {
    remove_where(headers, headers::is_own)
}

/// The edits that remove the headers with such a name, each name once.
fn remove_where(headers: &Headers, is_removed: impl Fn(&str) -> bool) -> Vec<HeaderEdit> {
    let names = headers.iter().map(|(name, _)| name.as_str());
    let mut names: Vec<&str> = names.filter(|name| is_removed(name)).collect();
    names.sort_unstable();
    names.dedup();
    let remove = |name: &str| HeaderEdit::Remove(name.to_owned());
    names.into_iter().map(remove).collect()
}
