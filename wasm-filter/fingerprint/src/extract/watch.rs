//! Finding the model, the session key and the tier among the members of a request.
//!
//! The paths come from configuration and are matched name by name while the scanner goes down, so a value is kept only when
//! it is one that was asked for, and only the best so far.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::Wanted;
use crate::leaves::Leaves;
use crate::session::{SESSION_BYTES_MAX, hex};

/// The most paths that are looked for. More is no configuration that anybody writes.
const PATHS_MAX: usize = 32;
/// The longest value that is kept, in bytes. A longer session key becomes its digest, a longer model or tier is none.
const VALUE_BYTES_MAX: usize = SESSION_BYTES_MAX;
/// Where every shape has its model.
const MODEL: &str = "model";
/// A path that leads to an object means this member of it.
const IDENTITY: &[u8] = b"id";

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Model,
    /// Its rank among the session keys.
    Session(usize),
    /// Its rank among the tiers.
    Tier(usize),
}

/// A path that is looked for.
#[derive(Debug)]
struct Path {
    goal: Goal,
    /// Where it lies in [`Watch::names`].
    range: (usize, usize),
    /// How many names it has.
    length: usize,
    /// How many of its names lead to where the scanner is; one more in the member `id` of what it leads to.
    matched: usize,
}

/// What is looked for, and what was found.
#[derive(Debug)]
pub(super) struct Watch {
    /// All paths, one behind the other.
    names: String,
    paths: Vec<Path>,
    /// No path is longer, `id` included.
    depth_max: usize,
    /// Whether the member whose name came last is one that a path leads to. Nearly none is, which spares each of its values a
    /// look at every path: a prompt may be tens of thousands of token ids.
    leads: bool,
    /// Whether the string that is arriving is kept.
    keeps: bool,
    /// How many objects and arrays are around it.
    depth: usize,
    /// Its contents, as far as they are kept.
    kept: Vec<u8>,
    /// The digest of all of them.
    digest: Leaves,
    /// Whether there is more than is kept.
    long: bool,
    pub(super) model: Option<String>,
    pub(super) session: Option<(usize, String)>,
    pub(super) tier: Option<(usize, String)>,
}

impl Watch {
    pub(super) fn new(wanted: &Wanted) -> Self {
        let sessions = wanted
            .session
            .iter()
            .enumerate()
            .map(|(rank, path)| (Goal::Session(rank), path.as_str()));
        let tiers = wanted
            .tier
            .iter()
            .enumerate()
            .map(|(rank, path)| (Goal::Tier(rank), path.as_str()));
        let names_bytes = wanted
            .session
            .iter()
            .chain(&wanted.tier)
            .map(String::len)
            .sum::<usize>();
        let mut names = String::with_capacity(MODEL.len() + names_bytes);
        let mut paths =
            Vec::with_capacity(PATHS_MAX.min(1 + wanted.session.len() + wanted.tier.len()));
        let mut depth_max = 0;
        for (goal, path) in core::iter::once((Goal::Model, MODEL))
            .chain(sessions)
            .chain(tiers)
            .take(PATHS_MAX)
        {
            let start = names.len();
            names.push_str(path);
            let length = 1 + path.bytes().filter(|byte| *byte == b'.').count();
            depth_max = depth_max.max(length + 1);
            paths.push(Path {
                goal,
                range: (start, names.len()),
                length,
                matched: 0,
            });
        }
        Self {
            names,
            paths,
            depth_max,
            leads: false,
            keeps: false,
            depth: 0,
            kept: Vec::new(),
            digest: Leaves::default(),
            long: false,
            model: None,
            session: None,
            tier: None,
        }
    }

    /// A member's name, in an object that has `depth` objects and arrays around it, itself included.
    pub(super) fn key(&mut self, depth: usize, key: &[u8]) {
        if depth > self.depth_max {
            return;
        }
        self.leads = false;
        for path in &mut self.paths {
            path.matched = path.matched.min(depth.saturating_sub(1));
            if path.matched + 1 != depth {
                continue;
            }
            let names = self
                .names
                .get(path.range.0..path.range.1)
                .unwrap_or_default();
            let is_next = if path.matched == path.length {
                key == IDENTITY
            } else {
                begins_with(names, path.matched, key)
            };
            path.matched += usize::from(is_next);
            self.leads |= path.leads_here(depth);
        }
    }

    /// A string begins.
    pub(super) fn start(&mut self, depth: usize) {
        self.keeps = self.leads && self.paths.iter().any(|path| path.leads_here(depth));
        if self.keeps {
            self.depth = depth;
            self.kept.clear();
            self.long = false;
        }
    }

    /// More of it.
    #[inline]
    pub(super) fn part(&mut self, part: &[u8]) {
        if self.keeps {
            self.keep(part);
        }
    }

    /// It ends.
    pub(super) fn end(&mut self) {
        if core::mem::take(&mut self.keeps) {
            self.settle();
        }
    }

    /// A number, `true`, `false` or `null`. Numbers are taken: some clients number their users.
    pub(super) fn literal(&mut self, depth: usize, literal: &[u8]) {
        if !self.leads || matches!(literal, b"true" | b"false" | b"null") {
            return;
        }
        self.start(depth);
        self.part(literal);
        self.end();
    }

    fn keep(&mut self, part: &[u8]) {
        self.digest.push(part);
        let room = VALUE_BYTES_MAX.saturating_sub(self.kept.len());
        self.long |= part.len() > room;
        self.kept.extend(part.iter().take(room));
    }

    /// Gives the value to whom it belongs, unless they have a better one.
    fn settle(&mut self) {
        let digest = self.digest.digest();
        if self.kept.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&self.kept);
        let short = (!self.long).then(|| text.as_ref());
        for path in self.paths.iter().filter(|path| path.leads_here(self.depth)) {
            match path.goal {
                Goal::Model => {
                    if self.model.is_none() {
                        self.model = short.map(ToString::to_string);
                    }
                }
                Goal::Session(rank) => {
                    let key = || short.map_or_else(|| hex(digest), ToOwned::to_owned);
                    if self.session.as_ref().is_none_or(|(best, _)| rank < *best) {
                        self.session = Some((rank, key()));
                    }
                }
                Goal::Tier(rank) => {
                    if let Some(tier) = short
                        && self.tier.as_ref().is_none_or(|(best, _)| rank < *best)
                    {
                        self.tier = Some((rank, tier.to_string()));
                    }
                }
            }
        }
    }
}

/// Whether a path has this name behind its first few.
///
/// Every member of a request is held against every path, so what fails must fail at once.
fn begins_with(path: &str, skipped: usize, name: &[u8]) -> bool {
    let mut rest = path.as_bytes();
    for _ in 0..skipped {
        let end = rest.iter().position(|byte| *byte == b'.');
        rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or_default();
    }
    matches!(rest.strip_prefix(name), Some([] | [b'.', ..])) && !name.contains(&b'.')
}

impl Path {
    /// Whether a value in an object at this depth is the one that the path means.
    fn leads_here(&self, depth: usize) -> bool {
        self.matched >= self.length && self.matched == depth
    }
}
