//! Workloads, drawn in full before the first request, so that every policy gets the same requests.

mod chat;
mod replay;

use std::time::Duration;

use serde_json::{Value, json};

pub use chat::{Chat, ClientId};
pub(crate) use replay::conversations;

use isotherm_harness::synthetic_text;

/// Conversations, and the order in which they begin.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Short name for reports.
    pub name: String,
    /// Description in a sentence.
    pub description: String,
    /// Condition for the start of the next conversation.
    pub load_model: LoadModel,
    /// Conversations in the order in which they begin.
    pub conversations: Vec<Conversation>,
}

/// Condition for the start of the next conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadModel {
    /// Each user begins the next conversation when the last one is over. A slow system gets less load.
    Closed {
        /// Concurrent users.
        users: usize,
    },
    /// The clock reaches [`Conversation::at`], whether the system keeps up or not.
    Open,
}

/// A conversation of a user with one system prompt.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// Session key for consistent hashing.
    pub session: String,
    /// Start: since the start of the run ([`LoadModel::Open`]), or since its user is free.
    pub at: Duration,
    /// System prompt, if any.
    pub system: Option<Content>,
    /// The user's turns; the engine writes the answers between them.
    pub turns: Vec<Turn>,
}

/// A question of the user.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Time since the end of the previous response.
    pub think: Duration,
    /// Text of the question.
    pub content: Content,
    /// Length of the response.
    pub answer: OutputLength,
}

/// The length of a response in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputLength {
    /// The engine's own length, up to this bound.
    AtMost(u32),
    /// Exactly this length.
    Exactly(u32),
}

/// Text that is rendered when it is sent: the prompts of a trace of 1,000 requests take 55 MB. Each piece is an id and a length
/// in tokens; equal ids give equal text, and a shorter piece is the beginning of a longer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(pub Vec<(u64, u32)>);

impl Content {
    /// The text.
    #[must_use]
    pub fn render(&self) -> String {
        let pieces = self.0.iter();
        pieces
            .map(|(id, tokens)| synthetic_text::tokens(*id, *tokens))
            .collect()
    }
}

/// A message of a chat.
pub(crate) fn message(role: &str, content: String) -> Value {
    json!({ "role": role, "content": content })
}

impl Workload {
    /// Number of requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        let conversations = self.conversations.iter();
        conversations
            .map(|conversation| conversation.turns.len())
            .sum()
    }
}
