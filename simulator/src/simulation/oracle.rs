//! The oracle: a yardstick that cannot be shipped.
//!
//! The oracle sees the true state of each engine: its cache, its batch, its queue, and the requests on their way to it. It sends
//! every request at once to the replica from which the client will have its first token first, if nothing else comes; among
//! equals to the replica with the least in it.
//!
//! The oracle is no bound. It decides for each request alone: a prompt computed anew costs later requests and all decoding, and a
//! request that goes to another region leaves its cache there. A policy that holds requests back, or keeps sessions in
//! their own region, may be ahead of it.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_engine::model::{Arrival, BlockHash};

use super::Simulation;
use super::replica::State;
use crate::chain;

impl Simulation<'_> {
    pub(super) fn choose_by_oracle(&mut self, number: u32) {
        let now = Duration::from_nanos(self.now);
        for at in self.replicas.numbers() {
            self.replicas[at].engine.handle_timeout(now);
            self.drain_engine(at);
        }
        let Some((asks, region)) = self.step_of(number) else {
            return;
        };
        let prompt_tokens = asks.prompt.tokens();
        // Engines name blocks of their own size.
        let mut chains: BTreeMap<u32, Arc<[BlockHash]>> = BTreeMap::new();
        let mut best = None;
        for (at, replica) in (0_u32..).zip(self.replicas.iter()) {
            if replica.state != State::Member {
                continue;
            }
            let size = replica.engine.config().block_tokens;
            let blocks = chains
                .entry(size)
                .or_insert_with(|| chain::blocks(&asks.prompt, asks.answer(), size));
            let arrival = Arrival {
                prompt_tokens,
                blocks: if replica.setup.has_prefix_caching {
                    blocks
                } else {
                    &[]
                },
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
