//! Requests in an idle system: their time beyond the engine's own is the network delay.

use std::time::Duration;

use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Workload};

/// Number of requests.
const COUNT: u32 = 16;
/// Ids of the prompts: traces have ids below 2^53.
const IDS: u64 = 0x6c6f_6e65_0000_0000;
/// Enough output for one decoding step.
const OUTPUT_TOKENS: u32 = 2;
/// Pause between two requests: a request has ended by then, and the service has probed every replica again.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// Requests as long as the median of the workload, since a longer prompt has a longer delay, and unlike any prompt in it.
pub(super) fn sessions(workload: &Workload) -> Vec<Session> {
    let steps = workload.sessions.iter().flat_map(|session| &session.steps);
    let mut lengths: Vec<u32> = steps.map(|step| step.prompt.tokens()).collect();
    lengths.sort_unstable();
    let tokens = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
    let piece = Piece::new;
    let session = |number: u32| {
        let prompt = piece(IDS + u64::from(number), tokens);
        let response = piece(IDS + u64::from(COUNT + number), OUTPUT_TOKENS);
        Session::one(prompt.id, PAUSE * number, Prompt::new([prompt]), response)
    };
    (0..COUNT).map(session).collect()
}
