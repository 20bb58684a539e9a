//! Bounds of each tenant.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{
    Effect, Load, PolicyName, Push, RejectReason, Request, RouterConfig, TenantId, TenantLimits,
    TenantStatus,
};

const A: u64 = 1;
const B: u64 = 2;

fn script(tenants: TenantLimits) -> Script {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding,
        push: Push::Outstanding { max: 1 },
        tenants: Some(tenants),
        ..RouterConfig::default()
    };
    Script::new(config, 1)
}

fn of(tenant: u64, id: u64) -> Request {
    Request {
        tenant: TenantId(tenant),
        ..request(id, id, &[id, id])
    }
}

/// Sends a request. The reason for which it was rejected, if it was.
fn send(script: &mut Script, tenant: u64, id: u64) -> Option<RejectReason> {
    script.arrive(of(tenant, id));
    script
        .effects()
        .into_iter()
        .find_map(|effect| match effect {
            Effect::Reject { reason, .. } => Some(reason),
            Effect::Dispatch(..) | Effect::Forward(..) | Effect::Hung { .. } => None,
        })
}

fn status(script: &Script, tenant: u64) -> TenantStatus {
    let id = Some(TenantId(tenant));
    let mut all = script.router.tenants();
    let found = all.find(|status| status.id == id);
    found.cloned().unwrap_or_default()
}

#[test]
fn a_tenant_fills_only_its_own_part_of_the_queue() {
    let mut script = script(TenantLimits {
        waiting_max: Some(2),
        in_flight_max: None,
        share_max: None,
        tracked_max: 10,
    });
    let refused = Some(RejectReason::TenantLimit);
    let answers = [0, 1, 2, 3, 4].map(|id| send(&mut script, A, id));
    assert_eq!(answers, [None, None, None, refused, refused]);
    assert_eq!(send(&mut script, B, 5), None, "the other tenant waits");
    let a = status(&script, A);
    assert_eq!(
        (a.in_flight, a.waiting, a.requests, a.refused),
        (1, 2, 5, 2)
    );
    let b = status(&script, B);
    assert_eq!(
        (b.in_flight, b.waiting, b.requests, b.refused),
        (0, 1, 1, 0)
    );

    script.finish(0);
    script.effects();
    assert_eq!(
        send(&mut script, A, 6),
        None,
        "one of its requests left the queue"
    );
}

#[test]
fn a_tenant_never_has_more_in_flight_than_it_may_have() {
    let mut script = script(TenantLimits {
        waiting_max: None,
        in_flight_max: Some(2),
        share_max: None,
        tracked_max: 10,
    });
    let refused = Some(RejectReason::TenantLimit);
    let answers = [0, 1, 2].map(|id| send(&mut script, A, id));
    assert_eq!(answers, [None, None, refused]);
    assert_eq!(send(&mut script, B, 3), None);
    script.abort(1);
    assert_eq!(send(&mut script, A, 4), None);
    for id in [0, 3, 4] {
        script.finish(id);
        script.effects();
    }
    for tenant in [A, B] {
        let status = status(&script, tenant);
        assert_eq!((status.waiting, status.in_flight), (0, 0));
    }
}

#[test]
fn a_tenant_that_bursts_gets_no_more_than_its_share_of_a_busy_pool() {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding,
        push: Push::Blind,
        tenants: Some(TenantLimits {
            waiting_max: None,
            in_flight_max: None,
            share_max: Some(0.6),
            tracked_max: 10,
        }),
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 1);
    let uses = |script: &mut Script, kv_usage| {
        let load = Load {
            kv_usage: Some(kv_usage),
            ..Load::default()
        };
        script.probe_load(0, load);
    };
    let refused = Some(RejectReason::TenantLimit);
    uses(&mut script, 0.49);
    assert_eq!(send(&mut script, B, 0), None);
    let answers = [1, 2].map(|id| send(&mut script, A, id));
    assert_eq!(answers, [None, None], "two thirds of an idle pool");
    uses(&mut script, 0.5);
    assert_eq!(send(&mut script, A, 3), refused);
    assert_eq!(send(&mut script, B, 4), None);
    assert_eq!(send(&mut script, A, 5), None, "it has an equal share");
    script.finish(0);
    script.finish(4);
    script.effects();
    assert_eq!(send(&mut script, A, 6), None, "no other tenant is active");
}

#[test]
fn where_engines_show_no_memory_a_pool_is_busy_while_requests_wait() {
    let mut script = script(TenantLimits {
        waiting_max: None,
        in_flight_max: None,
        share_max: Some(0.5),
        tracked_max: 10,
    });
    let refused = Some(RejectReason::TenantLimit);
    assert_eq!(send(&mut script, A, 0), None);
    assert_eq!(send(&mut script, A, 1), None, "it waits");
    assert_eq!(send(&mut script, B, 2), None);
    assert_eq!(send(&mut script, A, 3), refused, "two thirds");
    assert_eq!(send(&mut script, B, 4), None);
    assert_eq!(status(&script, A).refused, 1);
}
