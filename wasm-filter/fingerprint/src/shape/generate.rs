//! SGLang's `/generate`, and text-generation-inference's.
//!
//! Images stand beside the text, whose placeholders say where they belong. They render in the middle of it; here they come
//! last, so that prompts with a common instruction and different images keep the instruction's match.

use super::{Field, Reading, Selector};
use crate::sections::Section;

pub(super) const MEMBERS: &[(&str, Field)] = &[
    ("text", Field::Prompt(Section::Content, Reading::Texts)),
    ("input_ids", Field::Prompt(Section::Content, Reading::Texts)),
    ("inputs", Field::Prompt(Section::Content, Reading::Texts)),
    ("image_data", Field::Prompt(Section::Images, Reading::Media)),
    ("audio_data", Field::Prompt(Section::Audio, Reading::Media)),
    ("video_data", Field::Prompt(Section::Video, Reading::Media)),
    ("extra_key", Field::Selects(Selector::Salt)),
    (
        "sampling_params",
        Field::Holds(&[("max_new_tokens", Field::OutputMax)]),
    ),
    (
        "parameters",
        Field::Holds(&[
            ("max_new_tokens", Field::OutputMax),
            ("adapter_id", Field::Selects(Selector::Adapter)),
        ]),
    ),
];
