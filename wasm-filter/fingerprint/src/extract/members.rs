//! Finds the model, the session key and the objectives among the members of a request.
//!
//! The paths come from configuration. The finder matches them name by name as the scanner descends, and keeps a value only
//! when a path leads to it and no better value is known.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use super::MemberPaths;
use crate::leaves::Digest;
use crate::objectives;
use crate::session::{SESSION_BYTES_MAX, hex};
use crate::{Api, UnreadModel, stored_response};

/// The most paths that the finder follows; no sensible configuration has more.
const PATHS_MAX: usize = 32;
/// The names of the usual paths together, in bytes, so that most requests allocate once.
const NAMES_BYTES_EXPECTED: usize = 128;
/// The longest value that is kept, in bytes. A longer session key is replaced by its digest; a longer model or objective
/// is dropped.
const VALUE_BYTES_MAX: usize = SESSION_BYTES_MAX;
const MODEL: &str = "model";
const PREVIOUS_RESPONSE: &str = "previous_response_id";
/// A path to an object means this member of the object.
const IDENTITY: &[u8] = b"id";

/// The kind of value to which a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Model,
    Session,
    Tier,
    Ttft,
    Deadline,
    PreviousResponse,
}

/// The number of [`Goal`]s.
const GOALS: usize = 6;

impl Goal {
    /// Whether a value can be read. One that cannot counts as absent, so a path of worse rank may have the value.
    fn is_readable(self, value: &[u8]) -> bool {
        match self {
            Self::Model | Self::Session => true,
            Self::Tier => objectives::tier(value).is_some(),
            Self::Ttft => objectives::ttft_ms(value).is_some(),
            Self::Deadline => objectives::deadline_unix_ms(value).is_some(),
            Self::PreviousResponse => stored_response::is_id(value),
        }
    }
}

#[derive(Debug)]
struct MemberPath {
    goal: Goal,
    /// The position among the paths of this goal, best first.
    rank: usize,
    /// The range of the path in [`MemberFinder::names`].
    range: (usize, usize),
    /// The number of names in the path.
    length: usize,
    /// The number of names that lead to the scanner's position; one more inside the member [`IDENTITY`] of the target.
    matched: usize,
    /// The most names that led to a position so far. Each object on a path stands once, unless a member repeats.
    matched_max: usize,
}

/// The paths and the best values so far.
#[derive(Debug)]
pub(super) struct MemberFinder {
    /// The text of all paths, concatenated.
    names: String,
    paths: Vec<MemberPath>,
    /// The length of the longest path, [`IDENTITY`] included.
    depth_max: usize,
    /// Whether a path leads to the member whose name came last. This spares nearly all values a look at every path: a
    /// prompt may have tens of thousands of token ids.
    is_target: bool,
    /// Whether the string that is arriving is kept.
    is_keeping: bool,
    /// The number of objects and arrays around the string.
    depth: usize,
    /// The first [`VALUE_BYTES_MAX`] bytes of the string.
    kept: Vec<u8>,
    digest: Digest,
    /// Whether the string is longer than what is kept.
    is_long: bool,
    /// For each [`Goal`] the best value and the rank of its path.
    found: [Option<(usize, String)>; GOALS],
    /// For each [`Goal`] whether a member on a path to it repeats.
    repeated: [bool; GOALS],
    /// The members that name the model, and the values of these that equal the first.
    models: (u32, u32),
    /// Whether a model is named that is too long to be kept.
    has_long_model: bool,
}

impl MemberFinder {
    pub(super) fn new(api: Option<Api>, wanted: &MemberPaths) -> Self {
        let goals = [
            (Goal::Session, &wanted.session),
            (Goal::Tier, &wanted.tier),
            (Goal::Ttft, &wanted.ttft_ms),
            (Goal::Deadline, &wanted.deadline),
        ];
        let count: usize = goals.iter().map(|(_, paths)| paths.len()).sum();
        let mut finder = Self {
            names: String::with_capacity(NAMES_BYTES_EXPECTED),
            paths: Vec::with_capacity(PATHS_MAX.min(2 + count)),
            depth_max: 0,
            is_target: false,
            is_keeping: false,
            depth: 0,
            kept: Vec::new(),
            digest: Digest::default(),
            is_long: false,
            found: [const { None }; GOALS],
            repeated: [false; GOALS],
            models: (0, 0),
            has_long_model: false,
        };
        finder.add(Goal::Model, 0, MODEL);
        if api == Some(Api::Responses) {
            finder.add(Goal::PreviousResponse, 0, PREVIOUS_RESPONSE);
        }
        for (goal, paths) in goals {
            for (rank, path) in paths.iter().enumerate() {
                finder.add(goal, rank, path);
            }
        }
        finder
    }

    fn add(&mut self, goal: Goal, rank: usize, path: &str) {
        if self.paths.len() >= PATHS_MAX {
            return;
        }
        let start = self.names.len();
        self.names.push_str(path);
        let length = 1 + path.bytes().filter(|byte| *byte == b'.').count();
        self.depth_max = self.depth_max.max(length + 1);
        self.paths.push(MemberPath {
            goal,
            rank,
            range: (start, self.names.len()),
            length,
            matched: 0,
            matched_max: 0,
        });
    }

    /// Whether a member on a path repeats. A model that stands twice with one value is one model.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.contains(&true) || self.has_two_models()
    }

    fn has_two_models(&self) -> bool {
        let (named, equal) = self.models;
        named > 1 && equal < named
    }

    /// The reason why the model that the request names cannot be told.
    pub(super) fn unread_model(&self) -> Option<UnreadModel> {
        if self.has_long_model {
            return Some(UnreadModel::TooLong);
        }
        let is_repeated = self.repeated.get(Goal::Model as usize) == Some(&true);
        (is_repeated || self.has_two_models()).then_some(UnreadModel::Contradictory)
    }

    /// The best value of this goal, with the rank of its path; `None` where a member on a path to it repeats.
    pub(super) fn take(&mut self, goal: Goal) -> Option<(usize, String)> {
        let has_two = goal == Goal::Model && self.has_two_models();
        if has_two || self.repeated.get(goal as usize) != Some(&false) {
            return None;
        }
        self.found.get_mut(goal as usize)?.take()
    }

    /// Follows a member's name in an object at this depth.
    pub(super) fn key(&mut self, depth: usize, key: &[u8]) {
        if depth > self.depth_max {
            return;
        }
        self.is_target = false;
        for path in &mut self.paths {
            path.matched = path.matched.min(depth.saturating_sub(1));
            if path.matched + 1 != depth {
                continue;
            }
            let (start, end) = path.range;
            let names = self.names.get(start..end).unwrap_or_default();
            let is_next = if path.matched == path.length {
                key == IDENTITY
            } else {
                has_name_at(names, path.matched, key)
            };
            if is_next {
                path.matched = depth;
                if path.goal == Goal::Model && depth == path.length {
                    self.models.0 += 1;
                } else if path.matched_max >= depth
                    && let Some(repeated) = self.repeated.get_mut(path.goal as usize)
                {
                    *repeated = true;
                }
                path.matched_max = path.matched_max.max(depth);
            }
            self.is_target |= path.leads_to(depth);
        }
    }

    /// Begins a string value in a container at this depth.
    pub(super) fn string_start(&mut self, depth: usize) {
        self.is_keeping = self.is_target && self.paths.iter().any(|path| path.leads_to(depth));
        if self.is_keeping {
            self.depth = depth;
            self.kept.clear();
            self.is_long = false;
        }
    }

    #[inline]
    pub(super) fn string_part(&mut self, part: &[u8]) {
        if self.is_keeping {
            self.keep(part);
        }
    }

    pub(super) fn string_end(&mut self) {
        if mem::take(&mut self.is_keeping) {
            self.store();
        }
    }

    /// Reads a number, `true`, `false` or `null`. Only numbers are values: some clients number their users.
    pub(super) fn literal(&mut self, depth: usize, literal: &[u8]) {
        if !self.is_target || matches!(literal, b"true" | b"false" | b"null") {
            return;
        }
        self.string_start(depth);
        self.string_part(literal);
        self.string_end();
    }

    fn keep(&mut self, part: &[u8]) {
        self.digest.push(part);
        let free = VALUE_BYTES_MAX.saturating_sub(self.kept.len());
        self.is_long |= part.len() > free;
        self.kept.extend(part.iter().take(free));
    }

    /// Stores the value for each path that leads to it, unless a path of better rank has one.
    fn store(&mut self) {
        let digest = self.digest.take();
        if self.kept.is_empty() {
            return;
        }
        let paths = self.paths.iter();
        for path in paths.filter(|path| path.leads_to(self.depth)) {
            let Some(found) = self.found.get_mut(path.goal as usize) else {
                continue;
            };
            if path.goal == Goal::Model {
                self.has_long_model |= self.is_long;
                let first = found.as_ref().map(|(_, first)| first.as_bytes());
                let is_equal = first.is_none_or(|first| first == self.kept);
                self.models.1 += u32::from(is_equal);
            }
            let is_worse = found.as_ref().is_some_and(|(best, _)| *best <= path.rank);
            if is_worse || !path.goal.is_readable(&self.kept) {
                continue;
            }
            let value = match (self.is_long, path.goal) {
                (false, _) => String::from_utf8_lossy(&self.kept).into_owned(),
                (true, Goal::Session) => hex(digest),
                (true, _) => continue,
            };
            *found = Some((path.rank, value));
        }
    }
}

impl MemberPath {
    /// Whether the path leads to a value in a container at this depth.
    fn leads_to(&self, depth: usize) -> bool {
        self.matched >= self.length && self.matched == depth
    }
}

/// Whether a path has this name after the first `skipped` names.
///
/// The finder compares every member with every path, so a mismatch must be found at once.
fn has_name_at(path: &str, skipped: usize, name: &[u8]) -> bool {
    let mut rest = path.as_bytes();
    for _ in 0..skipped {
        let end = rest.iter().position(|byte| *byte == b'.');
        rest = end.and_then(|end| rest.get(end + 1..)).unwrap_or_default();
    }
    matches!(rest.strip_prefix(name), Some([] | [b'.', ..])) && !name.contains(&b'.')
}
