//! Drives a sans-I/O core: one lock, one timer, and effects that leave the core in the order of its decisions.
//!
//! A core never reads a clock or a socket. A [`Driver`] locks it, passes in the time, and takes its effects out under
//! the same lock. [`run_timer`] calls the core again when its next timeout is due.
//!
//! A core that panicked may be half changed, and would decide on that for as long as it lives. So a panic in a step ends the
//! process: Envoys go on by ring hash, and a supervisor starts the service again. Rejected: to go on and count (each later
//! decision is in doubt), and to poison the lock (every request would then fail).
//!
//! One lock guards all of a core. Steps are short, and finer locks would only add possible orders of events. The
//! driver reads the clock under the lock, so that the time a core sees never goes back.

use std::sync::{Arc, Weak};

use isotherm_router::Time;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use crate::clock::Clock;
use crate::tasks::AbortOnPanic;

/// A core with its lock, its clock and its timer.
#[derive(Debug)]
pub(crate) struct DrivenCore<C> {
    core: Mutex<C>,
    clock: Clock,
    /// Notified when the next timeout of the core moves forward, and when the core is dropped.
    rescheduled: Arc<Notify>,
}

impl<C> DrivenCore<C> {
    pub(crate) fn new(core: C, clock: Clock) -> Self {
        Self {
            core: Mutex::new(core),
            clock,
            rescheduled: Arc::new(Notify::new()),
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Locks the core, to read it. Events go through [`Driver::drive`], which also takes the effects.
    pub(crate) fn lock(&self) -> MutexGuard<'_, C> {
        self.core.lock()
    }
}

impl<C> Drop for DrivenCore<C> {
    fn drop(&mut self) {
        // Wakes the timer, which then sees that its driver is gone.
        self.rescheduled.notify_one();
    }
}

/// Feeds events to one core and carries out its effects.
pub(crate) trait Driver {
    /// The state behind the lock.
    type Core;
    /// Work that waits until the lock is released.
    type Deferred;

    fn driven_core(&self) -> &DrivenCore<Self::Core>;

    /// Returns the time of the core's next timeout.
    fn poll_timeout(core: &Self::Core) -> Option<Time>;

    /// Passes a timeout to the core.
    fn handle_timeout(core: &mut Self::Core, now: Time);

    /// Takes every effect out of the core, under the lock.
    fn take_effects(&self, core: &mut Self::Core) -> Self::Deferred;

    /// Does the rest of the work, after the lock is released.
    fn finish(&self, deferred: Self::Deferred);

    /// Runs one step of the core, carries out its effects, and wakes the timer when the next timeout moved forward.
    fn drive<T>(&self, step: impl FnOnce(&mut Self::Core, Time) -> T) -> T {
        let driven = self.driven_core();
        let mut core = driven.lock();
        let abort = AbortOnPanic("core");
        let before = Self::poll_timeout(&core);
        let result = step(&mut core, driven.clock.now());
        let deferred = self.take_effects(&mut core);
        let after = Self::poll_timeout(&core);
        drop(abort);
        drop(core);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            driven.rescheduled.notify_one();
        }
        self.finish(deferred);
        result
    }
}

/// Calls the core at each of its timeouts until the driver is gone. Does not keep the driver alive.
pub(crate) async fn run_timer<D: Driver>(driver: Weak<D>) {
    let rescheduled = driver
        .upgrade()
        .map(|it| Arc::clone(&it.driven_core().rescheduled));
    let Some(rescheduled) = rescheduled else {
        return;
    };
    while let Some(strong) = driver.upgrade() {
        let due = D::poll_timeout(&strong.driven_core().lock());
        let due = due.and_then(|time| strong.driven_core().clock.instant_of(time));
        drop(strong);
        let timeout = async {
            match due {
                Some(due) => sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = timeout => if let Some(driver) = driver.upgrade() { driver.drive(D::handle_timeout) },
            () = rescheduled.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;

    const SIGABRT: i32 = 6;

    #[derive(Debug)]
    struct Broken(DrivenCore<()>);

    impl Driver for Broken {
        type Core = ();
        type Deferred = ();

        fn driven_core(&self) -> &DrivenCore<()> {
            &self.0
        }

        fn poll_timeout(_: &()) -> Option<Time> {
            None
        }

        fn handle_timeout(_: &mut (), _: Time) {}

        fn take_effects(&self, _: &mut ()) {}

        fn finish(&self, _: ()) {}
    }

    #[test]
    fn a_panic_in_a_core_ends_the_process() {
        let program = std::env::current_exe().unwrap();
        let test = ["--exact", "sans_io::tests::a_core_panics", "--ignored"];
        let output = Command::new(program).args(test).output().unwrap();
        assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    }

    #[test]
    #[ignore = "ends the process: the test above starts it in one of its own"]
    fn a_core_panics() {
        let broken = Broken(DrivenCore::new((), Clock::start()));
        broken.drive(|(), _| panic!("as a defect would"));
    }
}
