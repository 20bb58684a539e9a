//! Bounds of each tenant.

use std::collections::BTreeMap;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Effect, Load, Push, RejectReason, Request, RouterConfig, TenantId, TenantLimits, TenantStatus,
};

const A: u64 = 1;
const B: u64 = 2;
const UNBOUNDED: TenantLimits = TenantLimits {
    in_flight_max: None,
    share_max: None,
    token_share_max: None,
    weights: BTreeMap::new(),
    tracked_max: 10,
};

fn script(tenants: TenantLimits) -> Script {
    let config = RouterConfig {
        policy: PolicyName::LeastOutstanding.into(),
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
fn a_tenant_never_has_more_in_flight_than_it_may_have() {
    let mut script = script(TenantLimits {
        in_flight_max: Some(2),
        ..UNBOUNDED
    });
    let refused = Some(RejectReason::TenantLimit);
    let answers = [0, 1, 2].map(|id| send(&mut script, A, id));
    assert_eq!(answers, [None, None, refused]);
    assert_eq!(send(&mut script, B, 3), None, "the other tenant waits");
    let a = status(&script, A);
    assert_eq!(
        (a.in_flight, a.waiting, a.requests, a.refused),
        (1, 1, 3, 1)
    );
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
        policy: PolicyName::LeastOutstanding.into(),
        push: Push::Blind,
        tenants: Some(TenantLimits {
            share_max: Some(0.6),
            ..UNBOUNDED
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
        share_max: Some(0.5),
        ..UNBOUNDED
    });
    let refused = Some(RejectReason::TenantLimit);
    assert_eq!(send(&mut script, A, 0), None);
    assert_eq!(send(&mut script, A, 1), None, "it waits");
    assert_eq!(send(&mut script, B, 2), None);
    assert_eq!(send(&mut script, A, 3), refused, "two thirds");
    assert_eq!(send(&mut script, B, 4), None);
    assert_eq!(status(&script, A).refused, 1);
}

#[test]
fn a_tenant_with_long_prompts_gets_no_more_than_its_share_of_the_tokens() {
    let mut script = script(TenantLimits {
        token_share_max: Some(0.5),
        ..UNBOUNDED
    });
    let mut send = |tenant, id, prompt_tokens, output_tokens_max| {
        let request = Request {
            prompt_tokens,
            output_tokens_max: Some(output_tokens_max),
            ..of(tenant, id)
        };
        script.arrive(request);
        let effects = script.effects();
        let mut effects = effects.into_iter();
        let is_refused = effects.any(|effect| matches!(effect, Effect::Reject { .. }));
        (is_refused, status(&script, tenant).tokens)
    };
    assert_eq!(send(A, 0, 10_000, 10), (false, 10_010));
    assert_eq!(send(B, 1, 100, 10), (false, 110));
    let unread = (10_010 + 110) / 2;
    assert_eq!(send(B, 2, 0, 10), (false, 110 + unread), "unread: the mean");
    assert_eq!(send(A, 3, 1, 1), (true, 10_010), "two thirds of the tokens");
}
