//! The oracle: the yardstick, which nobody could ship.
//!
//! It sees each engine's true cache, and the prompt tokens that it still has to compute, and sends every request at once to
//! the replica whose first token will be with the client first.

use super::World;
use super::replica::State;
use crate::chain;

impl World<'_> {
    pub(super) fn ask_oracle(&mut self, number: u32) {
        let Some((asks, region)) = self.asked(number) else {
            return;
        };
        let mut best: Option<(f64, u32, u64)> = None;
        let mut blocks = None;
        for (at, replica) in (0_u32..).zip(&self.replicas) {
            if replica.state != State::Member {
                continue;
            }
            let config = replica.engine.config();
            let same = blocks
                .as_ref()
                .is_some_and(|(tokens, _)| *tokens == config.block_tokens);
            if !same {
                let chain = chain::blocks(&asks.prompt, asks.answer(), config.block_tokens);
                blocks = Some((config.block_tokens, chain));
            }
            let Some((_, chain)) = &blocks else {
                continue;
            };
            let cached = replica.engine.cached_tokens(chain);
            let new = u64::from(asks.prompt.tokens().saturating_sub(cached).max(1));
            let ahead = replica.engine.backlog_tokens() + replica.coming_tokens;
            let per_token_ns = config.timing.prefill_token_ps / 1_000;
            let way = 2 * self.way(region, at);
            #[expect(clippy::cast_precision_loss, reason = "times far below 2^52 ns")]
            let ns = ((ahead + new) * per_token_ns + way) as f64;
            if best.is_none_or(|(least, ..)| ns < least) {
                best = Some((ns, at, new));
            }
        }
        match best {
            Some((_, replica, new)) => self.placed(number, replica, new),
            None => self.nobody(number),
        }
    }
}
