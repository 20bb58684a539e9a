//! Threads for probes; each replica stays on one of them.
//!
//! A probe is a timer, a short request and a response, with waits in between. On a work-stealing runtime nearly every one
//! of these steps wakes a sleeping thread, and those wake-ups are most of a probe's cost. While requests are few and long,
//! probes are most of the service's work. A single-threaded runtime wakes no other thread.

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::thread;

use isotherm_router::ReplicaId;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::stretch::Stretch;
use crate::tasks::vital;

/// The most threads: enough for thousands of replicas with ten probes a second each.
const THREADS_MAX: usize = 8;

/// The threads. Dropping them ends them, with the tasks that run on them.
#[derive(Debug)]
pub(super) struct ProbeThreads(Vec<ProbeThread>);

#[derive(Debug)]
struct ProbeThread {
    handle: Handle,
    stretch: Stretch,
    _stop: oneshot::Sender<()>,
}

impl ProbeThreads {
    /// Starts half as many threads as there are processors: the others are for requests.
    pub(super) fn start() -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let count = (processors / 2).clamp(1, THREADS_MAX);
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Runs the task of a replica on the replica's thread, with the stretch of that thread.
    pub(super) fn spawn<F>(
        &self,
        replica: ReplicaId,
        task: impl FnOnce(Stretch) -> F,
    ) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = usize::try_from(replica.0).unwrap_or(0);
        let thread = number
            .checked_rem(self.0.len())
            .and_then(|index| self.0.get(index));
        match thread {
            Some(thread) => thread.handle.spawn(task(thread.stretch.clone())),
            None => tokio::spawn(task(Stretch::default())),
        }
    }

    /// The largest factor by which a thread stretches intervals.
    pub(super) fn largest_stretch(&self) -> f64 {
        let factors = self.0.iter().map(|thread| thread.stretch.factor());
        factors.fold(1.0, f64::max)
    }
}

fn start(number: usize) -> io::Result<ProbeThread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel();
    thread::Builder::new()
        .name(format!("isotherm-probe-{number}"))
        // The sender sends nothing; dropping it ends the thread.
        .spawn(move || drop(runtime.block_on(stopped)))?;
    let stretch = Stretch::default();
    drop(handle.spawn(vital(
        "the stretch of probes",
        stretch.clone().follow(number == 0),
    )));
    Ok(ProbeThread {
        handle,
        stretch,
        _stop: stop,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_replica_has_one_thread_and_its_tasks_end_with_the_threads() {
        let threads = ProbeThreads::start().unwrap();
        let (sender, names) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let sender = sender.clone();
            threads
                .spawn(ReplicaId(3), |_| async move {
                    sender
                        .send(thread::current().name().map(str::to_owned))
                        .unwrap();
                })
                .await
                .unwrap();
        }
        let name = names.recv().unwrap().unwrap();
        assert!(name.starts_with("isotherm-probe-"), "{name}");
        assert_eq!(names.recv().unwrap(), Some(name));

        let alive = Arc::new(());
        let guard = Arc::clone(&alive);
        let endless = threads.spawn(ReplicaId(4), |_| async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(endless.await.unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
