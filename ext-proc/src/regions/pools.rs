//! The pools, as regions speak of them: by the name of the model.

use std::sync::Arc;

use isotherm_regions::PoolReplicas;
use isotherm_router::PeerReport;

use crate::pool::{ANY_MODEL, Pool, PoolTable};

/// The pool that a region means by `model`: the one of that name, or of which it is an alias. The pool of every other
/// model stands only for its like: its replicas serve who knows what.
pub(super) fn pool_of<'a>(table: &'a PoolTable, model: &str) -> Option<&'a Arc<Pool>> {
    let pool = table.for_model(model)?;
    (model == ANY_MODEL || **pool.name() != *ANY_MODEL).then_some(pool)
}

/// What each pool says of itself.
pub(super) fn reports(table: &PoolTable) -> Vec<(Arc<str>, PeerReport)> {
    let report = |pool: &Arc<Pool>| (Arc::clone(pool.name()), pool.report());
    table.pools().iter().map(report).collect()
}

/// The replicas that are this region's own, in the order of the configuration; `None` while a pool waits for its sources
/// to say who its replicas are, since a record without them would make every region forget them.
pub(super) fn own_members(table: &PoolTable) -> Option<Vec<PoolReplicas>> {
    let members = |pool: &Arc<Pool>| {
        let members = pool.members();
        let members = members.borrow();
        let own = members
            .iter()
            .filter(|member| member.adopted_from.is_none() && !member.draining);
        pool.has_synced().then(|| PoolReplicas {
            model: Arc::clone(pool.name()),
            replicas: own.map(|member| member.addr.to_string().into()).collect(),
        })
    };
    table.pools().iter().map(members).collect()
}
