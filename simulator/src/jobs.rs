//! Many runs on a few threads, with results in the order of the jobs: a report does not depend on the threads.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Does `work` on every item; calls `done` with the number of finished items after each.
pub fn map<I: Sync, T: Send>(
    threads: usize,
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
    done: impl Fn(usize) + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let threads = threads.clamp(1, items.len().max(1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let result = work(item);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((index, result));
                    done(results.len());
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let items: Vec<u64> = (0..50).collect();
        let slow_first = |item: &u64| {
            if *item == 0 {
                thread::sleep(core::time::Duration::from_millis(20));
            }
            item * 2
        };
        let told = AtomicUsize::new(0);
        for threads in [1, 3, 100] {
            let doubled = map(threads, &items, slow_first, |_| {
                told.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(
                doubled,
                items.iter().map(|item| item * 2).collect::<Vec<_>>()
            );
        }
        assert_eq!(told.into_inner(), 150);
    }
}
