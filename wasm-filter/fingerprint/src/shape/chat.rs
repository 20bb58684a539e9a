//! OpenAI `/v1/chat/completions`, with vLLM's and SGLang's additions.

use super::{Field, Reading};
use crate::sections::Section;

/// `max_tokens` is the older name of `max_completion_tokens`. `documents` is vLLM's: templates render it before the messages.
pub(super) const MEMBERS: &[(&str, Field)] = &[
    (
        "messages",
        Field::Prompt(Section::Content, Reading::Messages),
    ),
    ("tools", Field::Prompt(Section::Tools, Reading::Json)),
    ("functions", Field::Prompt(Section::Tools, Reading::Json)),
    ("documents", Field::Prompt(Section::System, Reading::Json)),
    ("max_completion_tokens", Field::OutputMax),
    ("max_tokens", Field::OutputMax),
];
