//! Places of owners: a bounded number, of which each owner gets its share.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Owner;
use crate::limits::Usage;

/// Places of owners, for uploads for example.
#[derive(Debug)]
pub(super) struct OwnerPlaces {
    places_max: u64,
    taken: Arc<Mutex<BTreeMap<String, u64>>>,
}

/// The place of an owner, which is free again on drop.
#[derive(Debug)]
pub(super) struct OwnerPlace {
    owner: String,
    taken: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl OwnerPlaces {
    pub(super) fn new(places_max: u64) -> Self {
        Self {
            places_max,
            taken: Arc::default(),
        }
    }

    /// Takes a place; `None` if there is none for this owner.
    pub(super) fn take(&self, owner: &Owner) -> Option<OwnerPlace> {
        let mut taken = self.taken.lock();
        let usage = Usage {
            all: taken.values().sum(),
            owner: taken.get(&owner.name).copied().unwrap_or_default(),
        };
        if !usage.has_room(1, self.places_max, owner.is_shared) {
            return None;
        }
        *taken.entry(owner.name.clone()).or_default() += 1;
        Some(OwnerPlace {
            owner: owner.name.clone(),
            taken: Arc::clone(&self.taken),
        })
    }
}

impl Drop for OwnerPlace {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_places_for_others() {
        let places = OwnerPlaces::new(8);
        let take_all = |name: &str| -> Vec<OwnerPlace> {
            let owner = Owner {
                name: name.to_owned(),
                is_shared: true,
            };
            std::iter::from_fn(|| places.take(&owner)).collect()
        };
        let taken: Vec<Vec<OwnerPlace>> = ["a", "b", "c", "d"].map(take_all).into();
        let counts: Vec<usize> = taken.iter().map(Vec::len).collect();
        assert_eq!(counts, [4, 2, 1, 1]);
        drop(taken);
        assert!(places.taken.lock().is_empty());
        assert_eq!(take_all("a").len(), 4);
    }

    #[test]
    fn an_owner_alone_has_every_place() {
        let places = OwnerPlaces::new(8);
        let owner = Owner {
            name: "a".to_owned(),
            is_shared: false,
        };
        let taken: Vec<OwnerPlace> = std::iter::from_fn(|| places.take(&owner)).collect();
        assert_eq!(taken.len(), 8);
    }
}
