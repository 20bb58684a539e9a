//! Metrics pages that stand still: engines publish their gauges with a step, and an aborted batch is followed by none.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{EngineCounters, Event, Load, ReplicaId, RouterConfig};

/// The gauges of a page that moves only when a request makes the engine step.
fn standing(pending: u32, running: u32) -> Load {
    Load {
        pending,
        running: Some(running),
        kv_usage: Some(0.904),
        ..Load::default()
    }
}

fn script(replicas: u32) -> Script {
    Script::new(RouterConfig::default(), replicas)
}

/// Probes each 100 ms. Returns the milliseconds until the router has sent something, if it has.
fn sent_within(script: &mut Script, most_ms: u64, load: Load) -> Option<u64> {
    (0..most_ms / 100).find_map(|probe| {
        script.sleep(100);
        script.probe_load(0, load);
        (!script.sent().is_empty()).then_some((probe + 1) * 100)
    })
}

#[test]
fn an_engine_that_stands_still_after_aborts_serves_the_next_request_within_two_seconds() {
    for (pending, running) in [(1, 2), (15, 106), (1, 0), (u32::MAX, u32::MAX)] {
        let load = standing(pending, running);
        let mut script = script(1);
        for id in 0..8 {
            script.arrive(request(id, id, &[id]));
        }
        script.sent();
        script.probe_load(0, load);
        for id in 0..8 {
            script.abort(id);
        }
        script.sleep(100);
        script.probe_load(0, load);
        script.arrive(request(100, 100, &[100]));
        assert!(script.sent().is_empty(), "the engine may be about to step");
        let waited = sent_within(&mut script, 2_000, load);
        assert!(waited.is_some(), "{pending} waiting, {running} running");
    }
}

#[test]
fn a_page_that_never_moves_gets_one_request_at_a_time() {
    let load = standing(15, 106);
    let mut script = script(1);
    script.probe_load(0, load);
    for id in 0..3 {
        script.arrive(request(id, id, &[id]));
    }
    for id in 0..3 {
        assert!(sent_within(&mut script, 2_000, load).is_some());
        assert_eq!(sent_within(&mut script, 5_000, load), None, "one is there");
        script.finish(id);
    }
}

#[test]
fn a_page_beside_counters_that_move_is_believed() {
    let load = standing(15, 106);
    let mut script = script(1);
    script.probe_load(0, load);
    script.arrive(request(0, 0, &[0]));
    for tokens in 1..100 {
        script.sleep(100);
        script.probe_load(0, load);
        script.event(Event::CountersReported {
            replica: ReplicaId(0),
            counters: EngineCounters {
                generation_tokens: Some(f64::from(tokens)),
                ..EngineCounters::default()
            },
            sent: script.now,
        });
        assert!(script.sent().is_empty(), "another router's requests wait");
    }
}

#[test]
fn a_page_that_moves_is_believed() {
    let mut script = script(1);
    script.probe_load(0, standing(1, 2));
    script.arrive(request(0, 0, &[0]));
    for probe in 0..100 {
        script.sleep(100);
        script.probe_load(0, standing(1 + probe % 2, 2));
        assert!(script.sent().is_empty(), "another router's requests wait");
    }
}

#[test]
fn a_replica_whose_page_stands_still_gets_traffic_beside_one_that_moves() {
    let load = standing(1, 2);
    let mut script = script(2);
    script.probe_load(0, load);
    let mut of_each = [0, 0];
    for id in 0..60 {
        script.sleep(100);
        script.probe_load(0, load);
        script.probe(1, 0);
        script.arrive(request(id, id, &[1_000 * id, 1_000 * id + 1]));
        for (_, replica) in script.sent() {
            of_each[replica as usize] += 1;
        }
        if id >= 8 {
            script.finish(id - 8);
        }
    }
    assert!(of_each[0] >= 3, "{of_each:?}");
}

#[test]
fn a_page_that_moves_again_leaves_no_limit_behind() {
    for running in [None, Some(0)] {
        let mut script = script(1);
        let load = Load {
            pending: 2,
            running,
            ..Load::default()
        };
        script.probe_load(0, load);
        script.arrive(request(0, 0, &[0]));
        assert!(sent_within(&mut script, 2_000, load).is_some());
        script.finish(0);
        // Requests are so short that no probe finds one.
        script.sleep(100);
        script.probe_load(0, Load { pending: 0, ..load });
        for id in 1..=4 {
            script.arrive(request(id, id, &[id]));
        }
        assert_eq!(script.sent().len(), 4, "{running:?}");
    }
}
