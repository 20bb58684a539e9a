//! Requests that a timeout of the gateway ends, or that its routes send elsewhere: neither is a fault of the chosen replica.

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Availability, End, Event, Push, ReplicaId, RequestId, RouterConfig, ServedBy,
};

const SLOW: u32 = 0;
const MANY: u64 = 60;

/// Three replicas that never have enough, so that only failures decide who gets requests.
fn script() -> Script {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding.into(),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    Script::new(config, 3)
}

/// Sends a request to a replica, and lets it end so.
fn end_at(script: &mut Script, id: u64, replica: u32, end: End, served_by: ServedBy) {
    let mut request = request(id, id, &[id]);
    request.subset = Some([ReplicaId(replica)].into());
    script.arrive(request);
    assert_eq!(script.sent(), [(id, replica)]);
    script.sleep(500);
    script.probe_all(0..3);
    script.finish_as(id, end, served_by, None);
}

#[test]
fn a_route_with_a_short_timeout_closes_no_replica() {
    for served_by in [ServedBy::Unreported, ServedBy::Replica(ReplicaId(2))] {
        let mut script = script();
        for id in 0..MANY {
            let replica = (id % 2) as u32;
            end_at(&mut script, id, replica, End::TimedOut, served_by);
        }
        for replica in 0..3 {
            let availability = script.availability(replica);
            assert_eq!(availability, Availability::Available, "{served_by:?}");
        }
        assert_eq!(script.stats().counters.timed_out, MANY);
    }
}

#[test]
fn a_replica_that_streams_to_another_client_is_not_failing() {
    let mut script = script();
    for id in 0..MANY {
        let mut slow = request(2 * id, id, &[id]);
        slow.subset = Some([ReplicaId(SLOW)].into());
        let other = isotherm_router::Request {
            id: RequestId(2 * id + 1),
            ..slow.clone()
        };
        script.arrive(slow);
        script.arrive(other);
        assert_eq!(script.sent().len(), 2);
        script.sleep(500);
        script.probe_all(0..3);
        script.event(Event::Began(RequestId(2 * id + 1)));
        script.finish_as(2 * id, End::TimedOut, ServedBy::Unreported, None);
        script.event(Event::Aborted(RequestId(2 * id + 1)));
        end_at(
            &mut script,
            1_000 + id,
            1,
            End::Answered,
            ServedBy::Unreported,
        );
    }
    assert_eq!(script.availability(SLOW), Availability::Available);
}

#[test]
fn a_replica_that_lets_all_time_out_beside_peers_that_answer_is_failing() {
    let mut script = script();
    for id in 0..5 {
        end_at(
            &mut script,
            100 + id,
            1,
            End::Answered,
            ServedBy::Unreported,
        );
        end_at(&mut script, id, SLOW, End::TimedOut, ServedBy::Unreported);
    }
    assert_eq!(script.availability(SLOW), Availability::Failing);
    assert_eq!(script.availability(1), Availability::Available);
}

#[test]
fn a_route_that_overrides_the_choice_and_a_local_response_close_no_replica() {
    for (end, served_by) in [
        (End::Answered, ServedBy::Overridden(None)),
        (End::Failed, ServedBy::Overridden(Some(ReplicaId(2)))),
        (End::Unsent, ServedBy::Unreported),
    ] {
        let mut script = script();
        for id in 0..4 {
            end_at(&mut script, id, SLOW, end, served_by);
        }
        end_at(&mut script, 4, SLOW, end, served_by);
        let availability = script.availability(SLOW);
        assert_eq!(availability, Availability::Available, "{end:?}");
    }
}
