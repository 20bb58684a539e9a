//! Adapters (LoRA) of the engine model, as vLLM v1 serves them.
//!
//! A step serves at most as many adapters as there are slots; a waiting request for a further one is skipped until a running
//! adapter has no request left. An adapter stays in its slot until another one needs the slot, and then the least recently
//! used one goes that no running request uses. The engine computes nothing while it loads an adapter.

use super::engine::Engine;
use super::request::AdapterId;
use super::sequence::SequenceIndex;
use super::stats::AdapterUse;

impl Engine {
    /// Adapters of the requests that are here, in order of their numbers.
    pub fn adapter_use(&self) -> AdapterUse {
        AdapterUse {
            running: self.adapters_of(&mut self.running.iter()),
            waiting: self.adapters_of(&mut self.waiting.iter()),
        }
    }

    /// Whether a step with this waiting request would serve no more adapters than there are slots.
    pub(super) fn has_adapter_slot(&self, slot: SequenceIndex) -> bool {
        let Some(adapter) = self.sequence(slot).and_then(|sequence| sequence.adapter) else {
            return true;
        };
        let running = self.adapters_of(&mut self.running.iter());
        running.contains(&adapter) || running.len() < self.config.adapters.slots as usize
    }

    /// Loads the adapter of a request that starts; returns the time that it takes, ns.
    pub(super) fn load_adapter(&mut self, slot: SequenceIndex) -> u64 {
        let Some(adapter) = self.sequence(slot).and_then(|sequence| sequence.adapter) else {
            return 0;
        };
        let known = self.loaded.iter().position(|loaded| *loaded == adapter);
        if let Some(at) = known {
            self.loaded.remove(at);
            self.loaded.push(adapter);
            return 0;
        }
        if self.loaded.len() >= self.config.adapters.slots as usize {
            let running = self.adapters_of(&mut self.running.iter());
            let unused = self
                .loaded
                .iter()
                .position(|loaded| !running.contains(loaded));
            if let Some(at) = unused {
                self.loaded.remove(at);
            }
        }
        self.loaded.push(adapter);
        self.totals.adapter_loads += 1;
        self.config.adapters.load_ns
    }

    fn adapters_of(&self, slots: &mut dyn Iterator<Item = &SequenceIndex>) -> Vec<AdapterId> {
        let adapters = slots.filter_map(|slot| self.sequence(*slot)?.adapter);
        let mut adapters: Vec<AdapterId> = adapters.collect();
        adapters.sort_unstable();
        adapters.dedup();
        adapters
    }
}
