//! The role in front of the external processor: a request's prompt becomes headers.
//!
//! ```text
//! headers ──strip what only Isotherm may set──┬─ nothing to read ─────────────┐
//!                                             └─ hold back ─ body ─ body ─ ... ┴─ set headers, let go
//! ```
//! The body is let go at its end, or as soon as [`RequestConfig`]'s limit is held back: past Envoy's own limit,
//! Envoy would refuse the request with a 413. What comes later streams through unread, and the fingerprint then
//! covers the beginning, which is the part that caches share anyway.
//!
//! Over HTTP/1 one read may bring as much as Envoy's limit at once, on top of what is held back, and a fast
//! client on a busy worker makes that happen (seen: one 413 in four requests of 30 MB). So a body that announces more than
//! the limit is let go with its first piece, unless the configuration says that Envoy's route has room for both
//! (`request_body_buffer_limit`, in Envoy as here). HTTP/2 brings a frame at a time, and needs no such care.
//!
//! No request ever fails here. One whose prompt cannot be read goes on with what is known, and the reason is
//! counted ([`Pass`]).

mod pass;
mod source;
mod tier;

use std::rc::Rc;

use isotherm_fingerprint::{Api, Extraction, Extractor, names, session, tokens};

pub use pass::Pass;
use source::Best;

use crate::RequestConfig;
use crate::config::{ENVOY_BUFFER_BYTES, Source};
use crate::headers::{self, Edit, Headers};
use crate::response::orca;

/// Response trailers that are the service's: this role, the last to see a response, removes them.
pub const RESPONSE_TRAILERS_TO_REMOVE: [&str; 1] = [names::OUTCOME];

/// One request on its way through the filter.
#[derive(Debug)]
pub struct RequestFlow {
    config: Rc<RequestConfig>,
    reading: Reading,
    session: Best,
    tier: Best,
    body_bytes: usize,
    /// How much of the body is held back at most.
    hold_bytes_max: usize,
    content_length: Option<usize>,
    /// The client's address as Envoy tells it, for when nothing better names a session.
    client_address: Option<String>,
    /// What the request is for; `None` where there is no decision stream to ask on.
    target: Option<Target>,
}

/// What a request is for: with what the filter writes, all that the service reads of its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    method: Vec<u8>,
    path: Vec<u8>,
    /// Whether its client wants to see the engine's report of its load.
    pub(crate) wants_report: bool,
}

impl Target {
    pub(crate) fn of(headers: &Headers) -> Self {
        let value = |name| headers::get(headers, name).unwrap_or_default().to_vec();
        Self {
            method: value(":method"),
            path: value(":path"),
            wants_report: headers::get(headers, orca::FORMAT_HEADER).is_some(),
        }
    }

    /// As headers; the service has no use for the rest.
    pub(crate) fn headers(&self) -> [(&'static str, &[u8]); 2] {
        [(":method", &self.method), (":path", &self.path)]
    }
}

/// What to do with a request that goes on.
#[derive(Debug)]
pub struct Release {
    /// The headers to set.
    pub edits: Vec<Edit>,
    /// How much of the body was held back and read, in bytes.
    pub body_bytes: usize,
    /// What the service gets to know of the prompt.
    pub prompt: Prompt,
    /// What the request is for, if the decision stream may be asked about it: all of its body is here. What is let go before its
    /// end cannot be held back any longer, and what has no prompt is seldom worth it.
    pub target: Option<Target>,
}

/// What the service gets to know of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// The fingerprint of all of it.
    Whole,
    /// The fingerprint of what was read: the body was let go before its end, or it ends before its JSON does.
    Beginning,
    /// The fingerprint that a trusted peer has made.
    Kept,
    /// Nothing, for this reason.
    Unknown(Pass),
}

#[derive(Debug)]
enum Reading {
    Body(Box<Extractor>),
    /// A peer has read it; this is the model that it found.
    Kept(Option<String>),
    Not(Pass),
}

impl RequestFlow {
    /// Looks at a request's headers. `body_follows` is false for a request that ends with them.
    #[must_use]
    pub fn start(config: Rc<RequestConfig>, headers: &Headers, body_follows: bool) -> Self {
        let reading =
            if config.trusted_origin && headers::get(headers, names::FINGERPRINT).is_some() {
                let model = headers::get(headers, names::MODEL);
                Reading::Kept(model.map(|model| String::from_utf8_lossy(model).into_owned()))
            } else {
                match readable(headers, body_follows) {
                    Ok(api) => Reading::Body(Box::new(Extractor::new(api, &config.wanted))),
                    Err(pass) => Reading::Not(pass),
                }
            };
        let mut session = source::best(&config.session, headers);
        let mut tier = source::best(&config.tier, headers);
        if config.trusted_origin {
            session.prefer(headers::get(headers, names::SESSION));
            tier.prefer(headers::get(headers, names::TIER));
        }
        Self {
            reading,
            session,
            tier,
            body_bytes: 0,
            hold_bytes_max: config.buffer_bytes_max,
            content_length: headers::get(headers, "content-length")
                .and_then(|length| str::from_utf8(length).ok()?.trim().parse().ok()),
            client_address: source::client_address(&config.session, headers),
            target: config.decision_stream().map(|_| Target::of(headers)),
            config,
        }
    }

    /// Whether the request has to be held back until its body was read.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        matches!(self.reading, Reading::Body(_))
    }

    /// Whether the body is longer than Envoy can buffer, and Envoy's route leaves no room for a large read.
    #[must_use]
    pub fn outgrows_the_buffer(&self) -> bool {
        self.holds_back()
            && !self.config.has_room_for_a_read()
            && self
                .content_length
                .is_some_and(|bytes| bytes > ENVOY_BUFFER_BYTES)
    }

    /// Holds nothing back after the first piece of the body: a later one might be as large as Envoy's buffer.
    pub fn let_go_with_the_first_piece(&mut self) {
        self.hold_bytes_max = 1;
    }

    /// How many bytes of the body were read so far: where the next piece begins.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body_bytes
    }

    /// Reads the next piece of the body. True when the request must go on now, read to its end or not.
    #[must_use]
    pub fn body(&mut self, piece: &[u8]) -> bool {
        self.body_bytes = self.body_bytes.saturating_add(piece.len());
        match &mut self.reading {
            Reading::Body(extractor) => {
                extractor.feed(piece);
                self.body_bytes >= self.hold_bytes_max
            }
            Reading::Kept(_) | Reading::Not(_) => true,
        }
    }

    /// What the headers are to say when the request goes on.
    ///
    /// `peer_address` (`ip:port`, as the proxy writes it) is only asked for when nothing better names a session, and no
    /// header has the client's address: a proxy takes long to look it up.
    #[must_use]
    pub fn release(self, peer_address: impl FnOnce() -> Option<String>) -> Release {
        let Self {
            config,
            reading,
            session,
            tier,
            body_bytes,
            client_address,
            target,
            ..
        } = self;
        let (found, model, prompt) = match reading {
            Reading::Kept(model) => (None, model, Prompt::Kept),
            Reading::Not(pass) => (None, None, Prompt::Unknown(pass)),
            Reading::Body(extractor) => {
                let found = extractor.finish();
                let prompt = match found.error {
                    Some(problem) => Prompt::Unknown(problem.into()),
                    None if found.is_complete => Prompt::Whole,
                    None => Prompt::Beginning,
                };
                let model = found.model.clone();
                (Some(found), model, prompt)
            }
        };

        let mut edits = Vec::new();
        if let Some(found) = &found {
            edits.extend(prompt_headers(found, prompt));
        }
        let in_body = found.as_ref().and_then(|found| {
            let (member, key) = found.session.as_ref()?;
            let index = config
                .session
                .iter()
                .position(|source| *source == Source::Body(*member))?;
            (!key.is_empty()).then(|| (index, session::encode(key.as_bytes())))
        });
        let session = session.or_in_body(in_body).or_else(|| {
            let wanted = config.session.contains(&Source::ClientAddress);
            let address = client_address.or_else(|| {
                let address = wanted.then(peer_address).flatten()?;
                Some(source::without_port(&address).to_owned())
            })?;
            Some(session::encode(address.as_bytes()))
        });
        edits.extend(session.map(|session| Edit::set(names::SESSION, session)));

        let in_body = found.as_ref().and_then(|found| {
            let index = config
                .tier
                .iter()
                .position(|source| matches!(source, Source::Body(_)))?;
            Some((index, found.tier.clone()?))
        });
        let tier = tier
            .or_in_body(in_body)
            .as_deref()
            .and_then(tier::canonical);
        edits.extend(tier.map(|tier| Edit::set(names::TIER, tier)));

        let cluster = config.cluster(model.as_deref());
        edits.extend(cluster.map(|cluster| Edit::set(names::CLUSTER, cluster)));
        Release {
            edits,
            body_bytes,
            prompt,
            target: target.filter(|_| prompt == Prompt::Whole),
        }
    }
}

/// The request headers that a client must not have set, each name once, and a peer's routing, which was its own.
#[must_use]
pub fn strip(config: &RequestConfig, headers: &Headers) -> Vec<Edit> {
    let mut names: Vec<&str> = headers
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| headers::is_internal(name) && !(config.trusted_origin && is_a_peers(name)))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| Edit::Remove(name.to_owned()))
        .collect()
}

/// What a trusted peer tells of a request. Where the peer sent it is not part of that: its cluster, destination
/// and decision mean nothing here.
fn is_a_peers(name: &str) -> bool {
    [
        names::FINGERPRINT,
        names::MODEL,
        names::SESSION,
        names::TIER,
        names::TOKENS,
        names::ORIGIN,
        names::TRIED,
    ]
    .contains(&name)
}

/// Whether a body comes that can be read, and as what.
fn readable(headers: &Headers, body_follows: bool) -> Result<Api, Pass> {
    let api = headers::get(headers, ":path")
        .and_then(|path| str::from_utf8(path).ok())
        .and_then(Api::from_path)
        .ok_or(Pass::UnknownPath)?;
    if !body_follows {
        return Err(Pass::NoBody);
    }
    if headers::is_encoded(headers) {
        return Err(Pass::ContentEncoding);
    }
    // Without a type it is read: it stops at once when it is not JSON.
    if headers::media_type(headers).is_some_and(|media_type| !headers::is_json(&media_type)) {
        return Err(Pass::ContentType);
    }
    Ok(api)
}

fn prompt_headers(found: &Extraction, prompt: Prompt) -> impl Iterator<Item = Edit> {
    let model = found
        .model
        .as_ref()
        .filter(|model| !model.is_empty())
        .map(|model| Edit::set(names::MODEL, session::encode(model.as_bytes())));
    let known = match prompt {
        Prompt::Whole | Prompt::Beginning => Some([
            Edit::set(names::FINGERPRINT, found.fingerprint.encode()),
            Edit::set(
                names::TOKENS,
                tokens::encode(tokens::Tokens {
                    prompt: found.prompt_tokens,
                    output_max: found.output_tokens_max,
                }),
            ),
        ]),
        Prompt::Kept | Prompt::Unknown(_) => None,
    };
    model.into_iter().chain(known.into_iter().flatten())
}

#[cfg(test)]
mod tests;
