//! SageServe's scaling experiments: engines, strategies, and the figures of a run that is not played request by request.
//!
//! Each strategy runs in two modes. *Paper*: as the published code has it, with the forecast that knows the future, and its thresholds and
//! start-up times. *Honest*: by the text, with a forecast from the past. Isotherm's planner is honest in both.

pub(crate) mod conclusions;
pub(crate) mod engines;
pub(crate) mod figures;
pub(crate) mod scenario;
pub(crate) mod strategies;
