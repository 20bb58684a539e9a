//! Threads for probes; each replica stays on one thread.
//!
//! A probe is a timer, a short request and a page, and waits in between. On a runtime whose threads share their work nearly
//! every one of these steps wakes another thread that sleeps: that was three quarters of what a probe cost, and while
//! requests are few and long, probes are most of what the service does. A thread that keeps its replicas to itself wakes nobody.

use std::future::Future;
use std::io;
use std::num::NonZero;
use std::thread;

use isotherm_router::ReplicaId;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The most threads: thousands of replicas, asked ten times a second each.
const THREADS_MAX: usize = 8;

/// The threads. Dropping this ends them and their tasks.
#[derive(Debug)]
pub(super) struct Threads(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    handle: Handle,
    _life: oneshot::Sender<()>,
}

impl Threads {
    /// Starts a thread for every second processor; the other processors serve requests.
    pub(super) fn start() -> io::Result<Self> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let count = (processors / 2).clamp(1, THREADS_MAX);
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Spawns the task of a replica on the replica's thread.
    pub(super) fn spawn<F>(&self, replica: ReplicaId, work: F) -> JoinHandle<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let turn = usize::try_from(replica.0).unwrap_or(0);
        let thread = turn
            .checked_rem(self.0.len())
            .and_then(|index| self.0.get(index));
        match thread {
            Some(thread) => thread.handle.spawn(work),
            None => tokio::spawn(work),
        }
    }
}

fn start(number: usize) -> io::Result<Thread> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (life, ended) = oneshot::channel();
    thread::Builder::new()
        .name(format!("isotherm-probe-{number}"))
        // The sender is only ever dropped.
        .spawn(move || drop(runtime.block_on(ended)))?;
    Ok(Thread {
        handle,
        _life: life,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_replica_has_one_thread_and_what_runs_there_ends_with_the_threads() {
        let threads = Threads::start().unwrap();
        let (told, names) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let told = told.clone();
            threads
                .spawn(ReplicaId(3), async move {
                    told.send(thread::current().name().map(str::to_owned))
                        .unwrap();
                })
                .await
                .unwrap();
        }
        let name = names.recv().unwrap().unwrap();
        assert!(name.starts_with("isotherm-probe-"), "{name}");
        assert_eq!(names.recv().unwrap(), Some(name));

        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let endless = threads.spawn(ReplicaId(4), async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(threads);
        assert!(endless.await.unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}
