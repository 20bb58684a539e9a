//! The role in front of the external processor: turns the prompt of a request into headers.
//!
//! ```text
//! headers ──strip internal headers──┬─ no body ────────────────────────────┐
//!                                   └─ hold ─ body ─ body ─ ... ─ body end ┴─ set headers, release
//! ```
//! The filter holds a request until its body has ended, or until the limit of [`RequestConfig`]: past Envoy's own limit,
//! Envoy would answer 413. It holds a body that it cannot read as well: a request without its body would take a place at a
//! replica. [`crate::body_timer`] bounds the time. The rest of a longer body streams through unread, and the fingerprint
//! covers the beginning.
//!
//! Over HTTP/1 a single read may bring as much as Envoy's limit on top of the held bytes. So the filter releases a body whose
//! announced length exceeds the limit after the first piece, unless `request_body_buffer_limit` allows both. The first piece
//! itself may exceed the limit: Envoy answers 413 only to a body that a filter holds.
//!
//! A trusted peer has read the prompt. The filter holds its body all the same, unread, so that the decision stream decides on a
//! whole request.
//!
//! Where Envoy withholds the body ([`crate::body_watch`]), the filter holds no request for its prompt. The headers alone then
//! give session, objectives and cluster, and the decision stream decides by them.
//!
//! Three requests fail here: one to a path outside the list `paths` gets a 404, one with a method that its path does not take a
//! 405 ([`Admission`]), and one whose body is late a 408. A request whose prompt cannot be read continues, and the filter counts the reason ([`SkipReason`]).
//! Beside other applications (`paths: ["*"]`), theirs pass untouched.

mod admission;
mod objectives;
mod prompt;
mod skip;
mod source;
mod target;
mod tenant;

use std::sync::Arc;

use isotherm_fingerprint::{Extraction, model_in_path, names, session, tokens};

pub use admission::{Admission, Rejection, strip};
use objectives::Objectives;
use prompt::{PromptFacts, PromptSource};
pub use skip::SkipReason;
use source::RankedValue;
pub use target::{RequestTarget, is_traced};

use crate::RequestConfig;
use crate::buffer_limit::BufferLimit;
use crate::config::{ENVOY_BUFFER_BYTES, Source};
use crate::headers::{self, HeaderEdit, Headers};

/// The header by which a client, or a filter in front, asks for a compressed response.
pub(crate) const ACCEPT_ENCODING: &str = "accept-encoding";

/// The bytes of one read over HTTP/2: a frame of the default size.
const FRAME_BYTES: usize = 16 * 1024;

/// The state of a request in the filter.
#[derive(Debug)]
pub struct RequestFlow {
    config: Arc<RequestConfig>,
    prompt: PromptSource,
    /// The model that the path names.
    model_in_path: Option<String>,
    /// Whether the body has ended.
    has_ended: bool,
    /// The header value of the tenant, if a source names one.
    tenant: Option<String>,
    /// Whether the request waits for its body.
    is_held: bool,
    session: RankedValue<String>,
    objectives: Objectives,
    body_bytes: usize,
    /// The most bytes of the body that the filter holds.
    buffer_bytes_max: usize,
    /// The most bytes of the body that Envoy buffers.
    buffer_limit: usize,
    content_length: Option<usize>,
    /// Whether an engine could compress the response, which the filter then could not read.
    accepts_encoding: bool,
    /// The client's address in Envoy's header, used when no other source has a session key.
    client_address: Option<String>,
    /// Present when a decision stream is configured.
    target: Option<RequestTarget>,
}

/// The result of a request that continues.
#[derive(Debug)]
pub struct Release {
    /// The headers to set.
    pub edits: Vec<HeaderEdit>,
    /// The bytes of the body that the filter held.
    pub body_bytes: usize,
    /// The part of the prompt that the fingerprint covers.
    pub coverage: PromptCoverage,
    /// The target of the request, if the filter may ask for a decision: only a request whose whole body is in Envoy's buffer,
    /// or withheld by Envoy, can be held any longer.
    pub target: Option<RequestTarget>,
}

/// The part of a prompt that the fingerprint covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptCoverage {
    /// The whole prompt.
    Complete,
    /// The beginning: the filter released the body before its end, or the body ends before its JSON does.
    Partial,
    /// A trusted peer made the fingerprint.
    Forwarded,
    /// None, for this reason.
    Skipped(SkipReason),
}

impl RequestFlow {
    /// Reads the headers of a request on a host without dynamic metadata. `has_body` is false for a request that ends with its
    /// headers.
    #[must_use]
    pub fn new(config: Arc<RequestConfig>, headers: &Headers, has_body: bool) -> Self {
        Self::with_metadata(config, headers, has_body, |_| None)
    }

    /// Reads the headers of a request. `metadata` looks up a property of the host with this path.
    #[must_use]
    pub fn with_metadata(
        config: Arc<RequestConfig>,
        headers: &Headers,
        has_body: bool,
        metadata: impl Fn(&[&str]) -> Option<Vec<u8>>,
    ) -> Self {
        let tenant = tenant::find(&config, headers, metadata);
        Self::of_tenant(config, headers, has_body, tenant)
    }

    /// Reads the headers of a tenant's request. `tenant` is the value of its header.
    #[must_use]
    pub fn of_tenant(
        config: Arc<RequestConfig>,
        headers: &Headers,
        has_body: bool,
        tenant: Option<String>,
    ) -> Self {
        let is_forwarded =
            config.trusted_origin && headers::get(headers, names::FINGERPRINT).is_some();
        let prompt = if is_forwarded {
            let model = headers::get(headers, names::MODEL);
            PromptSource::Peer(model.map(|model| String::from_utf8_lossy(model).into_owned()))
        } else {
            PromptSource::of_body(&config, headers, has_body, tenant.as_deref())
        };
        let is_held = match &prompt {
            PromptSource::Body(..) | PromptSource::Form(_) => true,
            // The bytes of an upgrade come after its response.
            PromptSource::Peer(_) | PromptSource::Skipped(_) => {
                has_body && !headers::is_upgrade(headers)
            }
        };
        let hash = |key: &[u8]| Some(config.secret.hash_of_tenant(tenant.as_deref(), key));
        let mut session = source::best(&config.session, headers, hash);
        if config.trusted_origin {
            let value = headers::get(headers, names::SESSION).filter(|value| !value.is_empty());
            session.prefer(value.map(|value| String::from_utf8_lossy(value).into_owned()));
        }
        let path = headers::get(headers, ":path").and_then(|path| str::from_utf8(path).ok());
        let mut flow = Self {
            prompt,
            model_in_path: path.and_then(model_in_path),
            has_ended: !has_body,
            tenant,
            is_held,
            session,
            objectives: Objectives::read(&config, headers),
            body_bytes: 0,
            buffer_bytes_max: config.buffer_bytes_max,
            buffer_limit: 0,
            content_length: headers::get(headers, "content-length")
                .and_then(|length| str::from_utf8(length).ok()?.trim().parse().ok()),
            accepts_encoding: config.removes_accept_encoding()
                && headers::get(headers, ACCEPT_ENCODING).is_some(),
            client_address: source::client_address(&config.session, headers),
            target: config
                .decision_stream()
                .map(|_| RequestTarget::of(&config, headers)),
            config,
        };
        flow.limit_buffer(BufferLimit::of(&flow.config));
        flow
    }

    /// Sets the bytes that Envoy buffers. The filter holds so much of a longer body that one more frame fits.
    pub fn limit_buffer(&mut self, limit: BufferLimit) {
        self.buffer_limit = limit.bytes();
        let fits = |bytes| bytes <= self.buffer_limit;
        if !self.content_length.is_some_and(fits) {
            let with_room = self.buffer_limit.saturating_sub(FRAME_BYTES).max(1);
            self.buffer_bytes_max = self.buffer_bytes_max.min(with_room);
        }
    }

    /// Makes the request continue without its prompt, because the host withholds the body.
    pub fn skip_body(&mut self) {
        self.is_held = false;
        if self.reads_body() {
            self.prompt = PromptSource::Skipped(SkipReason::BodyWithheld);
        }
    }

    /// Whether the filter must hold the request until its body has ended.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whether the filter reads the body.
    pub fn reads_body(&self) -> bool {
        self.prompt.reads_body()
    }

    /// Whether the body may exceed Envoy's buffer, which has no room for a large read on top of the held bytes. A body without
    /// a length counts where the buffer is smaller than a usual read.
    pub fn exceeds_buffer(&self) -> bool {
        let with_large_read = self
            .config
            .buffer_bytes_max
            .saturating_add(ENVOY_BUFFER_BYTES);
        let is_longer = match self.content_length {
            Some(bytes) => bytes > self.buffer_limit,
            None => self.buffer_limit < ENVOY_BUFFER_BYTES,
        };
        self.is_held() && is_longer && self.buffer_limit < with_large_read
    }

    /// Makes the filter release the request after the first piece of the body: a later piece might fill Envoy's buffer.
    pub fn release_after_first_piece(&mut self) {
        self.buffer_bytes_max = 1;
    }

    /// The bytes of the body that were read so far, which is the offset of the next piece.
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Reads the next piece of the body. Returns whether the request must continue now.
    #[must_use]
    pub fn feed(&mut self, piece: &[u8]) -> bool {
        self.prompt.feed(piece);
        self.pass_over(piece.len())
    }

    /// Records the end of the body.
    pub fn end_body(&mut self) {
        self.has_ended = true;
    }

    /// Records the next bytes of a body that the filter does not read. Returns whether the request must continue now.
    #[must_use]
    pub fn pass_over(&mut self, bytes: usize) -> bool {
        self.body_bytes = self.body_bytes.saturating_add(bytes);
        !self.is_held || self.body_bytes >= self.buffer_bytes_max
    }

    /// The headers with which the request continues.
    ///
    /// `now_unix_ms` reads the clock in Unix milliseconds, which only a request with a deadline needs. `peer_address` looks up the proxy's `ip:port` of the client. The filter calls it only when no other source has a
    /// session key and no header has the address, because the lookup is slow.
    #[must_use]
    pub fn release(
        self,
        now_unix_ms: impl FnOnce() -> u64,
        peer_address: impl FnOnce() -> Option<String>,
    ) -> Release {
        let config = self.config;
        let prompt = self.prompt.finish(self.has_ended);
        let coverage = prompt.coverage;
        let found = prompt.found.as_ref();
        let model = self.model_in_path.as_deref().or(prompt.model.as_deref());
        let model = model.filter(|model| !model.is_empty());
        let body_bytes = self.content_length.unwrap_or_default().max(self.body_bytes);

        let mut edits = Vec::new();
        if self.accepts_encoding {
            edits.push(HeaderEdit::Remove(ACCEPT_ENCODING.to_owned()));
        }
        if coverage != PromptCoverage::Forwarded {
            let body_bytes = u64::try_from(body_bytes).unwrap_or(u64::MAX);
            edits.extend(prompt_headers(&prompt, model, body_bytes));
        }
        let in_body =
            found.and_then(|found| session_in_body(&config, self.tenant.as_deref(), found));
        let session = self.session.or_in_body(in_body).or_else(|| {
            let is_source = config.session.contains(&Source::ClientAddress);
            let address = self.client_address.or_else(|| {
                let address = is_source.then(peer_address).flatten()?;
                Some(source::without_port(&address).to_owned())
            })?;
            let tenant = self.tenant.as_deref();
            Some(config.secret.hash_of_tenant(tenant, address.as_bytes()))
        });
        edits.extend(session.map(|session| HeaderEdit::set(names::SESSION, session)));
        let tenant = self.tenant.into_iter();
        edits.extend(tenant.map(|tenant| HeaderEdit::set(names::TENANT, tenant)));
        self.objectives
            .write(&mut edits, &config, found, now_unix_ms);

        let cluster = config.cluster(model);
        edits.extend(cluster.map(|cluster| HeaderEdit::set(names::CLUSTER, cluster)));
        let can_wait = match coverage {
            // Envoy holds a withheld body by flow control, and the gate what does not fit.
            PromptCoverage::Skipped(SkipReason::BodyWithheld) => true,
            PromptCoverage::Complete | PromptCoverage::Partial if config.has_gate() => true,
            coverage => {
                let is_whole = self.has_ended || coverage == PromptCoverage::Complete;
                is_whole && self.body_bytes <= self.buffer_limit
            }
        };
        Release {
            edits,
            body_bytes: self.body_bytes,
            coverage,
            target: self.target.filter(|_| can_wait),
        }
    }
}

/// The headers of the objectives that a request states in its own headers, for a request whose body nothing reads. `now_unix_ms` reads
/// the clock in Unix milliseconds.
#[must_use]
pub fn objectives_in_headers(
    config: &RequestConfig,
    headers: &Headers,
    now_unix_ms: impl FnOnce() -> u64,
) -> Vec<HeaderEdit> {
    let mut edits = Vec::new();
    Objectives::read(config, headers).write(&mut edits, config, None, now_unix_ms);
    edits
}

/// The session key in the body, with the rank of its source.
fn session_in_body(
    config: &RequestConfig,
    tenant: Option<&str>,
    found: &Extraction,
) -> Option<(usize, String)> {
    let (member, key) = found.session.as_ref()?;
    let rank = source::rank_of_body(&config.session, *member)?;
    let hash = || config.secret.hash_of_tenant(tenant, key.as_bytes());
    (!key.is_empty()).then(|| (rank, hash()))
}

/// The headers of the model and of the prompt. `body_bytes` is the length of the body, as far as it is known.
fn prompt_headers(
    prompt: &PromptFacts,
    model: Option<&str>,
    body_bytes: u64,
) -> impl Iterator<Item = HeaderEdit> {
    let model = match (model, prompt.unread_model) {
        (Some(model), _) => Some((names::MODEL, session::encode(model.as_bytes()))),
        (None, unread) => unread.map(|reason| (names::UNREAD_MODEL, reason.as_str().to_owned())),
    };
    let model = model.map(|(name, value)| HeaderEdit::set(name, value));
    let is_read = matches!(
        prompt.coverage,
        PromptCoverage::Complete | PromptCoverage::Partial
    );
    let found = prompt.found.as_ref().filter(|_| is_read);
    let fingerprint = found.map(|found| found.fingerprint.encode());
    let fingerprint = fingerprint.map(|value| HeaderEdit::set(names::FINGERPRINT, value));
    let tokens = prompt.tokens(body_bytes).map(tokens::encode);
    let tokens = tokens.map(|value| HeaderEdit::set(names::TOKENS, value));
    let previous = found.and_then(|found| found.previous_response.clone());
    let previous = previous.map(|id| HeaderEdit::set(names::PREVIOUS_RESPONSE, id));
    let stream = found.filter(|found| found.is_stream);
    let stream = stream.map(|_| HeaderEdit::set(names::STREAM, "1"));
    model
        .into_iter()
        .chain(fingerprint)
        .chain(tokens)
        .chain(previous)
        .chain(stream)
}

#[cfg(test)]
mod tests;
