//! A list of the API server that a watch keeps up to date.
//!
//! A list that arrives again replaces the known one only when it is whole: a server that restarts may send a part of its
//! list, or an empty first page, and then disconnect. A whole list without any object is no knowledge either: the known objects
//! stay until there is another one, or each is deleted.

use std::collections::BTreeMap;
use std::collections::btree_map::Values;

/// Limit of objects of one list. Ten thousand replicas are the limit of a pool.
pub(super) const OBJECTS_MAX: usize = 10_000;

/// A change of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListEvent<T> {
    /// The list arrives from its beginning.
    Start,
    /// An object of the arriving list.
    Item(String, T),
    /// The arriving list is whole.
    Whole,
    /// An object was added or has changed.
    Changed(String, T),
    /// An object was deleted, or does not match the selector any more.
    Removed(String),
}

/// The objects of a list, by name.
#[derive(Debug)]
pub(super) struct List<T> {
    objects: BTreeMap<String, T>,
    incoming: Option<BTreeMap<String, T>>,
    is_whole: bool,
    /// Whether the objects are those of an earlier list, since the last one was empty.
    is_kept: bool,
    has_overflowed: bool,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            incoming: None,
            is_whole: false,
            is_kept: false,
            has_overflowed: false,
        }
    }
}

impl<T> List<T> {
    /// Applies a change. Returns whether the objects are those of another list from now on.
    pub(super) fn handle(&mut self, event: ListEvent<T>) -> bool {
        match event {
            ListEvent::Start => self.incoming = Some(BTreeMap::new()),
            ListEvent::Item(name, object) => {
                let incoming = self.incoming.get_or_insert_default();
                self.has_overflowed |= !insert(incoming, name, object);
            }
            ListEvent::Whole => {
                if let Some(incoming) = self.incoming.take() {
                    self.is_kept = incoming.is_empty() && !self.objects.is_empty();
                    if self.is_kept {
                        return false;
                    }
                    self.has_overflowed = incoming.len() >= OBJECTS_MAX && self.has_overflowed;
                    self.objects = incoming;
                    self.is_whole = true;
                    return true;
                }
            }
            ListEvent::Changed(name, object) => {
                let is_other = std::mem::take(&mut self.is_kept);
                if is_other {
                    self.objects.clear();
                }
                self.has_overflowed |= !insert(&mut self.objects, name, object);
                return is_other;
            }
            ListEvent::Removed(name) => {
                self.objects.remove(&name);
            }
        }
        false
    }

    /// The objects of the last whole list, with the changes since.
    pub(super) fn objects(&self) -> Values<'_, String, T> {
        self.objects.values()
    }

    /// Whether the list has arrived as a whole.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether the last list was empty, and the objects before it are kept.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether objects were left out because of [`OBJECTS_MAX`].
    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }
}

/// Inserts an object unless the limit is reached; returns whether it was inserted.
fn insert<T>(objects: &mut BTreeMap<String, T>, name: String, object: T) -> bool {
    let has_room = objects.len() < OBJECTS_MAX || objects.contains_key(&name);
    if has_room {
        objects.insert(name, object);
    }
    has_room
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(events: Vec<ListEvent<u32>>) -> List<u32> {
        let mut list = List::default();
        for event in events {
            list.handle(event);
        }
        list
    }

    fn item(name: &str, value: u32) -> ListEvent<u32> {
        ListEvent::Item(name.into(), value)
    }

    fn values(list: &List<u32>) -> Vec<u32> {
        list.objects().copied().collect()
    }

    #[test]
    fn a_list_counts_only_when_it_is_whole() {
        let mut list = list(vec![ListEvent::Start, item("a", 1), item("b", 2)]);
        assert!(!list.is_whole() && values(&list).is_empty());
        assert!(list.handle(ListEvent::Whole));
        assert!(list.is_whole());
        assert_eq!(values(&list), [1, 2]);
    }

    #[test]
    fn a_list_that_breaks_off_changes_nothing() {
        let whole = vec![
            ListEvent::Start,
            item("a", 1),
            item("b", 2),
            ListEvent::Whole,
        ];
        let broken = vec![ListEvent::Start, item("a", 1), ListEvent::Start];
        let list = list(whole.into_iter().chain(broken).collect());
        assert_eq!(values(&list), [1, 2]);
    }

    #[test]
    fn an_empty_list_keeps_the_objects_until_there_is_another_one() {
        let whole = |value| vec![ListEvent::Start, item("a", value), ListEvent::Whole];
        let mut kept = list(whole(1));
        kept.handle(ListEvent::Start);
        assert!(!kept.handle(ListEvent::Whole));
        assert!(kept.is_kept());
        assert_eq!(values(&kept), [1]);
        assert!(kept.handle(ListEvent::Changed("b".into(), 2)));
        assert_eq!((values(&kept), kept.is_kept()), (vec![2], false));

        let mut first = List::<u32>::default();
        first.handle(ListEvent::Start);
        assert!(first.handle(ListEvent::Whole));
        assert!(first.is_whole() && !first.is_kept());

        let mut deleted = list(whole(1));
        deleted.handle(ListEvent::Removed("a".into()));
        assert!(values(&deleted).is_empty());
    }

    #[test]
    fn changes_apply_at_once() {
        let list = list(vec![
            ListEvent::Start,
            item("a", 1),
            item("b", 2),
            ListEvent::Whole,
            ListEvent::Changed("a".into(), 3),
            ListEvent::Removed("b".into()),
            ListEvent::Changed("c".into(), 4),
        ]);
        assert_eq!(values(&list), [3, 4]);
    }

    #[test]
    fn objects_above_the_limit_are_left_out_and_noticed() {
        let items = (0..=u32::try_from(OBJECTS_MAX).unwrap()).map(|n| item(&n.to_string(), n));
        let all = std::iter::once(ListEvent::Start).chain(items);
        let list = list(all.chain([ListEvent::Whole]).collect());
        assert_eq!(list.objects().count(), OBJECTS_MAX);
        assert!(list.has_overflowed());
    }
}
