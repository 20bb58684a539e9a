//! Workloads, generated in full before the first request, so that every policy gets the same requests.

mod multi_turn;
pub(crate) mod random;
mod replay;

use std::time::Duration;

use serde_json::{Value, json};

pub use multi_turn::MultiTurn;
pub(crate) use replay::conversations;

use isotherm_harness::synthetic_text;

/// Conversations, and the order in which they begin.
#[derive(Clone, Debug)]
pub struct Workload {
    /// A short name for reports.
    pub name: String,
    /// Description in a sentence.
    pub description: String,
    /// When the next conversation begins.
    pub load_model: LoadModel,
    /// In the order in which they begin.
    pub conversations: Vec<Conversation>,
}

/// Condition for the start of the next conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadModel {
    /// This many users; each begins the next conversation when its last one is over. A slow system gets less load.
    Closed {
        /// Users at once.
        users: usize,
    },
    /// The clock, [`Conversation::at`]; whether the system keeps up or not.
    Open,
}

/// A conversation of a user with one system prompt.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Names the conversation to consistent hashing.
    pub session: String,
    /// When it begins: since the start of the run ([`LoadModel::Open`]), or since its user is free.
    pub at: Duration,
    /// The system prompt, if any.
    pub system: Option<Content>,
    /// The user's turns; the answers in between are the engine's.
    pub turns: Vec<Turn>,
}

/// A question of the user.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Time since the answer before this was complete.
    pub think: Duration,
    /// Text of the question.
    pub content: Content,
    /// Length of the response.
    pub answer: OutputLength,
}

/// The length of an answer, tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLength {
    /// As long as the engine likes, up to this.
    AtMost(u32),
    /// Exactly this long.
    Exactly(u32),
}

/// Text that is made when it is needed: a trace of a thousand prompts is 55 MB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Text from a seed.
    Seeded {
        /// Equal seeds give equal text.
        seed: u64,
        /// Length in tokens.
        tokens: u32,
    },
    /// Pieces, each from its own id, with their lengths in tokens; a shorter one is the beginning of a longer one.
    Pieces(Vec<(u64, u32)>),
}

impl Conversation {
    /// The messages before the first question.
    #[must_use]
    pub fn opening(&self) -> Vec<Value> {
        let system = self.system.iter();
        system
            .map(|content| message("system", content.render()))
            .collect()
    }
}

/// A message of a chat.
pub(crate) fn message(role: &str, content: String) -> Value {
    json!({ "role": role, "content": content })
}

impl Content {
    /// The text.
    #[must_use]
    pub fn render(&self) -> String {
        match self {
            Self::Seeded { seed, tokens } => synthetic_text::tokens(*seed, *tokens),
            Self::Pieces(pieces) => {
                let pieces = pieces.iter();
                pieces
                    .map(|(id, tokens)| synthetic_text::tokens(*id, *tokens))
                    .collect()
            }
        }
    }
}

impl Workload {
    /// Number of requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.conversations
            .iter()
            .map(|conversation| conversation.turns.len())
            .sum()
    }
}
