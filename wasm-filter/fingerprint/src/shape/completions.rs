//! OpenAI `/v1/completions`: text, token ids, or a list of either.

use super::{Field, Reading};
use crate::sections::Section;

pub(super) const MEMBERS: &[(&str, Field)] = &[
    ("prompt", Field::Prompt(Section::Content, Reading::Texts)),
    ("suffix", Field::Prompt(Section::Suffix, Reading::Parts)),
    ("max_tokens", Field::OutputMax),
];
