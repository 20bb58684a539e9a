//! Late choice in pools of all sizes: at the same load for each replica, a large pool finds as much in its caches as a small one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use crate::support::request;
use isotherm_router::{
    Effect, End, Event, Push, ReplicaId, RequestId, Role, Router, RouterConfig, ServedBy, Time,
};

/// Conversations for each replica, which keep it busy nearly all the time.
const CONVERSATIONS: u64 = 10;
/// Requests for each replica in one run.
const REQUESTS: u64 = 60;
/// Requests that a replica takes at a time.
const TAKES: u32 = 4;
/// Blocks that a turn adds, and the longest conversation.
const TURN_BLOCKS: u64 = 12;
const BLOCKS_MAX: u64 = 96;
const BLOCK_TOKENS: f64 = 64.0;
/// Seconds to compute a token, to write an answer, and between two turns on average.
const TOKEN_S: f64 = 0.000_1;
const ANSWER_S: f64 = 1.2;
const PAUSE_S: f64 = 1.0;
/// System prompts that the conversations share, and their blocks.
const SYSTEMS: u64 = 4;
const SYSTEM_BLOCKS: u64 = 6;

/// A conversation: its number and its length in blocks.
#[derive(Clone, Copy, Debug)]
struct Conversation {
    id: u64,
    blocks: u64,
}

impl Conversation {
    fn prompt(self) -> Vec<u64> {
        let system = (0..SYSTEM_BLOCKS).map(|block| (self.id % SYSTEMS) << 8 | block);
        let own = (SYSTEM_BLOCKS..self.blocks).map(|block| (self.id + 1) << 16 | block);
        system.chain(own).collect()
    }
}

/// A pool with its clients, in virtual nanoseconds.
struct Pool {
    router: Router,
    now: u64,
    /// Times at which a conversation sends its next turn, or a request ends.
    agenda: BinaryHeap<Reverse<(u64, u64, bool)>>,
    conversations: Vec<Conversation>,
    next_conversation: u64,
    /// The conversation and the tokens of each request.
    requests: BTreeMap<u64, (usize, f64)>,
    /// When each replica has computed its prompts.
    computed_at: Vec<u64>,
    seed: u64,
    found_tokens: f64,
    prompt_tokens: f64,
}

impl Pool {
    fn new(replicas: u32) -> Self {
        let config = RouterConfig {
            push: Push::Outstanding { max: TAKES },
            ..RouterConfig::default()
        };
        let mut router = Router::new(config, 1);
        for id in 0..replicas {
            let event = Event::Added {
                replica: ReplicaId(id),
                name: format!("10.0.{}.{}:8000", id / 256, id % 256),
                role: Role::Both,
            };
            router.handle(Time::ZERO, event);
        }
        let mut pool = Self {
            router,
            now: 0,
            agenda: BinaryHeap::new(),
            conversations: Vec::new(),
            next_conversation: 0,
            requests: BTreeMap::new(),
            computed_at: vec![0; replicas as usize],
            seed: 1,
            found_tokens: 0.0,
            prompt_tokens: 0.0,
        };
        for at in 0..CONVERSATIONS * u64::from(replicas) {
            let mut begun = pool.begin();
            // Not all of them are as long as each other.
            begun.blocks += TURN_BLOCKS * (at % 7);
            pool.conversations.push(begun);
            let pause = pool.pause_ns() + pool.pause_ns();
            pool.agenda.push(Reverse((pause, at, true)));
        }
        pool
    }

    fn begin(&mut self) -> Conversation {
        self.next_conversation += 1;
        Conversation {
            id: self.next_conversation,
            blocks: SYSTEM_BLOCKS + TURN_BLOCKS,
        }
    }

    /// A random pause between two turns.
    fn pause_ns(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let unit = (self.seed >> 11) as f64 / (1_u64 << 53) as f64;
        (-PAUSE_S * (1.0 - unit).ln() * 1e9) as u64
    }

    fn handle(&mut self, event: Event) {
        let time = |now| Time::ZERO.after(Duration::from_nanos(now));
        self.router.handle(time(self.now), event);
        while self
            .router
            .poll_timeout()
            .is_some_and(|at| at <= time(self.now))
        {
            self.router.handle_timeout(time(self.now));
        }
        while let Some(effect) = self.router.poll_effect() {
            let Effect::Dispatch(RequestId(id), decision) = effect else {
                panic!("every request is served here: {effect:?}");
            };
            let tokens = self.requests[&id].1;
            let found = f64::from(decision.matched_tokens);
            self.found_tokens += found;
            self.prompt_tokens += tokens;
            let computed_at = &mut self.computed_at[decision.replica.0 as usize];
            let computes_ns = ((tokens - found) * TOKEN_S * 1e9) as u64;
            *computed_at = (*computed_at).max(self.now) + computes_ns;
            let ends_at = *computed_at + (ANSWER_S * 1e9) as u64;
            self.agenda.push(Reverse((ends_at, id, false)));
        }
    }

    fn ask(&mut self, at: usize, id: u64) {
        let prompt = self.conversations[at].prompt();
        let tokens = prompt.len() as f64 * BLOCK_TOKENS;
        self.requests.insert(id, (at, tokens));
        self.handle(Event::Arrived(request(
            id,
            self.conversations[at].id,
            &prompt,
        )));
    }

    fn end(&mut self, id: u64) {
        let (at, tokens) = self.requests.remove(&id).unwrap();
        self.conversations[at].blocks += TURN_BLOCKS;
        if self.conversations[at].blocks > BLOCKS_MAX {
            self.conversations[at] = self.begin();
        }
        let pause = self.pause_ns();
        self.agenda
            .push(Reverse((self.now + pause, at as u64, true)));
        self.handle(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: Some(tokens as u32),
            cached_tokens: None,
            completion_tokens: None,
        });
    }

    /// The share of the prompt tokens that caches hold, once the conversations are on their way.
    fn hit_ratio(mut self) -> f64 {
        let all = REQUESTS * self.computed_at.len() as u64;
        let mut id = 0;
        while id < all {
            let Reverse((at_ns, what, asks)) = self.agenda.pop().unwrap();
            self.now = at_ns;
            if asks {
                self.ask(what as usize, id);
                id += 1;
            } else {
                self.end(what);
            }
            if id == all / 3 {
                (self.found_tokens, self.prompt_tokens) = (0.0, 0.0);
            }
        }
        self.found_tokens / self.prompt_tokens
    }
}

#[test]
fn late_choice_holds_in_pools_of_128_and_512_replicas() {
    let small = Pool::new(8).hit_ratio();
    assert!((0.5..0.99).contains(&small), "{small}");
    for replicas in [128, 512] {
        let large = Pool::new(replicas).hit_ratio();
        assert!(
            large >= 0.95 * small,
            "{replicas} replicas: {large}, 8: {small}"
        );
    }
}
