//! OpenAI `/v1/responses`.
//!
//! `previous_response_id` and `conversation` make the server put text in front that is not in the request. What that text is
//! cannot be known here, so two values share nothing; the session key, which `conversation` usually is too, keeps the
//! turns together.

use super::{Field, Reading, Selector};
use crate::sections::Section;

pub(super) const MEMBERS: &[(&str, Field)] = &[
    ("input", Field::Prompt(Section::Content, Reading::Messages)),
    (
        "instructions",
        Field::Prompt(Section::System, Reading::Parts),
    ),
    ("tools", Field::Prompt(Section::Tools, Reading::Json)),
    ("previous_response_id", Field::Selects(Selector::Previous)),
    ("conversation", Field::Selects(Selector::Previous)),
    ("prompt", Field::Selects(Selector::Template)),
    ("max_output_tokens", Field::OutputMax),
];
