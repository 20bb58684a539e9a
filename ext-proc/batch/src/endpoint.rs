//! The API paths that a batch may send requests to.

use std::str::FromStr as _;

use strum::{Display, EnumString, IntoStaticStr, VariantNames};

/// An API path that a batch may send requests to. The paths are whole: an input file cannot name a host, a query or a
/// path of the gateway's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, IntoStaticStr, VariantNames)]
pub enum Endpoint {
    /// OpenAI's chat completions.
    #[strum(serialize = "/v1/chat/completions")]
    ChatCompletions,
    /// OpenAI's completions.
    #[strum(serialize = "/v1/completions")]
    Completions,
    /// OpenAI's responses.
    #[strum(serialize = "/v1/responses")]
    Responses,
    /// OpenAI's embeddings.
    #[strum(serialize = "/v1/embeddings")]
    Embeddings,
    /// Anthropic's messages.
    #[strum(serialize = "/v1/messages")]
    Messages,
}

impl Endpoint {
    /// The endpoint of a path, with `/v1` or without, as in Azure's batch files; `None` for every other path.
    #[must_use]
    pub fn from_path(path: &str) -> Option<Self> {
        let whole = Self::from_str(path);
        whole
            .or_else(|_| Self::from_str(&format!("/v1{path}")))
            .ok()
    }

    /// The path.
    #[must_use]
    pub fn path(self) -> &'static str {
        self.into()
    }

    /// All paths, for an error.
    #[must_use]
    pub fn list() -> String {
        Self::VARIANTS.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use isotherm_fingerprint::Api;

    use super::*;

    #[test]
    fn every_endpoint_is_an_api_that_the_filter_reads() {
        for path in Endpoint::VARIANTS {
            assert!(Api::from_path(path).is_some(), "{path}");
            assert_eq!(Endpoint::from_path(path).map(Endpoint::path), Some(*path));
        }
    }

    #[test]
    fn a_path_without_its_version_is_the_same_endpoint() {
        for path in Endpoint::VARIANTS {
            let short = path.strip_prefix("/v1").unwrap();
            assert_eq!(
                Endpoint::from_path(short),
                Endpoint::from_path(path),
                "{short}"
            );
        }
    }

    #[test]
    fn foreign_urls_are_no_endpoints() {
        for path in [
            "http://other.example/v1/chat/completions",
            "//other.example/v1/chat/completions",
            "/v1/chat/completions?x=1",
            "/v1/chat/completions/",
            "/v1/chat/../chat/completions",
            "/api/replicas",
            "chat/completions",
            "/v1/v1/chat/completions",
            "/v2/chat/completions",
            "/openai/chat/completions",
            "",
        ] {
            assert_eq!(Endpoint::from_path(path), None, "{path}");
        }
    }
}
