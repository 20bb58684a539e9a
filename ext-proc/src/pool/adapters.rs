//! Names of the adapters of a pool.
//!
//! The routing core knows an adapter by the hash of its name. The names select the pool of a request, and operators read
//! them. A name stays while a replica lists it. A name that only a metrics page has selects no pool: a replica without a
//! list says too little. Such names are held by replica, each page replaces them, and listed names come before them.

use std::collections::{BTreeMap, HashMap};
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
    by_key: HashMap<AdapterKey, KnownName>,
    listed_by: BTreeMap<ReplicaId, Box<[AdapterKey]>>,
    /// Names on the last metrics page of each replica.
    reported_by: BTreeMap<ReplicaId, Box<[AdapterKey]>>,
}

/// A name, and how many replicas list or report it. One of the numbers is not 0.
#[derive(Debug)]
struct KnownName {
    name: Arc<str>,
    listers: usize,
    reporters: usize,
}

impl AdapterNames {
    fn list(&self, replica: ReplicaId, adapters: &[String]) {
        let mut names = self.names.write();
        let adapters = adapters.iter().take(ADAPTERS_LISTED_MAX);
        let listed = adapters.filter_map(|name| names.list(name)).collect();
        let before = names.listed_by.insert(replica, listed);
        names.release(before, |name| &mut name.listers);
        self.publish(&names);
    }

    pub(super) fn remove(&self, replica: ReplicaId) {
        if self.has_any.load(Ordering::Acquire) {
            let mut names = self.names.write();
            let (listed, reported) = (
                names.listed_by.remove(&replica),
                names.reported_by.remove(&replica),
            );
            names.release(listed, |name| &mut name.listers);
            names.release(reported, |name| &mut name.reporters);
            self.publish(&names);
        }
    }

    fn report(&self, replica: ReplicaId, adapters: &ReportedAdapters) {
        let all: BTreeMap<AdapterKey, &str> = (adapters.running.iter())
            .chain(&adapters.waiting)
            .map(|name| (key_of(name), name.as_str()))
            .collect();
        if self.names.read().reports(replica).eq(all.keys()) {
            return;
        }
        let mut names = self.names.write();
        let reported = all
            .iter()
            .filter(|(key, name)| names.report(**key, name))
            .map(|(key, _)| *key);
        let reported = reported.collect();
        let before = names.reported_by.insert(replica, reported);
        names.release(before, |name| &mut name.reporters);
        self.publish(&names);
    }

    fn publish(&self, names: &Names) {
        self.has_any
            .store(!names.by_key.is_empty(), Ordering::Release);
    }

    fn is_listed(&self, name: &str) -> bool {
        let is_listed = |names: &Names| {
            let known = names.by_key.get(&key_of(name));
            known.is_some_and(|known| known.listers > 0)
        };
        self.has_any.load(Ordering::Acquire) && is_listed(&self.names.read())
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
        known.map(|known| Arc::clone(&known.name)).collect()
    }

    fn listed(&self) -> Vec<Arc<str>> {
        let names = self.names.read();
        let listed = names.by_key.values().filter(|known| known.listers > 0);
        let mut listed = Vec::from_iter(listed.map(|known| Arc::clone(&known.name)));
        listed.sort_unstable();
        listed
    }
}

impl Names {
    /// Adds a lister of a name. When there are too many names, one that no replica lists makes room.
    /// Returns its key; `None` when every name is listed.
    fn list(&mut self, name: &str) -> Option<AdapterKey> {
        let key = key_of(name);
        if self.by_key.len() >= ADAPTERS_MAX && !self.by_key.contains_key(&key) {
            self.evict_unlisted()?;
        }
        self.entry(key, name)?.listers += 1;
        Some(key)
    }

    /// Adds a reporter of a name, if there is room for it.
    fn report(&mut self, key: AdapterKey, name: &str) -> bool {
        let known = self.entry(key, name);
        known.map(|known| known.reporters += 1).is_some()
    }

    fn entry(&mut self, key: AdapterKey, name: &str) -> Option<&mut KnownName> {
        if self.by_key.len() >= ADAPTERS_MAX && !self.by_key.contains_key(&key) {
            return None;
        }
        let known = self.by_key.entry(key).or_insert_with(|| KnownName {
            name: name.into(),
            listers: 0,
            reporters: 0,
        });
        Some(known)
    }

    fn evict_unlisted(&mut self) -> Option<()> {
        let mut known = self.by_key.iter();
        let (key, _) = known.find(|(_, known)| known.listers == 0)?;
        let key = *key;
        self.by_key.remove(&key);
        for reported in self.reported_by.values_mut() {
            *reported = reported.iter().copied().filter(|it| *it != key).collect();
        }
        Some(())
    }

    fn reports(&self, replica: ReplicaId) -> impl Iterator<Item = &AdapterKey> {
        self.reported_by.get(&replica).into_iter().flatten()
    }

    /// Takes a replica's keys out of a count, and forgets the names that no replica lists or reports any more.
    fn release(
        &mut self,
        keys: Option<Box<[AdapterKey]>>,
        count: fn(&mut KnownName) -> &mut usize,
    ) {
        for key in keys.unwrap_or_default() {
            if let Some(known) = self.by_key.get_mut(&key) {
                let count = count(known);
                *count = count.saturating_sub(1);
                if known.listers == 0 && known.reporters == 0 {
                    self.by_key.remove(&key);
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
                self.adapters.list(replica, &names);
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
        let keys = |names: &[String]| names.iter().map(|name| key_of(name)).collect();
        let report = AdapterReport {
            slots: adapters.slots,
            running: keys(&adapters.running),
            waiting: keys(&adapters.waiting),
        };
        self.drive(|state, now| {
            if state.membership.addr_of(replica).is_some() {
                self.adapters.report(replica, adapters);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: std::ops::Range<u32>) -> ReportedAdapters {
        ReportedAdapters {
            slots: None,
            running: names.map(|n| format!("wild-{n}")).collect(),
            waiting: Vec::new(),
        }
    }

    fn list(names: &AdapterNames, replica: u32, adapters: &[&str]) {
        let adapters = Vec::from_iter(adapters.iter().map(ToString::to_string));
        names.list(ReplicaId(replica), &adapters);
    }

    #[test]
    fn each_page_of_a_replica_replaces_the_names_of_the_one_before() {
        let names = AdapterNames::default();
        for n in 0..100 {
            names.report(ReplicaId(1), &page(400 * n..400 * (n + 1)));
        }
        assert_eq!(names.names.read().by_key.len(), 400);
        names.report(ReplicaId(2), &page(39_600..39_601));
        names.report(ReplicaId(1), &page(0..0));
        assert!(
            names.key("wild-39600").is_some(),
            "the other still reports it"
        );
        assert_eq!(names.key("wild-39601"), None);
        names.remove(ReplicaId(2));
        assert!(!names.has_any.load(Ordering::Acquire));
    }

    #[test]
    fn a_listed_name_finds_room_among_the_names_of_pages() {
        let names = AdapterNames::default();
        for n in 0..20 {
            names.report(ReplicaId(n), &page(400 * n..400 * (n + 1)));
        }
        assert_eq!(names.names.read().by_key.len(), ADAPTERS_MAX);
        list(&names, 100, &["sql", "chat"]);
        assert!(names.is_listed("sql") && names.is_listed("chat"));
        assert_eq!(names.names.read().by_key.len(), ADAPTERS_MAX);
        list(&names, 100, &["chat"]);
        assert!(!names.is_listed("sql") && names.is_listed("chat"));
        assert_eq!(names.listed().len(), 1);
        for n in 0..20 {
            names.remove(ReplicaId(n));
        }
        assert_eq!(names.names.read().by_key.len(), 1);
    }
}
