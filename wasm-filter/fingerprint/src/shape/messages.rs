//! Anthropic `/v1/messages`.

use super::{Field, Reading};
use crate::sections::Section;

pub(super) const MEMBERS: &[(&str, Field)] = &[
    (
        "messages",
        Field::Prompt(Section::Content, Reading::Messages),
    ),
    ("system", Field::Prompt(Section::System, Reading::Parts)),
    ("tools", Field::Prompt(Section::Tools, Reading::Json)),
    ("max_tokens", Field::OutputMax),
];
