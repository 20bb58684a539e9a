//! The reader of a body: of a prompt with all members, of the members alone, or of a form.
//!
//! Every JSON body is read, whatever its type says: clients send JSON as text, as a form or without a type, and engines read it.
//! A body of a path without a known prompt, and a form, may name the model and the session.

use isotherm_fingerprint::{Extraction, Extractor, FormReader, UnreadModel, tokens};

use super::{PromptCoverage, SkipReason};
use crate::RequestConfig;
use crate::headers::{self, Headers};

/// The longest name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 256;

/// The source of the prompt and of the model.
#[derive(Debug)]
pub(super) enum PromptSource {
    /// A JSON body, and the reason why it has no prompt to read, if there is one.
    Body(Box<Extractor>, Option<SkipReason>),
    /// A form, which has no prompt to read.
    Form(Box<FormReader>),
    /// A trusted peer, which found this model.
    Peer(Option<String>),
    Skipped(SkipReason),
}

/// The result of a reader.
#[derive(Debug)]
pub(super) struct PromptFacts {
    pub(super) coverage: PromptCoverage,
    pub(super) found: Option<Extraction>,
    pub(super) model: Option<String>,
    /// The reason why the model cannot be told, where the body may name one.
    pub(super) unread_model: Option<UnreadModel>,
}

impl PromptSource {
    /// The source of a request that no trusted peer has read.
    pub(super) fn of_body(
        config: &RequestConfig,
        headers: &Headers,
        has_body: bool,
        tenant: Option<&str>,
    ) -> Self {
        let path = headers::get(headers, ":path").and_then(|path| str::from_utf8(path).ok());
        let api = path.and_then(|path| config.allowed_paths.api_of(path));
        let unknown_path = match (api, path.unwrap_or_default()) {
            (Some(_), _) => None,
            (None, path) if computes_nothing(path) => Some(SkipReason::NoPrompt),
            (None, _) => Some(SkipReason::UnknownPath),
        };
        // The bytes of an upgrade come after its response.
        if !has_body || unknown_path.is_some() && headers::is_upgrade(headers) {
            return Self::Skipped(unknown_path.unwrap_or(SkipReason::NoBody));
        }
        if headers::is_encoded(headers) {
            return Self::Skipped(SkipReason::ContentEncoding);
        }
        if let Some(boundary) = headers::form_boundary(headers) {
            return Self::Form(Box::new(FormReader::new(boundary)));
        }
        let mut extractor = match api {
            Some(api) => Extractor::new(api, &config.members),
            None => Extractor::without_prompt(&config.members),
        };
        if let Some(tenant) = tenant {
            extractor.set_tenant(tenant);
        }
        Self::Body(Box::new(extractor), unknown_path)
    }

    /// Whether the rest of the body can tell anything.
    pub(super) fn reads_body(&self) -> bool {
        match self {
            Self::Body(extractor, _) => !extractor.has_failed(),
            Self::Form(_) => true,
            Self::Peer(_) | Self::Skipped(_) => false,
        }
    }

    pub(super) fn feed(&mut self, piece: &[u8]) {
        match self {
            Self::Body(extractor, _) => extractor.feed(piece),
            Self::Form(form) => form.feed(piece),
            Self::Peer(_) | Self::Skipped(_) => {}
        }
    }

    /// The result for a body that has ended, or whose rest is not read.
    pub(super) fn finish(self, has_ended: bool) -> PromptFacts {
        match self {
            Self::Peer(model) => PromptFacts::without_body(PromptCoverage::Forwarded, model, None),
            Self::Skipped(reason) => {
                let unread = match reason {
                    SkipReason::ContentEncoding => Some(UnreadModel::Encoding),
                    SkipReason::BodyWithheld => Some(UnreadModel::Withheld),
                    _ => None,
                };
                PromptFacts::without_body(PromptCoverage::Skipped(reason), None, unread)
            }
            Self::Form(form) => {
                let (model, is_whole) = form.finish();
                let (model, unread) = match model {
                    Some(model) if model.len() > MODEL_BYTES_MAX => {
                        (None, Some(UnreadModel::TooLong))
                    }
                    Some(model) => (Some(model), None),
                    None => (None, (!is_whole).then(|| cut(has_ended))),
                };
                let coverage = PromptCoverage::Skipped(SkipReason::ContentType);
                PromptFacts::without_body(coverage, model, unread)
            }
            Self::Body(extractor, skipped) => {
                PromptFacts::of(extractor.finish(), skipped, has_ended)
            }
        }
    }
}

impl PromptFacts {
    fn without_body(
        coverage: PromptCoverage,
        model: Option<String>,
        unread_model: Option<UnreadModel>,
    ) -> Self {
        Self {
            coverage,
            found: None,
            model,
            unread_model,
        }
    }

    fn of(found: Extraction, skipped: Option<SkipReason>, has_ended: bool) -> Self {
        let coverage = match (skipped, found.error) {
            (Some(reason), _) => PromptCoverage::Skipped(reason),
            (None, Some(error)) => PromptCoverage::Skipped(SkipReason::Body(error)),
            (None, None) if found.is_complete => PromptCoverage::Complete,
            (None, None) => PromptCoverage::Partial,
        };
        let unread_model = found.unread_model.map(|reason| match reason {
            UnreadModel::TooFar => cut(has_ended),
            other => other,
        });
        Self {
            coverage,
            model: found.model.clone(),
            unread_model,
            found: Some(found),
        }
    }

    /// The estimated prompt tokens, with the limit of output tokens; `None` where nothing is known of a body.
    ///
    /// `body_bytes` is the length of the body, as far as it is known. It bounds the estimate of a prompt that was not read from
    /// below: a client that hides its prompt must not seem to have none.
    pub(super) fn tokens(&self, body_bytes: u64) -> Option<tokens::Tokens> {
        let (read, output_max) = match &self.found {
            Some(found) => (found.prompt_tokens, found.output_tokens_max),
            None => (0, None),
        };
        let prompt = match self.coverage {
            PromptCoverage::Complete | PromptCoverage::Partial => read,
            PromptCoverage::Forwarded | PromptCoverage::Skipped(SkipReason::NoPrompt) => {
                return None;
            }
            PromptCoverage::Skipped(_) if body_bytes == 0 => return None,
            PromptCoverage::Skipped(SkipReason::ContentType) => tokens::MEDIUM_TOKENS,
            PromptCoverage::Skipped(_) => read.max(tokens::of_text(body_bytes)),
        };
        Some(tokens::Tokens {
            prompt,
            is_partial: self.coverage == PromptCoverage::Partial,
            output_max,
        })
    }
}

/// Whether engines compute no prompt at a path, though its body has one.
fn computes_nothing(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let path = path.strip_suffix('/').unwrap_or(path);
    ["/count_tokens", "/tokenize", "/detokenize"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// The reason why a body without a model so far may have named one.
fn cut(has_ended: bool) -> UnreadModel {
    match has_ended {
        true => UnreadModel::Malformed,
        false => UnreadModel::TooFar,
    }
}
