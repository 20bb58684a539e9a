//! OpenAI `/v1/embeddings`: as completions, or vLLM's chat form.

use super::{Field, Reading};
use crate::sections::Section;

pub(super) const MEMBERS: &[(&str, Field)] = &[
    ("input", Field::Prompt(Section::Content, Reading::Texts)),
    (
        "messages",
        Field::Prompt(Section::Content, Reading::Messages),
    ),
];
