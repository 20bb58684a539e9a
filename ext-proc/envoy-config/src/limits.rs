//! Times that `add` removes and `check` reports.

/// The longest wait in the service's queue by default, in milliseconds. A shorter time of a route ends requests that wait.
pub(crate) const QUEUE_WAIT_MS: f64 = 30_000.0;

/// The members of a retry policy that bound one attempt: each takes a slow replica for a broken one.
pub(crate) const ATTEMPT_TIMES: [&str; 2] = ["per_try_timeout", "per_try_idle_timeout"];
