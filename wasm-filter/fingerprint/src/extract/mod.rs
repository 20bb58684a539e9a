//! From a request body, in pieces of any size, to what routing needs of it.

mod marks;
mod mode;
mod prompt;
mod walk;
mod watch;

use alloc::string::String;
use alloc::vec::Vec;

use self::walk::Walk;
use self::watch::Watch;
use crate::json::{Fault, Scanner};
use crate::{Api, Fingerprint};

/// What to look for in the body besides the prompt: dotted paths of members, such as `user` or `metadata.session_id`.
/// A path that leads to an object means its `id`, as in `conversation`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Where a session key may be, best first.
    pub session: Vec<String>,
    /// Where the workload tier may be, best first.
    pub tier: Vec<String>,
}

/// Why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// It does not begin as a JSON object does: compressed, a form, another format.
    NotJson,
    /// It begins as a JSON object and breaks the grammar later.
    Malformed,
    /// It is nested too deeply.
    TooDeep,
}

impl Problem {
    /// The name of this problem in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::Malformed => "malformed",
            Self::TooDeep => "too_deep",
        }
    }
}

/// What routing needs of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extracted {
    /// The prompt, as far as it was read.
    pub fingerprint: Fingerprint,
    /// The model that the request names; `None` also for a name longer than 256 bytes.
    pub model: Option<String>,
    /// The best session key: its index in [`Wanted::session`], and the key as the client wrote it, for [`crate::session::encode`].
    /// One longer than 256 bytes is its digest.
    pub session: Option<(usize, String)>,
    /// The workload tier, as the request spells it.
    pub tier: Option<String>,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Estimated prompt tokens.
    pub prompt_tokens: u32,
    /// The most output tokens that the request allows, where it says so.
    pub output_tokens_max: Option<u32>,
    /// Whether the whole body was read: false for one that was cut or has a problem.
    pub complete: bool,
    /// Why the body was not read to its end.
    pub problem: Option<Problem>,
}

/// Reads a request body.
///
/// It needs the same memory for a body of any size, but for 8 bytes a block hash, and allocates a handful of times a
/// request. It never fails: what it cannot read ends the prompt there.
///
/// The first of two members of one name counts, of two limits of output tokens the larger. Parsers take the last; which one
/// that is cannot be known before the body has ended, and no client writes two.
#[derive(Debug)]
pub struct Extractor {
    scanner: Scanner,
    walk: Walk,
}

impl Extractor {
    /// Reads a body of this shape.
    #[must_use]
    pub fn new(api: Api, wanted: &Wanted) -> Self {
        Self {
            scanner: Scanner::new(),
            walk: Walk::new(api, Watch::new(wanted)),
        }
    }

    /// The next piece of the body.
    pub fn feed(&mut self, piece: &[u8]) {
        self.scanner.feed(piece, &mut self.walk);
    }

    /// What was found; may be called before the body has ended.
    #[must_use]
    pub fn finish(self) -> Extracted {
        let walk = self.walk;
        let problem = self.scanner.fault().map(|fault| match fault {
            Fault::NotAnObject => Problem::NotJson,
            Fault::Grammar => Problem::Malformed,
            Fault::Depth => Problem::TooDeep,
        });
        let prompt_tokens = walk.prompt.tokens();
        let chain = walk.prompt.fold();
        Extracted {
            fingerprint: Fingerprint::new(chain.blocks, chain.total_bytes).unwrap_or_default(),
            model: walk.watch.model,
            session: walk.watch.session,
            tier: walk.watch.tier.map(|(_, tier)| tier),
            stream: walk.stream.unwrap_or(false),
            prompt_tokens,
            output_tokens_max: walk.output_tokens_max,
            complete: self.scanner.is_complete(),
            problem,
        }
    }
}
