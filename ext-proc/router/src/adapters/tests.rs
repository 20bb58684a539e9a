//! The belief about slots, against dispatches, ends and reports.

use super::*;

const LOAD: Duration = Duration::from_millis(500);
const REPLICA: ReplicaIndex = ReplicaIndex(3);

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn keys(keys: &[u64]) -> Vec<AdapterKey> {
    keys.iter().copied().map(AdapterKey).collect()
}

struct World {
    adapters: Adapters,
    now: Time,
}

impl World {
    /// A replica that has reported so many slots.
    fn with_slots(slots: u32) -> Self {
        let mut world = Self {
            adapters: Adapters::new(0, LOAD),
            now: at(0),
        };
        world.report(slots, &[], &[]);
        world
    }

    fn report(&mut self, slots: u32, running: &[u64], waiting: &[u64]) {
        self.report_of(slots, running, waiting, self.now);
    }

    fn report_of(&mut self, slots: u32, running: &[u64], waiting: &[u64], sent: Time) {
        let report = AdapterReport {
            slots: Some(slots),
            running: keys(running),
            waiting: keys(waiting),
        };
        self.adapters.report(REPLICA, &report, sent, self.now);
    }

    fn dispatch(&mut self, adapter: u64) -> AdapterState {
        self.sleep(1);
        let key = AdapterKey(adapter);
        self.adapters.on_dispatch(REPLICA, key, self.now)
    }

    fn end(&mut self, adapter: u64) {
        let key = AdapterKey(adapter);
        self.adapters.on_release(REPLICA, key, self.now);
    }

    fn sleep(&mut self, ms: u64) {
        self.now = self.now.after(Duration::from_millis(ms));
    }

    fn state(&self, adapter: u64) -> AdapterState {
        self.adapters.state(REPLICA, AdapterKey(adapter))
    }

    fn cost(&self, adapter: u64) -> AdapterCost {
        self.adapters.cost(REPLICA, AdapterKey(adapter), 2.0)
    }

    fn loaded(&self) -> Vec<u64> {
        let status = self.adapters.status(REPLICA).unwrap();
        status.loaded.iter().map(|key| key.0).collect()
    }
}

#[test]
fn a_dispatched_adapter_counts_as_loaded_at_once_and_loads_for_a_while() {
    let mut world = World::with_slots(2);
    assert_eq!(world.dispatch(1), AdapterState::FreeSlot);
    assert_eq!(world.dispatch(1), AdapterState::Loaded);
    assert!(world.adapters.loading_s(REPLICA, world.now) > 0.4);
    world.sleep(500);
    assert!(world.adapters.loading_s(REPLICA, world.now) <= 0.0);
    assert_eq!(world.cost(1), AdapterCost::default());
}

#[test]
fn a_replica_that_reports_no_slots_holds_as_many_adapters_as_presumed() {
    let mut world = World {
        adapters: Adapters::new(2, LOAD),
        now: at(0),
    };
    for adapter in 1..=3 {
        world.dispatch(adapter);
        world.end(adapter);
    }
    assert_eq!(world.loaded(), [2, 3]);
    world.adapters.configure(3, LOAD);
    assert_eq!(world.dispatch(1), AdapterState::FreeSlot);
    world.adapters.forget_loaded(REPLICA);
    world.dispatch(1);
    world.end(1);
    assert_eq!(world.dispatch(2), AdapterState::FreeSlot);
    world.end(2);
    assert_eq!(world.dispatch(3), AdapterState::FreeSlot);
    world.end(3);
    assert_eq!(
        world.dispatch(4),
        AdapterState::Evicts,
        "a restart keeps the number"
    );
}

#[test]
fn an_idle_adapter_keeps_its_slot_although_no_report_names_it() {
    let mut world = World::with_slots(2);
    world.dispatch(1);
    world.end(1);
    world.sleep(100);
    world.report(2, &[], &[]);
    assert_eq!(world.state(1), AdapterState::Loaded);
}

#[test]
fn the_least_recently_used_idle_adapter_makes_room() {
    let mut world = World::with_slots(2);
    for adapter in [1, 2, 1] {
        world.dispatch(adapter);
        world.end(adapter);
    }
    assert_eq!(world.dispatch(3), AdapterState::Evicts);
    assert_eq!(world.loaded(), [1, 3]);
}

#[test]
fn an_adapter_waits_while_each_slot_has_a_request_and_then_takes_the_first_free_one() {
    let mut world = World::with_slots(2);
    world.dispatch(1);
    world.dispatch(2);
    assert_eq!(world.dispatch(3), AdapterState::Full);
    assert_eq!(world.state(3), AdapterState::Waiting);
    world.end(2);
    assert_eq!(world.loaded(), [1, 3]);
    assert_eq!(world.state(2), AdapterState::Full, "both are in use");
}

#[test]
fn a_report_with_a_running_adapter_in_each_slot_contradicts_all_others() {
    let mut world = World::with_slots(2);
    world.dispatch(1);
    world.end(1);
    world.sleep(100);
    world.report(2, &[7, 8], &[]);
    assert_eq!(world.loaded(), [7, 8]);
    assert_eq!(world.state(1), AdapterState::Full);
}

#[test]
fn a_report_says_nothing_about_a_request_that_was_dispatched_after_it_was_asked_for() {
    let mut world = World::with_slots(1);
    let sent = world.now;
    world.dispatch(1);
    world.report_of(1, &[], &[], sent);
    assert_eq!(world.state(1), AdapterState::Loaded);
    world.report_of(1, &[7], &[], sent);
    assert_eq!(world.state(1), AdapterState::Waiting, "the slot is taken");
    world.sleep(100);
    world.report(1, &[7], &[]);
    assert_eq!(world.state(1), AdapterState::Full, "its request has ended");
}

#[test]
fn a_request_that_waits_for_memory_does_not_wait_for_a_slot() {
    let mut world = World::with_slots(2);
    world.dispatch(1);
    world.end(1);
    world.sleep(1_000);
    for _ in 0..5 {
        world.sleep(100);
        world.report(2, &[7], &[1]);
        assert_eq!(world.state(1), AdapterState::Loaded);
        assert!(world.adapters.loading_s(REPLICA, world.now) <= 0.0);
    }
}

#[test]
fn each_state_costs_more_than_the_one_before() {
    let mut world = World::with_slots(1);
    let seconds = |cost: AdapterCost| cost.load_s + cost.wait_s + cost.slot_s;
    let free = seconds(world.cost(2));
    world.dispatch(1);
    assert!(world.cost(1) == AdapterCost::default());
    let full = seconds(world.cost(2));
    world.end(1);
    let evicts = seconds(world.cost(2));
    assert!(
        0.0 < free && free < evicts && evicts < full,
        "{free} {evicts} {full}"
    );
    world.dispatch(1);
    world.dispatch(2);
    let shared = seconds(world.cost(2));
    assert!(free < shared && shared < full, "its load is needed anyway");
}

#[test]
fn lists_and_removed_replicas_leave_nothing_behind() {
    let mut world = World::with_slots(2);
    world.adapters.list(REPLICA, keys(&[1, 2, 2]));
    world.adapters.list(REPLICA, keys(&[2, 3]));
    world.dispatch(3);
    let status = world.adapters.status(REPLICA).unwrap();
    assert_eq!(status.listed, Some(keys(&[2, 3])));
    assert_eq!(world.adapters.known.len(), 2);
    world.adapters.remove(REPLICA);
    assert!(world.adapters.known.is_empty() && world.adapters.replicas.is_empty());
}

#[test]
fn the_number_of_adapters_is_bounded() {
    let mut world = World::with_slots(2);
    for replica in 0..6_u16 {
        let first = u64::from(replica) * 1_000;
        let keys = (first..first + 2_000).map(AdapterKey).collect();
        world.adapters.list(ReplicaIndex(replica), keys);
    }
    assert_eq!(world.adapters.known.len(), ADAPTERS_MAX);
    world.dispatch(1_000_000);
    assert_eq!(world.adapters.known.len(), ADAPTERS_MAX);
    assert_eq!(world.loaded(), [0; 0], "an unknown adapter is not followed");
}

proptest::proptest! {
    #[test]
    fn the_sets_of_holders_agree_with_the_slots(ops in proptest::collection::vec((0_u16..3, 0_u64..6, 0_u8..4), 0..200)) {
        let mut adapters = Adapters::new(0, LOAD);
        for (i, (replica, adapter, op)) in (0..).zip(ops) {
            let (replica, adapter, now) = (ReplicaIndex(replica), AdapterKey(adapter), at(i));
            match op {
                0 | 1 => drop(adapters.on_dispatch(replica, adapter, now)),
                2 => adapters.on_release(replica, adapter, now),
                _ => {
                    let other = AdapterKey((adapter.0 + 1) % 6);
                    let report = AdapterReport { slots: Some(2), running: vec![adapter], waiting: vec![other] };
                    adapters.report(replica, &report, at(u64::saturating_sub(i, 2)), now);
                }
            }
            for replica in (0..3).map(ReplicaIndex) {
                let slots = adapters.replicas.get(&replica).map(|place| &place.slots);
                let loaded: Vec<_> = slots.iter().flat_map(|slots| slots.of_state(SlotState::Loaded)).collect();
                proptest::prop_assert!(loaded.len() <= slots.map_or(8, AdapterSlots::count));
                for adapter in (0..6).map(AdapterKey) {
                    let is_holder = adapters.holders(adapter).is_some_and(|set| set.contains(replica));
                    proptest::prop_assert_eq!(is_holder, loaded.contains(&adapter));
                }
            }
        }
    }
}
