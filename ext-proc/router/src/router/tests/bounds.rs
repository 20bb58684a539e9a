//! The work of one event in a large pool with a long queue.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const REPLICAS: u32 = 1_000;

/// Counts the requests that it considers. Each waits for the replica of its session.
#[derive(Clone, Debug)]
struct QuestionCounter(Arc<AtomicUsize>);

impl QuestionCounter {
    fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Policy for QuestionCounter {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        self.count();
        SessionAffinity.select_replica(request, view)
    }

    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }
}

struct Pool {
    router: Router,
    questions: Arc<AtomicUsize>,
    now: Time,
    next: u64,
}

impl Pool {
    fn new() -> Self {
        let questions = Arc::new(AtomicUsize::new(0));
        let policy = QuestionCounter(Arc::clone(&questions));
        let mut pool = Self {
            router: pool(REPLICAS, Push::Pending, policy),
            questions,
            now: Time::ZERO,
            next: 0,
        };
        for replica in 0..REPLICAS {
            pool.probe(replica);
        }
        pool
    }

    /// Handles an event, and all that is due at once after it. Returns the most questions of one step.
    fn event(&mut self, event: Event) -> usize {
        self.now = self.now.after(Duration::from_micros(1));
        self.questions.store(0, Ordering::Relaxed);
        self.router.handle(self.now, event);
        let mut most = self.questions.swap(0, Ordering::Relaxed);
        for _ in 0..10_000 {
            if self.router.poll_timeout().is_none_or(|at| at > self.now) {
                return most;
            }
            self.router.handle_timeout(self.now);
            most = most.max(self.questions.swap(0, Ordering::Relaxed));
        }
        panic!("the service does not end");
    }

    fn probe(&mut self, replica: u32) -> usize {
        let replica = ReplicaId(replica);
        let (load, sent) = (Load::default(), self.now);
        self.event(Event::Probed {
            replica,
            load,
            sent,
        })
    }

    fn arrive(&mut self, session: u64) -> usize {
        self.next += 1;
        self.event(Event::Arrived(request(self.next, session)))
    }

    fn waiting(&self) -> usize {
        self.router.stats(self.now).queue_length
    }
}

#[test]
fn a_probe_of_the_only_idle_replica_offers_no_other_one() {
    let mut pool = Pool::new();
    for session in 0..u64::from(REPLICAS) - 1 {
        pool.arrive(session);
    }
    // The first replica was sent enough, and a request waits for it.
    for _ in 0..8 {
        pool.arrive(0);
    }
    assert_eq!(pool.waiting(), 1);
    let questions = pool.probe(REPLICAS - 1);
    assert!(questions <= 1 + 16, "{questions}");
}

#[test]
fn a_freed_replica_asks_no_request_that_waits_for_another_one_before_the_review() {
    let mut pool = Pool::new();
    for session in 0..u64::from(REPLICAS) - 1 {
        for _ in 0..8 {
            pool.arrive(session);
        }
    }
    let last = u64::from(REPLICAS) - 1;
    for session in 0..60 {
        pool.arrive(session);
    }
    assert_eq!(pool.waiting(), 60);
    pool.now = pool.now.after(Duration::from_millis(20));
    let questions = pool.probe(REPLICAS - 1);
    assert_eq!((questions, pool.arrive(last)), (0, 1));
    pool.now = pool.now.after(Duration::from_millis(50));
    let questions = pool.probe(REPLICAS - 1);
    assert_eq!((questions, pool.waiting()), (60, 60));
}
