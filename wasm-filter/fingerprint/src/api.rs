//! The inference APIs and their paths.

use alloc::string::String;

use percent_encoding::percent_decode_str;

/// An inference API, which determines the shape of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Api {
    /// OpenAI `/v1/chat/completions`.
    ChatCompletions,
    /// OpenAI `/v1/completions`.
    Completions,
    /// OpenAI `/v1/responses`.
    Responses,
    /// OpenAI `/v1/embeddings`.
    Embeddings,
    /// Anthropic `/v1/messages`.
    Messages,
    /// `/generate` of SGLang and of text-generation-inference, which also has `/generate_stream`.
    Generate,
}

const ALL: [Api; 6] = [
    Api::ChatCompletions,
    Api::Completions,
    Api::Responses,
    Api::Embeddings,
    Api::Messages,
    Api::Generate,
];

/// The ends of Azure's paths, behind the model.
const AZURE_ENDINGS: [(&str, Api); 3] = [
    ("chat/completions", Api::ChatCompletions),
    ("completions", Api::Completions),
    ("embeddings", Api::Embeddings),
];

/// The ends of the paths. OpenAI's include `/v1`, so that `/batch/completions` does not match.
const ENDINGS: [(&str, Api); 7] = [
    ("/v1/chat/completions", Api::ChatCompletions),
    ("/v1/completions", Api::Completions),
    ("/v1/responses", Api::Responses),
    ("/v1/embeddings", Api::Embeddings),
    ("/v1/messages", Api::Messages),
    ("/generate", Api::Generate),
    ("/generate_stream", Api::Generate),
];

impl Api {
    /// The API of a path; `None` for a path without a known prompt.
    ///
    /// A query, a trailing slash and any prefix are ignored: gateways publish the APIs under prefixes.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        if let Some((_, operation)) = azure(path) {
            let mut endings = AZURE_ENDINGS.iter();
            return endings
                .find(|(ending, _)| *ending == operation)
                .map(|(_, api)| *api);
        }
        ENDINGS
            .iter()
            .find(|(ending, _)| path.ends_with(ending))
            .map(|(_, api)| *api)
    }

    /// The API with a name in configurations.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|api| api.name() == name)
    }

    /// The name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Completions => "completions",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            Self::Generate => "generate",
        }
    }

    /// Every API.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter()
    }
}

/// The model and the operation of a path of Azure's: `/openai/deployments/MODEL/OPERATION`, without a query.
fn azure(path: &str) -> Option<(&str, &str)> {
    let (_, behind) = path.split_once("/openai/deployments/")?;
    let (model, operation) = behind.split_once('/')?;
    (!model.is_empty()).then_some((model, operation))
}

/// Whether a path belongs to Anthropic's API, whose clients expect errors of its own shape.
#[must_use]
pub fn is_anthropic(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    path.ends_with("/v1/messages") || path.contains("/v1/messages/")
}

/// The model that a path of Azure's names: `/openai/deployments/MODEL/...`.
#[must_use]
pub fn model_in_path(path: &str) -> Option<String> {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let (model, _) = azure(path)?;
    let model = percent_decode_str(model).decode_utf8().ok()?;
    Some(model.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_query_and_trailing_slash_are_tolerated() {
        for path in [
            "/v1/chat/completions",
            "/v1/chat/completions/",
            "/v1/chat/completions?api-version=1",
            "/openai/v1/chat/completions",
        ] {
            assert_eq!(Api::from_path(path), Some(Api::ChatCompletions), "{path}");
        }
        assert_eq!(Api::from_path("/v1/completions"), Some(Api::Completions));
        assert_eq!(Api::from_path("/generate_stream"), Some(Api::Generate));
    }

    #[test]
    fn every_api_has_a_name() {
        for api in Api::all() {
            let name = api.name();
            assert_eq!(Api::from_name(name), Some(api), "{name}");
        }
        assert_eq!(Api::from_name("chat"), None);
    }

    #[test]
    fn a_path_of_azure_has_the_api_of_its_operation() {
        let of = |operation: &str| {
            Api::from_path(&alloc::format!(
                "/openai/deployments/org%2Fvlm/{operation}?api-version=2024-02-01"
            ))
        };
        assert_eq!(of("chat/completions"), Some(Api::ChatCompletions));
        assert_eq!(of("completions"), Some(Api::Completions));
        assert_eq!(of("embeddings"), Some(Api::Embeddings));
        for other in ["", "audio/transcriptions", "x/v1/completions"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_path_of_azure_names_the_model() {
        let model = |path| model_in_path(path);
        let path = "/openai/deployments/org%2Fvlm/chat/completions?api-version=2024-02-01";
        assert_eq!(model(path).as_deref(), Some("org/vlm"));
        assert_eq!(
            model("/x/openai/deployments/a/embeddings").as_deref(),
            Some("a")
        );
        for other in [
            "/openai/deployments/a",
            "/openai/deployments//x",
            "/v1/deployments/a/x",
        ] {
            assert_eq!(model(other), None, "{other}");
        }
    }

    #[test]
    fn other_paths_belong_to_no_api() {
        for path in [
            "",
            "/",
            "/v1/models",
            "/v1/messages/count_tokens",
            "/xgenerate",
            "/v2/completions",
            "/metrics?x=/generate",
        ] {
            assert_eq!(Api::from_path(path), None, "{path}");
        }
    }
}
