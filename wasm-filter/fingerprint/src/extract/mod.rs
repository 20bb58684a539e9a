//! Extracts from a request body, in pieces of any size, what routing needs.

mod marks;
mod members;
mod names;
mod prompt;
mod visitor;

use alloc::string::String;
use alloc::vec::Vec;

use self::members::{Goal, MemberFinder};
use self::visitor::RequestVisitor;
use crate::json::Scanner;
use crate::{Api, BodyError, Fingerprint, UnreadModel, objectives, tenant};

/// Members of the body besides the prompt, as dotted paths such as `user` or `metadata.session_id`.
///
/// A path to an object means its member `id`, as in `conversation`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberPaths {
    /// The members with a session key, best first.
    pub session: Vec<String>,
    /// The members with the workload tier, best first.
    pub tier: Vec<String>,
    /// The members with the budget for the first token in milliseconds, best first.
    pub ttft_ms: Vec<String>,
    /// The members with the deadline in Unix seconds, best first.
    pub deadline: Vec<String>,
}

/// The parts of a request that routing needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The fingerprint of the prompt, as far as it was read.
    pub fingerprint: Fingerprint,
    /// The model that the request names, unless the name is longer than 256 bytes or the request names two.
    pub model: Option<String>,
    /// The reason why the model of the request cannot be told, as far as the body was read.
    pub unread_model: Option<UnreadModel>,
    /// The best session key with its index in [`MemberPaths::session`], as the client wrote it; [`crate::session::SessionSecret::hash`]
    /// makes a header value of it. A key longer than 256 bytes is replaced by its digest.
    pub session: Option<(usize, String)>,
    /// The name of the workload tier, with the index of its member in [`MemberPaths::tier`].
    pub tier: Option<(usize, &'static str)>,
    /// The budget for the first token in milliseconds, with the index of its member in [`MemberPaths::ttft_ms`].
    pub ttft_ms: Option<(usize, u32)>,
    /// The deadline in Unix milliseconds, with the index of its member in [`MemberPaths::deadline`].
    pub deadline_unix_ms: Option<(usize, u64)>,
    /// The id of the stored response that the request continues, in the API of responses.
    pub previous_response: Option<String>,
    /// Whether the client asks for a streamed response.
    pub is_stream: bool,
    /// Estimated prompt tokens.
    pub prompt_tokens: u32,
    /// The most output tokens that the request allows, if it sets a limit.
    pub output_tokens_max: Option<u32>,
    /// Whether the body was read to its end: false for a body that was cut or has an error.
    pub is_complete: bool,
    /// The reason why the body was not read to its end.
    pub error: Option<BodyError>,
}

/// Reads a request body.
///
/// The extractor uses the same memory for a body of any size, except 8 bytes per block, and allocates a handful of times per
/// request. It never fails: the prompt ends where the body cannot be read.
///
/// A body in which a member that matters stands twice has [`BodyError::RepeatedMember`]: engines take the last, which is
/// unknown before the body has ended. Two equal models are one. Of two members for the limit of output tokens, the larger
/// counts.
#[derive(Debug)]
pub struct Extractor {
    scanner: Scanner,
    visitor: RequestVisitor,
}

impl Extractor {
    /// An extractor for a body of this API.
    #[must_use]
    pub fn new(api: Api, paths: &MemberPaths) -> Self {
        Self::of(Some(api), paths)
    }

    /// An extractor for a JSON body of any other path. It finds everything but a prompt.
    #[must_use]
    pub fn without_prompt(paths: &MemberPaths) -> Self {
        Self::of(None, paths)
    }

    fn of(api: Option<Api>, paths: &MemberPaths) -> Self {
        Self {
            scanner: Scanner::new(),
            visitor: RequestVisitor::new(api, MemberFinder::new(api, paths)),
        }
    }

    /// Sets the tenant of the request, as in its header. Prompts of two tenants share no block.
    pub fn set_tenant(&mut self, tenant: &str) {
        self.visitor.prompt.set_tenant(tenant::seed(tenant));
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        self.scanner.feed(piece, &mut self.visitor);
    }

    /// Whether the body has an error, so that its rest is not read.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.scanner.error().is_some()
    }

    /// The result, which may be taken before the body has ended.
    pub fn finish(self) -> Extraction {
        let mut visitor = self.visitor;
        let is_repeated = visitor.finish_names();
        let error = self.scanner.error();
        let error = error.or(is_repeated.then_some(BodyError::RepeatedMember));
        let unread_model = visitor.members.unread_model();
        let mut value = |goal| visitor.members.take(goal);
        let model = value(Goal::Model).map(|(_, model)| model);
        let of_body = || match self.scanner.error() {
            Some(error) => Some(UnreadModel::of_error(error)),
            None => self.scanner.is_open().then_some(UnreadModel::TooFar),
        };
        Extraction {
            unread_model: unread_model.or_else(|| of_body().filter(|_| model.is_none())),
            model,
            session: value(Goal::Session),
            tier: value(Goal::Tier).and_then(|found| read(found, objectives::tier)),
            ttft_ms: value(Goal::Ttft).and_then(|found| read(found, objectives::ttft_ms)),
            deadline_unix_ms: value(Goal::Deadline)
                .and_then(|found| read(found, objectives::deadline_unix_ms)),
            previous_response: value(Goal::PreviousResponse).map(|(_, id)| id),
            is_stream: visitor.stream.unwrap_or(false),
            prompt_tokens: visitor.prompt.tokens(),
            output_tokens_max: visitor.output_tokens_max,
            is_complete: self.scanner.is_complete() && error.is_none(),
            error,
            fingerprint: match error {
                Some(BodyError::RepeatedMember) => Fingerprint::default(),
                _ => visitor.prompt.fingerprint(),
            },
        }
    }
}

/// An objective that the finder has found to be readable.
fn read<T>(
    (member, text): (usize, String),
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<(usize, T)> {
    Some((member, parse(text.as_bytes())?))
}
