//! Clients that claim prompts which no engine computes: what others use stays as it is.
use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{End, Event, Push, Request, RequestId, RouterConfig, ServedBy, TenantId};

const REPLICAS: u32 = 4;
const VICTIMS: u64 = 8;
/// Blocks of a victim's prompt, and of a claim.
const VICTIM_BLOCKS: u64 = 64;
const CLAIM_BLOCKS: u64 = 4;
/// Tokens that an engine counts for a claim of [`CLAIM_BLOCKS`] which it does not render.
const TINY_TOKENS: u32 = 12;

struct Pool {
    script: Script,
    next: u64,
    /// The tenant that sends.
    tenant: TenantId,
}

impl Pool {
    /// A pool whose replicas hold the victims' prompts.
    fn with_victims() -> Self {
        let config = RouterConfig {
            policy: PolicyName::PrefixTree.into(),
            push: Push::Blind,
            ..RouterConfig::default()
        };
        let script = Script::new(config, REPLICAS);
        let mut pool = Self {
            script,
            next: 0,
            tenant: TenantId::default(),
        };
        for victim in 0..VICTIMS {
            let id = pool.send(&victim_blocks(victim));
            let tokens = u32::try_from(VICTIM_BLOCKS * 64).unwrap();
            pool.finish(id, tokens, 0);
        }
        assert!((pool.matched_share() - 1.0).abs() < 1e-9);
        pool
    }

    fn send(&mut self, blocks: &[u64]) -> u64 {
        self.send_from(blocks, true)
    }

    /// Sends a request from a gateway that shows when the response begins, or from one that does not.
    fn send_from(&mut self, blocks: &[u64], tells_start: bool) -> u64 {
        let id = self.next;
        self.next += 1;
        self.script.sleep(5);
        self.script.arrive(Request {
            tells_start,
            tenant: self.tenant,
            ..request(id, id, blocks)
        });
        self.script.effects();
        id
    }

    fn finish(&mut self, id: u64, prompt: u32, cached: u32) {
        self.script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: Some(20_000),
            prompt_tokens: Some(prompt),
            cached_tokens: Some(cached),
            completion_tokens: Some(1),
        });
    }

    /// The mean match of the victims' prompts.
    fn matched_share(&self) -> f64 {
        let share = |victim| {
            let request = request(u64::MAX - victim, victim, &victim_blocks(victim));
            let explained = self.script.router.explain(self.script.now, &request);
            let matched = explained.candidates.iter().map(|one| one.matched_bytes);
            let total = f64::from(request.fingerprint.total_bytes());
            f64::from(matched.max().unwrap()) / total
        };
        (0..VICTIMS).map(share).sum::<f64>() / 8.0
    }

    fn held_bytes(&self) -> u64 {
        let all = self.script.router.replicas(self.script.now);
        all.map(|status| status.prefix_bytes).sum()
    }
}

fn victim_blocks(victim: u64) -> Vec<u64> {
    (0..VICTIM_BLOCKS)
        .map(|block| 1_000 * (victim + 1) + block)
        .collect()
}

fn claim(number: u64) -> Vec<u64> {
    (0..CLAIM_BLOCKS)
        .map(|block| 1_000_000 + 100 * number + block)
        .collect()
}

/// Asserts that the victims keep what they had.
fn assert_nothing_is_lost(pool: &Pool, attack: &str) {
    let left = pool.matched_share();
    assert!(left >= 0.99, "{attack}: {left} is left");
}

#[test]
fn claims_that_the_engine_did_not_render_change_no_other_match() {
    for requests in [60, 1_000] {
        let mut pool = Pool::with_victims();
        let length = pool.script.router.estimates().bytes_per_token;
        let held = pool.held_bytes();
        for number in 0..requests {
            let id = pool.send(&claim(number / 2));
            pool.finish(id, TINY_TOKENS, 0);
        }
        assert_nothing_is_lost(&pool, "a doubled or truncated prompt");
        let after = pool.script.router.estimates().bytes_per_token;
        assert!((after - length).abs() < 1e-9, "{length} {after}");
        assert_eq!(pool.held_bytes(), held, "no claim is left");
        let counters = pool.script.stats().counters;
        assert_eq!(counters.implausible_usage, requests);
        assert_eq!(counters.false_hits, 0);
    }
}

#[test]
fn false_hits_remove_no_entry_of_another_tenant() {
    for (tenant, is_attacked) in [(TenantId::default(), true), (TenantId(7), false)] {
        let mut pool = Pool::with_victims();
        pool.tenant = tenant;
        let tokens = u32::try_from(CLAIM_BLOCKS * 64).unwrap();
        for number in 0..1_000 {
            let id = pool.send(&claim(number / 2));
            pool.finish(id, tokens, 0);
        }
        assert!(pool.script.stats().counters.false_hits > 400);
        let left = pool.matched_share();
        assert_eq!(left < 0.99, is_attacked, "{tenant:?}: {left} is left");
    }
}

#[test]
fn claims_of_aborted_requests_are_taken_back() {
    for requests in [60, 1_000] {
        let mut pool = Pool::with_victims();
        let held = pool.held_bytes();
        for number in 0..requests {
            let id = pool.send(&claim(number / 2));
            pool.script.abort(id);
        }
        assert_eq!(pool.held_bytes(), held);
        assert_nothing_is_lost(&pool, "an abort right after the dispatch");
    }
}

#[test]
fn a_gateway_that_shows_no_responses_keeps_its_claims() {
    let mut pool = Pool::with_victims();
    let held = pool.held_bytes();
    let id = pool.send_from(&claim(0), false);
    pool.script.abort(id);
    assert!(pool.held_bytes() > held);
}

#[test]
fn a_claim_that_several_aborted_requests_share_is_taken_back_in_any_order() {
    let whole: Vec<u64> = (0..12).collect();
    let other: Vec<u64> = (0..6).chain(100..104).collect();
    let prompts = [
        &whole[..8],
        &whole[..8],
        &whole[..],
        &other[..],
        &whole[..6],
    ];
    for order in permutations(prompts.len()) {
        let mut pool = Pool::with_victims();
        let held = pool.held_bytes();
        let ids = prompts.map(|blocks| pool.send(blocks));
        for index in &order {
            pool.script.abort(ids[*index]);
        }
        assert_eq!(pool.held_bytes(), held, "{order:?}");
    }
}

/// Every order of the numbers below `count`.
fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for last in 0..count {
        let longer = |order: &Vec<usize>| {
            let places = 0..=order.len();
            let order = order.clone();
            places.map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, last);
                longer
            })
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn a_claim_that_another_request_confirms_stays() {
    for confirms_first in [true, false] {
        let mut pool = Pool::with_victims();
        let held = pool.held_bytes();
        let [aborted, other] = [pool.send(&claim(0)), pool.send(&claim(0))];
        if confirms_first {
            pool.script.event(Event::Began(RequestId(other)));
            pool.script.abort(aborted);
        } else {
            pool.script.abort(aborted);
            pool.script.event(Event::Began(RequestId(other)));
        }
        pool.script.abort(other);
        assert_eq!(pool.held_bytes(), held + 256 * CLAIM_BLOCKS);
    }
}

#[test]
fn an_abort_behind_the_first_byte_keeps_the_prompt() {
    let mut pool = Pool::with_victims();
    let held = pool.held_bytes();
    let id = pool.send(&claim(0));
    pool.script.event(Event::Began(RequestId(id)));
    pool.script.abort(id);
    assert_eq!(pool.held_bytes(), held + 256 * CLAIM_BLOCKS);
}

#[test]
fn false_hits_remove_no_more_than_the_engine_computed() {
    let mut pool = Pool::with_victims();
    let held = pool.held_bytes();
    let mut computed = 0;
    for number in 0..60 {
        // The engine computes 100 tokens for 1,024 bytes, in a way that no bound shows, and finds none of them again.
        let id = pool.send(&claim(number / 6));
        pool.finish(id, 100, 0);
        computed += 256 * CLAIM_BLOCKS;
    }
    let false_hits = pool.script.stats().counters.false_hits;
    assert!(false_hits >= 15, "{false_hits}");
    let left = pool.matched_share() * f64::from(u32::try_from(held).unwrap());
    let lost = f64::from(u32::try_from(held).unwrap()) - left;
    assert!(
        lost <= f64::from(u32::try_from(computed).unwrap()),
        "{lost} of {computed}"
    );
    assert!(
        left > 0.4 * f64::from(u32::try_from(held).unwrap()),
        "{left}"
    );
}

#[test]
fn false_hits_in_a_row_mean_an_empty_cache_only_behind_a_failure() {
    let after = |has_failed: bool| {
        let mut pool = Pool::with_victims();
        if has_failed {
            for replica in 0..REPLICAS {
                pool.script.probe_fails(replica);
                pool.script.probe(replica, 0);
            }
        }
        for number in 0..40 {
            let id = pool.send(&claim(number % 4));
            pool.finish(id, 256, 0);
        }
        pool.matched_share()
    };
    assert!(after(true) < 0.01, "{}", after(true));
    assert!(after(false) > 0.5, "{}", after(false));
}
