//! A new configuration: replicas, queue and index stay.

use super::Router;
use crate::policy::PolicyEvent;
use crate::queue::LineRules;
use crate::{RouterConfig, Time};

impl Router {
    /// Replaces the configuration; replicas, queue and index stay. A policy of another name decides from now on.
    pub fn reconfigure(&mut self, now: Time, config: RouterConfig) {
        let is_new = config.policy != self.factory;
        self.factory = config.policy.clone();
        self.pool.config = config.with_policy(());
        self.pool
            .adapters
            .presume_slots(self.pool.config.adapter_slots);
        self.pool.now = self.pool.now.max(now);
        self.pool.queue.set_now(self.pool.now);
        if is_new {
            self.replace_policy();
        }
        self.set_line_rules();
        let limits = self.pool.config.tenants.as_ref();
        self.pool.tenants.set_weights(limits);
        if self.pool.config.tiers.is_none() {
            self.open_gate();
        }
        self.advance(now);
        self.divide_index_memory();
        self.pool.replicas.set_rules(
            self.pool.config.push,
            self.pool.config.probe_stale_after,
            self.pool.now,
        );
        self.serve_queue();
    }

    /// Builds the policy of the configuration, which hears of the replicas. It hears of no request that waits: each one counts as an
    /// arrival when it is next asked, so a reload does no work for a long queue.
    fn replace_policy(&mut self) {
        self.policy = self.factory.build(self.seed);
        self.pool.queue.forget_preferences();
        // A draining replica may resume.
        for index in self.pool.replicas.all() {
            if let Some(replica) = self.pool.replicas.get(index) {
                let event = PolicyEvent::ReplicaAdded(index, &replica.name);
                self.policy.on_event(event);
            }
        }
    }

    /// Applies the order of service of the configuration and the policy.
    pub(super) fn set_line_rules(&mut self) {
        let config = &self.pool.config;
        let rules = LineRules::new(config, self.policy.rules().past_slo_last);
        let has_tiers = config.tiers.is_some();
        self.pool.queue.set_rules(rules, has_tiers);
    }

    /// Divides the memory for indexes, and applies the rules between regions.
    pub(super) fn divide_index_memory(&mut self) {
        self.pool.divide_index_memory();
        if !self.pool.config.region.share {
            self.placements.clear();
        }
    }
}
