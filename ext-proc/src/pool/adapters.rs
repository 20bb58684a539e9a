//! Names of the adapters of a pool.
//!
//! The routing core knows an adapter by the hash of its name. The names select the pool of a request, and operators read
//! them. A name stays while a replica lists it. A name that only a metrics page has selects no pool: a replica without a
//! list says too little.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isotherm_router::{
    ADAPTERS_LISTED_MAX, ADAPTERS_MAX, AdapterKey, AdapterReport, AdapterStatus, Event, ReplicaId,
    Time,
};
use parking_lot::RwLock;
use twox_hash::XxHash3_64;

use super::{ANY_MODEL, Pool};
use crate::probe::ReportedAdapters;
use crate::sans_io::Driver;

/// Returns the key of a name.
fn key_of(name: &str) -> AdapterKey {
    AdapterKey(XxHash3_64::oneshot(name.as_bytes()))
}

/// Names of the adapters of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaAdapters {
    /// Adapters that the replica can serve; `None` if it does not list them.
    pub listed: Option<Vec<Arc<str>>>,
    /// Adapters that the replica is believed to hold, least recently used first.
    pub loaded: Vec<Arc<str>>,
    /// Adapters whose requests wait for a slot.
    pub waiting: Vec<Arc<str>>,
    /// Number of slots, if the replica reports it.
    pub slots: Option<u32>,
}

/// Names of the adapters of a pool, for the path of requests.
#[derive(Debug, Default)]
pub(super) struct AdapterNames {
    /// Whether there is any name, so that a pool without adapters pays for one load.
    has_any: AtomicBool,
    names: RwLock<Names>,
}

#[derive(Debug, Default)]
struct Names {
    listed_by: BTreeMap<ReplicaId, Box<[Arc<str>]>>,
    /// Number of replicas that list a name.
    listers: HashMap<Arc<str>, usize>,
    /// Names on metrics pages that were in no list.
    reported: BTreeSet<Arc<str>>,
    by_key: HashMap<AdapterKey, Arc<str>>,
}

impl AdapterNames {
    fn list(&self, replica: ReplicaId, adapters: Vec<String>) {
        let mut names = self.names.write();
        names.unlist(replica);
        let mut listed = Vec::new();
        for adapter in adapters.into_iter().take(ADAPTERS_LISTED_MAX) {
            if let Some(name) = names.intern(&adapter) {
                *names.listers.entry(Arc::clone(&name)).or_default() += 1;
                listed.push(name);
            }
        }
        if !listed.is_empty() {
            names.listed_by.insert(replica, listed.into());
        }
        self.publish(&mut names);
    }

    pub(super) fn remove(&self, replica: ReplicaId) {
        if self.has_any.load(Ordering::Acquire) {
            let mut names = self.names.write();
            names.unlist(replica);
            self.publish(&mut names);
        }
    }

    fn report(&self, adapters: &ReportedAdapters) {
        let all = || adapters.running.iter().chain(&adapters.waiting);
        if all().all(|name| self.names.read().by_key.contains_key(&key_of(name))) {
            return;
        }
        let mut names = self.names.write();
        for name in all() {
            if let Some(name) = names.intern(name)
                && !names.listers.contains_key(&name)
            {
                names.reported.insert(name);
            }
        }
        self.publish(&mut names);
    }

    fn publish(&self, names: &mut Names) {
        let Names {
            listers,
            reported,
            by_key,
            ..
        } = names;
        by_key.retain(|_, name| listers.contains_key(name) || reported.contains(name));
        self.has_any.store(!by_key.is_empty(), Ordering::Release);
    }

    fn is_listed(&self, name: &str) -> bool {
        self.has_any.load(Ordering::Acquire) && self.names.read().listers.contains_key(name)
    }

    fn key(&self, name: &str) -> Option<AdapterKey> {
        if !self.has_any.load(Ordering::Acquire) {
            return None;
        }
        let key = key_of(name);
        self.names.read().by_key.contains_key(&key).then_some(key)
    }

    fn of(&self, keys: &[AdapterKey]) -> Vec<Arc<str>> {
        let names = self.names.read();
        let known = keys.iter().filter_map(|key| names.by_key.get(key));
        known.cloned().collect()
    }

    fn listed(&self) -> Vec<Arc<str>> {
        let listed: HashSet<_> = self.names.read().listers.keys().cloned().collect();
        let mut listed = Vec::from_iter(listed);
        listed.sort_unstable();
        listed
    }
}

impl Names {
    /// Returns the shared copy of a name; `None` when there are too many.
    fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        let key = key_of(name);
        if let Some(known) = self.by_key.get(&key) {
            return Some(Arc::clone(known));
        }
        if self.by_key.len() >= ADAPTERS_MAX {
            return None;
        }
        let name: Arc<str> = name.into();
        self.by_key.insert(key, Arc::clone(&name));
        Some(name)
    }

    fn unlist(&mut self, replica: ReplicaId) {
        for name in self.listed_by.remove(&replica).unwrap_or_default() {
            if let Some(count) = self.listers.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    self.listers.remove(&name);
                }
            }
        }
    }
}

impl Pool {
    /// Reports the adapters that a replica lists. A replica that has left is ignored.
    pub(crate) fn adapters_listed(&self, replica: ReplicaId, names: Vec<String>) {
        let adapters = names.iter().map(|name| key_of(name)).collect();
        self.drive(|state, now| {
            if state.membership.addr_of(replica).is_some() {
                self.adapters.list(replica, names);
                let event = Event::AdaptersListed { replica, adapters };
                state.router.handle(now, event);
            }
        });
    }

    /// Reports the adapters of a replica's requests, by a probe that was sent at `sent`.
    pub(crate) fn adapters_reported(
        &self,
        replica: ReplicaId,
        adapters: &ReportedAdapters,
        sent: Time,
    ) {
        self.adapters.report(adapters);
        let keys = |names: &[String]| names.iter().map(|name| key_of(name)).collect();
        let report = AdapterReport {
            slots: adapters.slots,
            running: keys(&adapters.running),
            waiting: keys(&adapters.waiting),
        };
        self.drive(|state, now| {
            if state.membership.addr_of(replica).is_some() {
                let event = Event::AdaptersReported {
                    replica,
                    report,
                    sent,
                };
                state.router.handle(now, event);
            }
        });
    }

    /// Whether a replica of the pool lists the adapter that a model names.
    pub(crate) fn lists_adapter(&self, model: &str) -> bool {
        let of_base = || self.adapter_of_base(model);
        let adapters = &self.adapters;
        adapters.is_listed(model) || of_base().is_some_and(|name| adapters.is_listed(name))
    }

    /// The adapter that a model names, if it names one.
    pub(crate) fn adapter_key(&self, model: &str) -> Option<AdapterKey> {
        let of_base = || self.adapter_of_base(model);
        let key = self.adapters.key(model);
        key.or_else(|| self.adapters.key(of_base()?))
    }

    /// Names of all adapters that replicas of the pool list, in order.
    pub fn adapters(&self) -> Vec<Arc<str>> {
        self.adapters.listed()
    }

    /// Names of the adapters of a replica.
    pub fn adapter_names(&self, status: &AdapterStatus) -> ReplicaAdapters {
        let names = |keys: &[AdapterKey]| self.adapters.of(keys);
        let mut listed = status.listed.as_deref().map(names);
        if let Some(listed) = &mut listed {
            listed.sort_unstable();
        }
        ReplicaAdapters {
            listed,
            loaded: names(&status.loaded),
            waiting: names(&status.waiting),
            slots: status.slots,
        }
    }

    /// Splits `base:adapter`, which SGLang takes as a model.
    fn adapter_of_base<'m>(&self, model: &'m str) -> Option<&'m str> {
        if !self.adapters.has_any.load(Ordering::Acquire) {
            return None;
        }
        let (base, adapter) = model.rsplit_once(':')?;
        let config = self.config.borrow();
        let is_base = *base == config.model || config.aliases.iter().any(|alias| alias == base);
        (is_base || config.model == ANY_MODEL).then_some(adapter)
    }
}
