//! News of probes for the log: one line a second for each kind, however many replicas it concerns.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use crate::addresses::Addresses;
use crate::config::Engine;

/// The time for which news are collected.
pub(super) const COLLECTED_FOR: Duration = Duration::from_secs(1);

/// A change that an operator may look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum News {
    /// The metrics page at this path is of this engine.
    Detected(Engine, &'static str),
    Failed,
    AnswersAgain,
    WithoutMetrics,
    SeveralProcesses,
}

/// The news of a pool's replicas since the last line. Engines and their paths bound it.
#[derive(Debug, Default)]
pub(super) struct PoolNews(Mutex<HashMap<News, (Addresses, String)>>);

impl PoolNews {
    /// Adds the news of a replica, with the error behind it, if there is one.
    pub(super) fn tell(&self, news: News, replica: SocketAddr, error: impl ToString) {
        let mut collected = self.lock();
        let (replicas, first) = collected.entry(news).or_default();
        if replicas.is_empty() {
            *first = error.to_string();
        }
        replicas.add(replica);
    }

    /// Writes the lines.
    pub(super) fn log(&self, pool: &str) {
        let collected = std::mem::take(&mut *self.lock());
        for (news, (replicas, error)) in collected {
            match news {
                News::Detected(engine, path) => {
                    tracing::info!(%pool, %replicas, %engine, path, "detected the engine");
                }
                News::Failed => tracing::warn!(%pool, %replicas, error, "probe failed"),
                News::AnswersAgain => tracing::info!(%pool, %replicas, "replica answers again"),
                News::WithoutMetrics => tracing::warn!(
                    %pool, %replicas, error,
                    "replica has no usable metrics: it gets requests by the number of its outstanding ones"
                ),
                News::SeveralProcesses => tracing::warn!(
                    %pool, %replicas,
                    "several processes answer at the replica's address in turn: their counters tell nothing; give each \
                     process an address of its own (docs/engines.md)"
                ),
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<News, (Addresses, String)>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_fail_together_are_one_line_with_the_first_error() {
        let news = PoolNews::default();
        for port in 1..=1_000 {
            news.tell(News::Failed, ([10, 0, 0, 1], port).into(), port);
        }
        news.tell(News::AnswersAgain, ([10, 0, 0, 2], 1).into(), "");
        let collected = news.lock().clone();
        assert_eq!(collected.len(), 2);
        let (replicas, error) = &collected[&News::Failed];
        assert!(replicas.to_string().ends_with("and 997 more"), "{replicas}");
        assert_eq!(error, "1");
        news.log("m");
        assert!(news.lock().is_empty());
    }
}
