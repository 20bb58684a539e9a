//! What Envoy's external processing filter talks to (ext_proc v3).
//!
//! Only request headers and response trailers cross: Envoy is configured to send nothing else, since prompts and
//! answers are none of this service's business once the filter has read them. Should it send more all the same, it
//! gets the answer that lets everything pass.
//!
//! Holding back the answer to the request's headers *is* the queue. Envoy waits a short `message_timeout`, so that a
//! service that hangs is noticed at once; for a request that has to wait the service first extends that time
//! (`override_message_timeout`), then answers when it is decided. The extension must lie within Envoy's
//! `max_message_timeout`, or Envoy ignores it: that has to be longer than the pools' `wait_ms_max` and five seconds.

mod answer;
mod asked;
mod codec;
mod decision;
mod exchange;
mod head;
mod line;
mod openai;
mod origin;
mod place;
mod reply;
mod subset;

use std::sync::Arc;

use tokio::sync::watch;

pub use codec::ExtProc;
pub(crate) use head::Head;
pub use line::Line;
pub(crate) use origin::Listener;
pub(crate) use place::Place;

use crate::driver::Fleet;
use crate::metrics::Metrics;

/// What every exchange uses.
#[derive(Debug)]
pub(crate) struct Context {
    fleet: Arc<Fleet>,
    metrics: Arc<Metrics>,
    /// When the service started, in seconds since 1970: models have an age.
    started_unix_s: u64,
}

impl ExtProc {
    /// The service over a fleet. `started_unix_s` is the age that its models get, in seconds since 1970.
    #[must_use]
    pub fn new(fleet: Arc<Fleet>, metrics: Arc<Metrics>, started_unix_s: u64) -> Self {
        Self::over(Arc::new(Context {
            fleet,
            metrics,
            started_unix_s,
        }))
    }

    /// The same service by lines, which hear of it when `stopping` turns true.
    #[must_use]
    pub fn line(&self, stopping: watch::Receiver<bool>) -> Line {
        Line::over(Arc::clone(self.context()), stopping)
    }
}
