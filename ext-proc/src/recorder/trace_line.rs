//! One line of a recorded trace: Mooncake's format (FAST '25), and what it has no room for.
//!
//! ```json
//! {"timestamp": 27, "input_length": 700, "output_length": 120, "hash_ids": [81, 12],
//!  "pieces": [[4711, 64], [815, 64], [9, 572]], "answer": 77, "session": 5, "region": "eu", "output_estimated": true}
//! ```
//!
//! The first four members are Mooncake's, and whoever reads its traces reads these. The others may be missing, in traces
//! of other origin all of them are:
//!
//! - `pieces` is the prompt as `[id, tokens]`, in order; the lengths add up to `input_length`. Prompts share a prefix
//!   exactly as far as their pieces are equal. Blocks of 512 tokens say of most chats only that they are short; this is
//!   as fine as the fingerprint that requests are routed by. A reader that knows `pieces` ignores `hash_ids`.
//! - `answer` is the id that stands for the answer as a piece: the prompt of the next turn has
//!   `[answer, output_length]` among its pieces, behind those of this prompt.
//! - `session` is equal for requests of one session, `region` the name of the region that was asked.
//! - `output_estimated` says that the engine did not tell how long the answer was (no `usage`, a client that went away, a
//!   request that was refused): `output_length` is the mean of those that are known, within what the request allows.
//!
//! All ids are below 2^53, so that any reader of JSON keeps them whole. Lines are in order of `timestamp`.

use serde::{Deserialize, Serialize};

/// Tokens that one of `hash_ids` stands for.
pub const BLOCK_TOKENS: u32 = 512;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLine {
    /// When it came, in milliseconds since the recording began.
    pub timestamp: u64,
    /// The length of the prompt, in tokens.
    pub input_length: u32,
    /// The length of the answer, in tokens.
    pub output_length: u32,
    /// One id for each [`BLOCK_TOKENS`] of the prompt, the last one perhaps not full: the prefix up to its end.
    pub hash_ids: Vec<u64>,
    /// The prompt as ids and lengths in tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(u64, u32)>,
    /// The id of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u64>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The region that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether the length of the answer is a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_estimated: bool,
}
