//! State that outlives a restart: history, numbers, measured start-up times, drained replicas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::pool::PoolPlanner;

/// State of a planner. Its form is private; it goes to a file and back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannerState {
    pools: BTreeMap<String, PoolPlanner>,
}

impl PlannerState {
    pub(crate) fn of(pools: &BTreeMap<String, PoolPlanner>) -> Self {
        Self {
            pools: pools.clone(),
        }
    }

    pub(crate) fn into_pools(self) -> BTreeMap<String, PoolPlanner> {
        self.pools
    }
}
