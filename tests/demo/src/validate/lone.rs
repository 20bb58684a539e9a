//! Requests that are alone in the system: what they take beyond the engine's own time is the way there and back.

use std::time::Duration;

use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Workload};

/// How many.
pub(super) const COUNT: usize = 16;
/// What keeps their texts apart from those of any trace, whose ids are below 2^53.
const IDS: u64 = 0x6c6f_6e65_0000_0000;
/// Long enough for a step of decoding to be seen, short enough to be over soon.
const OUTPUT_TOKENS: u32 = 2;
/// From one to the next: each is over by then, and every replica was probed again.
pub(super) const PAUSE: Duration = Duration::from_secs(2);

/// As long as the median of the workload, for the way is longer for a longer prompt; and like nothing in it.
pub(super) fn sessions(workload: &Workload) -> Vec<Session> {
    let steps = workload.sessions.iter().flat_map(|session| &session.steps);
    let mut lengths: Vec<u32> = steps.map(|step| step.prompt.tokens()).collect();
    lengths.sort_unstable();
    let tokens = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
    (0..COUNT as u64)
        .map(|number| {
            let prompt = Piece {
                id: IDS + number,
                tokens,
            };
            let answer = Piece {
                id: IDS + COUNT as u64 + number,
                tokens: OUTPUT_TOKENS,
            };
            let starts = PAUSE * u32::try_from(number).unwrap_or_default();
            Session::one(prompt.id, starts, Prompt::new([prompt]), answer)
        })
        .collect()
}
