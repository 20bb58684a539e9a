use super::*;

fn limits(bytes_max: usize, eviction: Eviction) -> IndexLimits {
    IndexLimits {
        bytes_max,
        eviction,
    }
}

/// A chain from one hash per block, each 256 bytes long.
fn chain(hashes: &[u64]) -> Vec<BlockHash> {
    (1..)
        .zip(hashes)
        .map(|(i, hash)| BlockHash {
            hash: *hash,
            end_bytes: i * 256,
        })
        .collect()
}

fn index_of(targets: usize, limits: IndexLimits) -> (PrefixIndex, Vec<ReplicaIndex>) {
    let mut index = PrefixIndex::new(limits, 1);
    let slots = (0..targets).map(|_| index.join().unwrap()).collect();
    (index, slots)
}

fn send(index: &mut PrefixIndex, blocks: &[BlockHash], slot: ReplicaIndex) -> PredictionRecord {
    let matched = index.deepest_of(blocks, slot);
    index.record(blocks, slot, &matched)
}

fn set(slots: &[ReplicaIndex]) -> ReplicaSet {
    let mut set = ReplicaSet::default();
    for slot in slots {
        set.set(*slot, true);
    }
    set
}

fn depths(index: &PrefixIndex, blocks: &[BlockHash], slots: &[ReplicaIndex]) -> Vec<usize> {
    slots
        .iter()
        .map(|slot| index.deepest_of(blocks, *slot).depth)
        .collect()
}

const ROOMY: usize = 1 << 20;

#[test]
fn the_longest_match_among_the_available_wins() {
    let (mut index, slots) = index_of(3, limits(ROOMY, Eviction::Lru));
    let long = chain(&[1, 2, 3, 4, 5, 6]);
    send(&mut index, &long, slots[0]);
    send(&mut index, &long[..3], slots[1]);
    assert_eq!(depths(&index, &long, &slots), [6, 3, 0]);

    let all = set(&slots);
    let best = index.deepest(&long, &all);
    assert_eq!(best.depth, 6);
    assert_eq!(index.targets(&best, &all).collect::<Vec<_>>(), [slots[0]]);

    let others = set(&slots[1..]);
    let best = index.deepest(&long, &others);
    assert_eq!(best.depth, 3);
    assert_eq!(
        index.targets(&best, &others).collect::<Vec<_>>(),
        [slots[1]]
    );
    assert_eq!(index.deepest(&long, &set(&slots[2..])).depth, 0);
}

#[test]
fn what_was_used_longest_ago_goes_first_and_from_the_deep_end() {
    let (mut index, slots) = index_of(1, limits(ROOMY, Eviction::Lru));
    let (a, b) = (chain(&[1, 2, 3]), chain(&[1, 20, 30]));
    send(&mut index, &a, slots[0]);
    send(&mut index, &b, slots[0]);
    send(&mut index, &a, slots[0]);
    index.set_limits(limits(index.bytes() - 1, Eviction::Lru));
    assert_eq!(depths(&index, &b, &slots), [2]);
    assert_eq!(depths(&index, &a, &slots), [3]);
    index.set_limits(limits(index.bytes() - 2 * NODE_BYTES, Eviction::Lru));
    assert_eq!(depths(&index, &b, &slots), [1], "the shared start stays");
    assert_eq!(depths(&index, &a, &slots), [2]);
}

#[test]
fn fifo_does_not_care_for_use() {
    let (mut index, slots) = index_of(1, limits(ROOMY, Eviction::Fifo));
    let (a, b) = (chain(&[1, 2, 3]), chain(&[10, 20, 30]));
    send(&mut index, &a, slots[0]);
    send(&mut index, &b, slots[0]);
    send(&mut index, &a, slots[0]);
    index.set_limits(limits(3 * NODE_BYTES + 64, Eviction::Fifo));
    assert_eq!(depths(&index, &a, &slots), [0]);
    assert_eq!(depths(&index, &b, &slots), [3]);
}

#[test]
fn the_oldest_of_all_targets_goes_first() {
    let (mut index, slots) = index_of(3, limits(ROOMY, Eviction::Lru));
    for (i, slot) in (1..).zip(&slots) {
        send(&mut index, &chain(&[i * 10]), *slot);
    }
    send(&mut index, &chain(&[10]), slots[0]);
    index.set_limits(limits(index.bytes() - 1, Eviction::Lru));
    assert_eq!(depths(&index, &chain(&[20]), &slots), [0, 0, 0]);
    assert_eq!(depths(&index, &chain(&[10]), &slots), [1, 0, 0]);
}

#[test]
fn a_targets_budget_follows_its_cache() {
    let (mut index, slots) = index_of(2, limits(ROOMY, Eviction::Lru));
    for slot in &slots {
        send(&mut index, &chain(&[1, 2, 3, 4]), *slot);
    }
    index.set_budget(slots[0], Some(600));
    assert_eq!(depths(&index, &chain(&[1, 2, 3, 4]), &slots), [2, 4]);
    assert_eq!(index.held_bytes(slots[0]), 512);
    send(&mut index, &chain(&[1, 2, 30]), slots[0]);
    assert!(index.held_bytes(slots[0]) <= 600);
}

#[test]
fn a_target_that_left_is_purged_by_the_work_of_others() {
    let (mut index, slots) = index_of(2, limits(ROOMY, Eviction::Lru));
    for i in 0..40 {
        send(&mut index, &chain(&[1, 100 + i]), slots[0]);
    }
    index.leave(slots[0]);
    assert_eq!(
        index.join(),
        Some(ReplicaIndex(2)),
        "its slot is not free yet"
    );
    for i in 0..4 {
        send(&mut index, &chain(&[1, 200 + i]), slots[1]);
    }
    assert_eq!(index.stats().entries, 5);
    assert_eq!(index.join(), Some(slots[0]), "now it is");
}

#[test]
fn a_request_that_did_not_arrive_is_taken_back() {
    let (mut index, slots) = index_of(1, limits(ROOMY, Eviction::Lru));
    let blocks = chain(&[1, 2, 3, 4]);
    send(&mut index, &blocks[..2], slots[0]);
    let recorded = send(&mut index, &blocks, slots[0]);
    index.retract(&blocks, slots[0], &recorded);
    assert_eq!(depths(&index, &blocks, &slots), [2]);

    let recorded = send(&mut index, &blocks[..3], slots[0]);
    send(&mut index, &blocks, slots[0]);
    index.retract(&blocks[..3], slots[0], &recorded);
    assert_eq!(
        depths(&index, &blocks, &slots),
        [4],
        "a later one keeps what it uses"
    );
}

#[test]
fn a_miss_forgets_what_is_as_old_as_what_was_missed() {
    let (mut index, slots) = index_of(1, limits(ROOMY, Eviction::Lru));
    let (old, missed, new) = (chain(&[1, 2]), chain(&[10, 20]), chain(&[100, 200]));
    send(&mut index, &old, slots[0]);
    send(&mut index, &missed, slots[0]);
    send(&mut index, &new, slots[0]);
    let recorded = send(&mut index, &missed, slots[0]);
    index.missed(slots[0], &recorded, u32::MAX);
    assert_eq!(depths(&index, &old, &slots), [0]);
    assert_eq!(depths(&index, &missed, &slots), [2], "computed just now");
    assert_eq!(depths(&index, &new, &slots), [2]);
}

#[test]
fn a_contradictory_chain_is_recorded_as_far_as_it_agrees() {
    let (mut index, slots) = index_of(1, limits(ROOMY, Eviction::Lru));
    send(&mut index, &chain(&[1, 1, 1]), slots[0]);
    assert_eq!(index.stats().nodes, 1);
    send(&mut index, &chain(&[2, 1, 3]), slots[0]);
    assert_eq!(index.stats().nodes, 2);
    index.set_limits(limits(0, Eviction::Lru));
    assert_eq!(
        index.stats(),
        IndexStats {
            evicted: 2,
            ..IndexStats::default()
        }
    );
}

#[test]
fn a_chain_under_another_parent_is_not_followed_for_other_targets_either() {
    let (mut index, slots) = index_of(2, limits(ROOMY, Eviction::Lru));
    send(&mut index, &chain(&[1, 3]), slots[0]);
    send(&mut index, &chain(&[2, 1, 3]), slots[1]);
    assert_eq!(depths(&index, &chain(&[2]), &slots), [0, 1]);
    assert_eq!(depths(&index, &chain(&[1, 3]), &slots), [2, 0]);
}

#[test]
fn a_prefix_is_as_young_as_its_last_extension_was() {
    let (mut index, slots) = index_of(2, limits(ROOMY, Eviction::Lru));
    send(&mut index, &chain(&[1]), slots[0]);
    send(&mut index, &chain(&[10]), slots[1]);
    send(&mut index, &chain(&[1, 2]), slots[0]);
    index.set_budget(slots[0], Some(256));
    assert_eq!(depths(&index, &chain(&[1, 2]), &slots), [1, 0]);
    index.set_limits(limits(index.bytes() - 1, Eviction::Lru));
    assert_eq!(depths(&index, &chain(&[10]), &slots), [0, 0]);
    assert_eq!(depths(&index, &chain(&[1]), &slots), [1, 0]);
}
