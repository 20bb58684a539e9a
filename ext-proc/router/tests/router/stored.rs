//! Stored responses: a request that continues one goes to the replica that has it.

use crate::support::home::{any, full, roomy, taken};
use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, Event, Push, ReplicaId, Request, RequestId, ResponseKey, RouterConfig, ServedBy, TenantId,
};

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);

/// Replicas that take one request each, in turns.
fn script(replicas: u32) -> Script {
    let config = RouterConfig {
        policy: PolicyName::RoundRobin.into(),
        push: Push::Outstanding { max: 1 },
        ..RouterConfig::default()
    };
    Script::new(config, replicas)
}

/// A request of a tenant that continues a response.
fn continuing(tenant: TenantId, id: u64, response: u64) -> Request {
    Request {
        tenant,
        previous_response: Some(ResponseKey(response)),
        ..request(id, id, &[id])
    }
}

fn store(script: &mut Script, id: u64, served_by: ServedBy, response: u64) {
    let response = ResponseKey(response);
    script.event(Event::Stored(RequestId(id), served_by, response));
}

/// Serves a request of a tenant whose response is stored. Returns its replica.
fn stored(script: &mut Script, tenant: TenantId, id: u64, response: u64) -> u32 {
    script.arrive(Request {
        tenant,
        ..request(id, id, &[id])
    });
    let sent = script.sent();
    store(script, id, ServedBy::Unreported, response);
    script.finish(id);
    sent[0].1
}

/// The replica of a request that is served at once.
fn serve(script: &mut Script, request: Request) -> u32 {
    let id = request.id.0;
    script.arrive(request);
    let sent = script.sent();
    script.finish(id);
    assert_eq!(sent[0].0, id);
    sent[0].1
}

#[test]
fn a_request_goes_to_the_replica_that_has_its_response() {
    let mut script = script(3);
    let holder = stored(&mut script, A, 1, 77);
    for id in 2..8 {
        assert_eq!(serve(&mut script, continuing(A, id, 77)), holder);
    }
}

#[test]
fn a_request_waits_for_the_full_replica_that_has_its_response() {
    let mut script = script(2);
    let holder = stored(&mut script, A, 1, 77);
    script.arrive(continuing(A, 2, 77));
    script.arrive(continuing(A, 3, 77));
    assert_eq!(script.sent(), [(2, holder)]);
    script.arrive(request(4, 4, &[4]));
    assert_eq!(script.sent(), [(4, 1 - holder)], "another request does not");
    script.finish(4);
    assert_eq!(script.sent(), []);
    script.finish(2);
    assert_eq!(script.sent(), [(3, holder)]);
}

#[test]
fn no_tenant_reaches_the_response_of_another() {
    let mut script = script(2);
    let holder = stored(&mut script, A, 1, 77);
    let replicas = [2, 3, 4, 5].map(|id| serve(&mut script, continuing(B, id, 77)));
    assert!(replicas.contains(&(1 - holder)), "{replicas:?}");
    assert_eq!(serve(&mut script, continuing(A, 6, 77)), holder);
}

#[test]
fn a_response_of_a_retried_request_is_at_the_replica_that_served_it() {
    let mut script = script(2);
    script.arrive(request(1, 1, &[1]));
    let first = script.sent()[0].1;
    store(&mut script, 1, ServedBy::Unreported, 77);
    let other = ServedBy::Replica(ReplicaId(1 - first));
    store(&mut script, 1, other, 77);
    script.finish_as(1, End::Answered, other, None);
    for id in 2..6 {
        let request = Request {
            tenant: TenantId::default(),
            ..continuing(A, id, 77)
        };
        assert_eq!(serve(&mut script, request), 1 - first);
    }
}

#[test]
fn a_request_whose_replica_is_gone_or_drains_is_routed_as_any_other() {
    for leave in [Event::Removed, Event::Draining] {
        let mut script = script(2);
        let holder = stored(&mut script, A, 1, 77);
        script.event(leave(ReplicaId(holder)));
        assert_eq!(serve(&mut script, continuing(A, 2, 77)), 1 - holder);
    }
}

#[test]
fn a_gateways_restriction_to_other_replicas_comes_first() {
    let mut script = script(2);
    let holder = stored(&mut script, A, 1, 77);
    let request = Request {
        subset: Some([ReplicaId(1 - holder)].into()),
        ..continuing(A, 2, 77)
    };
    assert_eq!(serve(&mut script, request), 1 - holder);
}

#[test]
fn a_request_stays_in_the_region_that_has_its_response() {
    let mut script = full(1);
    store(&mut script, taken(0), ServedBy::Unreported, 77);
    script.peer_says(crate::support::home::EU, roomy());
    let request = |id, response| Request {
        previous_response: Some(ResponseKey(response)),
        ..any(id)
    };
    script.arrive(request(1, 77));
    assert_eq!(script.effects(), []);
    script.arrive(request(2, 78));
    assert_eq!(script.forwarded().len(), 1, "its response is not known");
}
