//! Turns of owners, and the bound of their promoted lines.

use super::*;
use crate::completion_window::CompletionWindow;
use crate::endpoint::Endpoint;
use crate::store::BatchStatus;

const CONCURRENCY_MAX: usize = 16;
const HOUR_MS: i64 = 3_600_000;

fn batch(id: &str, owner: &str, expires_at: UnixMs, total: u64) -> ActiveBatch {
    let row = BatchRow {
        id: id.to_owned(),
        owner: owner.to_owned(),
        endpoint: Endpoint::Completions,
        model: "m".to_owned(),
        status: BatchStatus::InProgress,
        input_file_id: String::new(),
        output_file_id: None,
        error_file_id: None,
        window: CompletionWindow::DAY,
        created_at: 0,
        in_progress_at: None,
        expires_at,
        finalizing_at: None,
        completed_at: None,
        failed_at: None,
        expired_at: None,
        cancelling_at: None,
        cancelled_at: None,
        total,
        completed: 0,
        failed: 0,
        errors: None,
        metadata: None,
        output_ttl_s: None,
        output_path: None,
    };
    ActiveBatch {
        row,
        promoted: 0,
        empty_until: SteadyMs::MIN,
    }
}

fn plan(batches: Vec<ActiveBatch>) -> Plan {
    let mut plan = Plan {
        batches,
        last_owner: String::new(),
        windows: Windows::new(CONCURRENCY_MAX),
        rates: Rates::default(),
        holds: watch::channel(BTreeMap::new()).1,
        paused_until: SteadyMs::MIN,
        concurrency_max: CONCURRENCY_MAX,
        only: None,
    };
    plan.forget_models();
    plan
}

/// Claims and sends what may go, and returns the batches of the lines.
fn send(plan: &mut Plan, in_flight: &mut InFlight) -> Vec<(String, Priority)> {
    let now = Moment {
        steady: 0,
        unix: 20 * HOUR_MS,
    };
    let mut sent = Vec::new();
    while let Some(wanted) = plan.next_claim(now, in_flight) {
        let lane = Lane::of(plan.batch(&wanted.batch).unwrap());
        for _ in 0..wanted.count {
            plan.sent(&lane, wanted.priority);
            in_flight.add(&wanted.batch, &lane, wanted.priority);
            sent.push((wanted.batch.clone(), wanted.priority));
        }
    }
    sent
}

#[test]
fn owners_take_turns_and_an_owners_batches_go_by_deadline() {
    let mut plan = plan(vec![
        batch("a1", "a", 21 * HOUR_MS, 1_000),
        batch("b1", "b", 23 * HOUR_MS, 1_000),
        batch("a2", "a", 22 * HOUR_MS, 1_000),
    ]);
    let mut in_flight = InFlight::default();
    let mut sent = send(&mut plan, &mut in_flight);
    // Lines that end make room for one line each.
    for turn in 0..40 {
        let (ended, priority) = sent.get(turn).unwrap().clone();
        let lane = Lane::of(plan.batch(&ended).unwrap());
        plan.ended(&lane, priority);
        in_flight.remove(&ended, &lane, priority);
        sent.extend(send(&mut plan, &mut in_flight));
    }
    let of = |batch: &str| sent.iter().filter(|(id, _)| id == batch).count();
    assert_eq!(of("a2"), 0);
    assert_eq!(of("a1"), of("b1"));
}

#[test]
fn the_promoted_lines_of_an_owner_take_a_quarter_of_the_concurrency() {
    let mut plan = plan(vec![
        batch("a1", "a", 24 * HOUR_MS, 1_000),
        batch("b1", "b", 24 * HOUR_MS, 2),
        batch("a2", "a", 24 * HOUR_MS, 1_000),
    ]);
    plan.promote(20 * HOUR_MS, &InFlight::default());
    let promoted: Vec<u64> = plan.batches.iter().map(|batch| batch.promoted).collect();
    assert_eq!(promoted, [CONCURRENCY_MAX as u64 / 4, 2, 0]);
    let sent = send(&mut plan, &mut InFlight::default());
    let promoted = sent
        .iter()
        .filter(|(batch, priority)| *priority == Priority::Interactive && batch.starts_with('a'));
    assert!(promoted.count() <= CONCURRENCY_MAX / 4);
}
