//! The pools by the name of their model, as regions know them.

use std::sync::Arc;

use isotherm_regions::PoolReplicas;
use isotherm_router::PeerReport;

use crate::pool::{ANY_MODEL, Pool, PoolTable};

/// Returns the pool with the name or alias `model`. The pool of [`ANY_MODEL`] matches only itself, since its models are unknown
/// to other regions.
pub(super) fn pool_of<'a>(table: &'a PoolTable, model: &str) -> Option<&'a Arc<Pool>> {
    let pool = table.for_model(model)?;
    (model == ANY_MODEL || **pool.name() != *ANY_MODEL).then_some(pool)
}

pub(super) fn reports(table: &PoolTable) -> Vec<(Arc<str>, PeerReport)> {
    let report = |pool: &Arc<Pool>| (Arc::clone(pool.name()), pool.report());
    table.pools().iter().map(report).collect()
}

/// Returns this region's own replicas, in the order of the configuration; `None` while the sources of a pool have not synced,
/// since a record without its replicas would make every region forget them.
pub(super) fn own_pools(table: &PoolTable) -> Option<Vec<PoolReplicas>> {
    let members = |pool: &Arc<Pool>| {
        let members = pool.members();
        let members = members.borrow();
        let own = members
            .iter()
            .filter(|member| member.lease.is_none() && !member.draining)
            // A record has no roles, and a region that leases a prefill replica would send requests to it.
            .filter(|member| member.role.has_requests());
        pool.has_synced().then(|| PoolReplicas {
            model: Arc::clone(pool.name()),
            replicas: own.map(|member| member.addr.to_string().into()).collect(),
        })
    };
    table.pools().iter().map(members).collect()
}
