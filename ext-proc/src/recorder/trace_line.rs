//! A line of a recorded trace: Mooncake's format (FAST '25) with more members.
//!
//! ```json
//! {"timestamp": 27, "input_length": 700, "output_length": 120, "hash_ids": [81, 12],
//!  "pieces": [[4711, 64], [815, 64], [9, 572]], "answer": 77, "session": 5, "region": "eu", "output_estimated": true}
//! ```
//!
//! The first four members are Mooncake's, so that its readers read these traces. The others are optional, and missing in
//! traces of other origin:
//!
//! - `pieces` is the prompt as `[id, tokens]`, in order; the lengths add up to `input_length`. Prompts share a prefix
//!   exactly as far as their pieces are equal. Most chats are shorter than a block of 512 tokens, while pieces are as fine
//!   as the fingerprint that routes the request. A reader that knows `pieces` ignores `hash_ids`.
//! - `answer` is the id of the output as a piece: the prompt of the session's next turn has `[answer, output_length]`
//!   after the pieces of this prompt.
//! - `session` is equal for requests of one session, and `region` is the name of the region that recorded the request.
//! - `output_estimated` marks an unknown output length (no `usage`, a client that disconnected, a rejected request):
//!   `output_length` is then the mean of the known lengths, within the limit of the request.
//!
//! All ids are below 2^53, which every JSON parser reads exactly. Lines are in the order of `timestamp`.

use serde::{Deserialize, Serialize};

/// Tokens of each block of `hash_ids`.
pub const BLOCK_TOKENS: u32 = 512;

/// A request of a trace; the module documents the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceLine {
    /// Arrival time in milliseconds since the start of the recording.
    pub timestamp: u64,
    /// Prompt length in tokens.
    pub input_length: u32,
    /// Output length in tokens.
    pub output_length: u32,
    /// Ids of the prefixes that end with each block of [`BLOCK_TOKENS`] tokens; the last block may be partial.
    pub hash_ids: Vec<u64>,
    /// Pieces of the prompt: ids and lengths in tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(u64, u32)>,
    /// Id of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u64>,
    /// Id of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Name of the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether the output length is an estimate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_estimated: bool,
}
