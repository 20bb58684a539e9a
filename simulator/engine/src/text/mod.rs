//! Text to tokens to blocks, and the text of a reply, without a model.
//!
//! A token is a fixed cell of four bytes of the rendered prompt, about what English text needs; a character outside ASCII fills
//! one cell, so Chinese has three bytes a token. Cells are stable when text is appended, and the template pads the opening of every assistant message to a whole cell: so the reply begins on a
//! cell of its own, and the prompt of the next turn continues the chain of blocks of prompt and reply exactly. Rejected:
//! splitting at words, which is nearer to a real tokenizer but makes the last token depend on what follows.

mod chain;
mod reply;
mod template;

pub use chain::{Prompt, Selector};
pub use reply::Reply;
pub use template::RenderedPrompt;

/// Bytes of rendered text in a token; a character outside ASCII is as wide.
pub const TOKEN_BYTES: usize = 4;

/// Tokens that an image, a sound or a file counts, whatever its size.
pub const MEDIA_TOKENS: usize = 256;
