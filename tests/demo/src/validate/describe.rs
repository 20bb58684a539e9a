//! The circumstances, for the report.

use super::options::Plan;
use crate::report::Described;

impl Plan {
    pub(super) fn describe(&self) -> Described {
        let last = self.workload.sessions.last();
        let span_s = last.map_or(0.0, |session| session.starts.as_secs_f64()) * self.speed;
        Described {
            name: "validation".into(),
            description: format!(
                "{} requests of {}, {span_s:.0} s of it replayed {} times as fast",
                self.requests(),
                self.source,
                self.speed,
            ),
            requests: self.requests(),
            replicas: usize::from(self.replicas),
            engine: self.engine.name().into(),
            speed: self.speed,
            seed: self.seed,
        }
    }
}
