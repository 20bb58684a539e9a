//! What outlives a restart.

use serde::{Deserialize, Serialize};

/// State of a planner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannerState {}
