//! The oracle: a yardstick that cannot be shipped.
//!
//! The oracle sees the true state of each engine: its cache, its batch, its queue, and the requests on their way to it. It sends
//! every request at once to the replica from which the client will have its first token first, if nothing else comes; among
//! equals to the one with the least in it. So it knows all that there is, and nothing that will be.
//!
//! The oracle is no bound. Each request is sent where it is best for that request alone: prompts are computed anew to save the
//! moment, which costs later requests and all decoding; and a request that goes to another region for a short gain
//! leaves its cache there, so that the next turn has to choose between the way and computing all of it. A policy that
//! holds requests back, or keeps sessions in their own region, may be ahead of it.

use core::cmp::Reverse;
use core::time::Duration;
use std::sync::Arc;

use isotherm_engine::model::{Arrival, BlockHash};

use super::Simulation;
use super::replica::State;
use crate::chain;

impl Simulation<'_> {
    pub(super) fn choose_by_oracle(&mut self, number: u32) {
        let now = Duration::from_nanos(self.now);
        for at in 0..u32::try_from(self.replicas.len()).unwrap_or(u32::MAX) {
            if let Some(replica) = self.replicas.get_mut(at as usize) {
                replica.engine.handle_timeout(now);
            }
            self.drain_engine(at);
        }
        let Some((asks, region)) = self.step_of(number) else {
            return;
        };
        let prompt_tokens = asks.prompt.tokens();
        // Engines name blocks of their own size.
        let mut chains: Vec<(u32, Arc<[BlockHash]>)> = Vec::new();
        let mut best = None;
        for (at, replica) in (0_u32..).zip(&self.replicas) {
            if replica.state != State::Member {
                continue;
            }
            let size = replica.engine.config().block_tokens;
            let known = chains.iter().find(|(tokens, _)| *tokens == size);
            let blocks = match known {
                Some((_, blocks)) => Arc::clone(blocks),
                None => {
                    let blocks = chain::blocks(&asks.prompt, asks.answer(), size);
                    chains.push((size, Arc::clone(&blocks)));
                    blocks
                }
            };
            let arrival = Arrival {
                prompt_tokens,
                blocks: &blocks,
                ahead_tokens: replica.expected_arrival_tokens,
            };
            let forecast = replica
                .engine
                .forecast(now, &arrival, |id| self.expected_tokens(id));
            let ways = Duration::from_nanos(2 * self.service_to_replica(region, at));
            let stats = replica.engine.stats();
            let inside = stats.running + stats.waiting + stats.arrived;
            let first = forecast.first_token.saturating_add(ways);
            let key = Reverse((first, inside, at));
            let new = prompt_tokens.saturating_sub(forecast.cached_tokens).max(1);
            best = best.max(Some((key, new)));
        }
        match best {
            Some((Reverse((_, _, replica)), new)) => self.dispatch_by_oracle(number, replica, new),
            None => self.fail_unroutable(number),
        }
    }
}
