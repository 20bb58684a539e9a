//! Names of the tenants that a pool's router tracks. The router knows hashes only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use isotherm_router::{Router, TenantId, TenantStatus};

use super::request::RouteRequest;

/// Label of the requests without a tenant. No tenant has a name with a space.
const COMMON: &str = "common tenant";
/// Label of all tenants that the router does not track.
const OTHERS: &str = "other tenants";
/// Names of tenants that the router tracks no longer, at most, before they are dropped.
const STALE_MAX: usize = 1_000;

/// Figures of one tenant, with its name.
#[derive(Clone, Debug)]
pub(crate) struct NamedTenant {
    pub(crate) name: Arc<str>,
    pub(crate) status: TenantStatus,
}

/// Names by hash.
#[derive(Debug, Default)]
pub(super) struct TenantNames {
    names: HashMap<TenantId, Arc<str>>,
    /// Number of names at which those of forgotten tenants are dropped.
    kept_max: usize,
}

impl TenantNames {
    /// Keeps the name of a request's tenant.
    pub(super) fn note(&mut self, request: &RouteRequest, router: &Router) {
        let Some(name) = &request.tenant else { return };
        let id = request.tenant_id();
        if self.names.contains_key(&id) {
            return;
        }
        if self.names.len() >= self.kept_max {
            let tracked: HashSet<_> = router.tenants().filter_map(|tenant| tenant.id).collect();
            self.names.retain(|known, _| tracked.contains(known));
            self.kept_max = self.names.len() + STALE_MAX;
        }
        self.names.insert(id, Arc::clone(name));
    }

    /// Figures of every tenant, with its name.
    pub(super) fn named(&self, router: &Router) -> Vec<NamedTenant> {
        let named = router.tenants().map(|status| NamedTenant {
            name: match status.id {
                None => OTHERS.into(),
                Some(id) if id == TenantId::default() => COMMON.into(),
                Some(id) => self.name_of(id),
            },
            status: status.clone(),
        });
        named.collect()
    }

    /// The name of a tenant; its hash, should the name be missing.
    fn name_of(&self, id: TenantId) -> Arc<str> {
        let name = self.names.get(&id).cloned();
        name.unwrap_or_else(|| format!("{:016x}", id.0).into())
    }
}
