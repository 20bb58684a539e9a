//! Learning from engines that tell little, and from ones that tell wrong.
use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, EngineCounters, Event, Load, Push, ReplicaId, RequestId, RouterConfig, ServedBy, Signals,
    Source, Total,
};

/// An engine that computes a prompt token in 0.5 ms behind 50 ms, and writes one in 30 ms.
const TOKEN_S: f64 = 0.000_5;
const FIRST_S: f64 = 0.05;
const OUTPUT_S: f64 = 0.03;

/// Parts of an answer that an engine reports.
#[derive(Clone, Copy, Default)]
struct ReportedParts {
    ttft: bool,
    prompt: bool,
    cached: bool,
    completion: bool,
    counters: bool,
}

fn blind() -> RouterConfig {
    RouterConfig {
        push: Push::Blind,
        ..RouterConfig::default()
    }
}

fn millis(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_millis()).unwrap()
}

/// One replica, and one request at a time.
struct Engine {
    script: Script,
    counters: EngineCounters,
    /// Counters of another process, which answers every second probe.
    other: Option<EngineCounters>,
    /// The shortest answer, in tokens.
    answer: u64,
    next: u64,
}

impl Engine {
    fn new() -> Self {
        let total = Some(Total::default());
        Self {
            script: Script::new(blind(), 1),
            counters: EngineCounters {
                prompt_tokens: Some(0.0),
                generation_tokens: Some(0.0),
                cache_queries: Some(0.0),
                cache_hits: Some(0.0),
                prefill: total,
                decode: total,
                ttft: total,
                ..EngineCounters::default()
            },
            other: None,
            answer: 20,
            next: 0,
        }
    }

    /// Requests without common prefixes, of which the engine tells this. A token has `bytes` bytes.
    fn serve(&mut self, requests: u64, bytes: f64, told: ReportedParts) {
        for _ in 0..requests {
            let (id, blocks) = (self.next, 4 + self.next * 7 % 30);
            self.next += 1;
            let blocks: Vec<u64> = (0..blocks).map(|block| 100 * id + block).collect();
            let request = request(id, id, &blocks);
            let tokens = f64::from(request.fingerprint.total_bytes()) / bytes;
            let output = self.answer + id % 60;
            self.script.arrive(request);
            self.script.effects();
            let ttft_s = FIRST_S + TOKEN_S * tokens;
            let writing_s = OUTPUT_S * output as f64;
            self.script.sleep(millis(ttft_s));
            if told.ttft {
                self.script.event(Event::Began(RequestId(id)));
            }
            self.script.sleep(millis(writing_s));
            let count = |is_told: bool, number: f64| is_told.then_some(number.round() as u32);
            self.script.event(Event::Finished {
                id: RequestId(id),
                served_by: ServedBy::Unreported,
                end: End::Answered,
                ttft_us: told.ttft.then_some(1_000 * millis(ttft_s)),
                prompt_tokens: count(told.prompt, tokens),
                cached_tokens: count(told.cached, 0.0),
                completion_tokens: count(told.completion, output as f64),
            });
            self.count(tokens, output as f64, ttft_s, writing_s);
            if told.counters {
                let processes = self.other.into_iter().chain([self.counters]);
                processes.for_each(|counters| self.report(counters));
            }
            self.script.sleep(100);
        }
    }

    fn report(&mut self, counters: EngineCounters) {
        self.script.event(Event::CountersReported {
            replica: ReplicaId(0),
            counters,
            sent: self.script.now,
        });
    }

    fn count(&mut self, tokens: f64, output: f64, ttft_s: f64, writing_s: f64) {
        let counters = &mut self.counters;
        let add = |sum: &mut Option<f64>, number: f64| *sum = sum.map(|sum| sum + number);
        add(&mut counters.prompt_tokens, tokens);
        add(&mut counters.cache_queries, tokens);
        add(&mut counters.generation_tokens, output);
        let add = |total: &mut Option<Total>, seconds: f64| {
            *total = total.map(|total| Total {
                seconds: total.seconds + seconds,
                count: total.count + 1.0,
            });
        };
        add(&mut counters.prefill, ttft_s);
        add(&mut counters.ttft, ttft_s);
        add(&mut counters.decode, writing_s);
    }
}

fn near(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * b
}

#[test]
fn a_stock_engine_without_usage_teaches_by_its_counters_and_first_tokens() {
    let mut engine = Engine::new();
    let told = ReportedParts {
        ttft: true,
        counters: true,
        ..ReportedParts::default()
    };
    engine.serve(100, 3.0, told);
    let learned = engine.script.router.estimates();
    assert!(near(learned.prompt_token_s, TOKEN_S, 0.2), "{learned:?}");
    assert!(near(learned.bytes_per_token, 3.0, 0.05), "{learned:?}");
    assert!(near(learned.output_token_s, OUTPUT_S, 0.2), "{learned:?}");
    assert!(near(learned.output_tokens, 50.0, 0.2), "{learned:?}");
    let signals = learned.signals;
    assert_eq!(signals.prompt_speed, Source::Counters);
    assert_eq!(signals.token_length, Source::Counters);
    assert_eq!(signals.cache_hits, Source::Counters);
}

#[test]
fn usage_without_cached_tokens_teaches_lengths_and_speed() {
    let mut engine = Engine::new();
    let told = ReportedParts {
        ttft: true,
        prompt: true,
        completion: true,
        ..ReportedParts::default()
    };
    engine.serve(150, 3.0, told);
    let learned = engine.script.router.estimates();
    assert!(near(learned.bytes_per_token, 3.0, 0.05), "{learned:?}");
    assert!(near(learned.prompt_token_s, TOKEN_S, 0.2), "{learned:?}");
    assert!(near(learned.output_tokens, 50.0, 0.2), "{learned:?}");
    let signals = learned.signals;
    assert_eq!(signals.prompt_speed, Source::FirstTokens);
    assert_eq!(signals.decode_speed, Source::Usage);
    assert_eq!(signals.token_length, Source::Usage);
    assert_eq!(signals.cache_hits, Source::Presumed);
}

#[test]
fn whole_answers_teach_how_fast_answers_are_written() {
    let mut engine = Engine::new();
    engine.answer = 300;
    let told = ReportedParts {
        prompt: true,
        completion: true,
        ..ReportedParts::default()
    };
    engine.serve(150, 4.0, told);
    let learned = engine.script.router.estimates();
    // The presumed time to first token is too short by half a second.
    assert!(near(learned.output_token_s, OUTPUT_S, 0.1), "{learned:?}");
    assert_eq!(learned.signals.decode_speed, Source::Answers);
    assert_eq!(learned.signals.prompt_speed, Source::Presumed);
}

#[test]
fn times_to_first_token_alone_teach_the_prefill_line() {
    let mut engine = Engine::new();
    let told = ReportedParts {
        ttft: true,
        ..ReportedParts::default()
    };
    engine.serve(150, 4.0, told);
    let learned = engine.script.router.estimates();
    assert!(near(learned.prompt_token_s, TOKEN_S, 0.2), "{learned:?}");
    assert_eq!(learned.signals.prompt_speed, Source::FirstTokens);
    assert_eq!(learned.signals.answer_length, Source::Presumed);
}

#[test]
fn a_missing_count_of_cached_tokens_is_a_zero_once_the_replica_has_named_one() {
    let config = RouterConfig {
        policy: PolicyName::PrefixTree.into(),
        ..blind()
    };
    let mut script = Script::new(config, 1);
    let mut serve = |id: u64, cached: Option<u32>| {
        script.arrive(request(id, 1, &[1, 2, 3, 4]));
        script.effects();
        script.event(Event::Finished {
            id: RequestId(id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: Some(256),
            cached_tokens: cached,
            completion_tokens: None,
        });
        script.stats().counters.false_hits
    };
    assert_eq!(serve(0, None), 0);
    assert_eq!(serve(1, None), 0, "the engine has named none yet");
    assert_eq!(serve(2, Some(256)), 0);
    assert_eq!(serve(3, None), 1);
}

#[test]
fn a_prompt_of_two_densities_is_no_false_hit() {
    let config = RouterConfig {
        policy: PolicyName::PrefixTree.into(),
        ..blind()
    };
    let mut script = Script::new(config, 1);
    // English of 4.5 bytes a token, then JSON of 2.2, or an image.
    let english: Vec<u64> = (0..64).collect();
    let english_tokens = (64.0 * 256.0 / 4.5) as u32;
    for (id, rest_tokens) in [(0, 16 * 256 * 10 / 22), (1, 9_000)] {
        script.arrive(request(10 * id, 1, &english));
        let tokens = Some((english_tokens, 0));
        script.finish_as(10 * id, End::Answered, ServedBy::Unreported, tokens);
        let whole: Vec<u64> = (0..64).chain(1_000 * id..1_000 * id + 16).collect();
        script.arrive(request(10 * id + 1, 1, &whole));
        let tokens = Some((english_tokens + rest_tokens, english_tokens));
        script.finish_as(10 * id + 1, End::Answered, ServedBy::Unreported, tokens);
    }
    assert!(
        script.stats().counters.false_hits <= 1,
        "the repeated first turn"
    );
    let false_hits = script.stats().counters.false_hits;
    script.arrive(request(99, 1, &english));
    script.finish_as(
        99,
        End::Answered,
        ServedBy::Unreported,
        Some((english_tokens, 0)),
    );
    assert_eq!(script.stats().counters.false_hits, false_hits + 1);
}

#[test]
fn one_refused_prompt_of_200_000_tokens_changes_no_later_decision_after_a_second() {
    let serve = |with_refused: bool| {
        let mut script = Script::new(RouterConfig::default(), 4);
        for id in 0..40 {
            script.arrive(request(id, id % 4, &[id % 4, 1, 2, id]));
            script.sleep(50);
            script.finish_as(id, End::Answered, ServedBy::Unreported, Some((256, 192)));
            script.probe_all(0..4);
        }
        let mut decided = Vec::new();
        script.effects();
        if with_refused {
            let long: Vec<u64> = (0..3_125).map(|block| 1_000_000 + block).collect();
            script.arrive(request(1_000, 99, &long));
            script.sleep(5);
            script.finish_as(1_000, End::Refused, ServedBy::Unreported, None);
        } else {
            script.sleep(5);
        }
        script.effects();
        script.sleep(995);
        script.probe_all(0..4);
        for id in 100..160 {
            script.arrive(request(id, id % 4, &[id % 4, 1, 2, id]));
            decided.extend(script.sent());
            script.sleep(20);
            script.finish_as(id, End::Answered, ServedBy::Unreported, Some((256, 192)));
        }
        decided
    };
    let decided = serve(false);
    assert_eq!(decided.len(), 60);
    assert_eq!(serve(true), decided);
}

#[test]
fn an_engine_without_hits_loses_its_credit_by_counters_alone() {
    let mut engine = Engine::new();
    let explained = |engine: &Engine| {
        let request = request(9_999, 1, &(0..30).collect::<Vec<_>>());
        -engine
            .script
            .router
            .explain(engine.script.now, &request)
            .candidates[0]
            .score
    };
    engine.counters.cache_hits = Some(0.0);
    let report = |engine: &mut Engine, rounds: u64| {
        for round in 0..rounds {
            let id = 5_000 + engine.next + round;
            let blocks: Vec<u64> = (0..30).collect();
            engine.script.arrive(request(id, 1, &blocks));
            engine.script.effects();
            engine.script.sleep(300);
            engine.script.finish(id);
            engine.count(1_920.0, 10.0, 1.0, 0.3);
            engine.report(engine.counters);
        }
        engine.next += rounds;
    };
    report(&mut engine, 2);
    let credited = explained(&engine);
    report(&mut engine, 40);
    let measured = explained(&engine);
    assert!(measured > 5.0 * credited, "{measured} after {credited}");
}

#[test]
fn counters_of_several_processes_teach_nothing() {
    let mut engine = Engine::new();
    let slow = Some(Total {
        seconds: 900_000.0,
        count: 9_000.0,
    });
    engine.other = Some(EngineCounters {
        prompt_tokens: Some(9e7),
        generation_tokens: Some(9e6),
        cache_queries: Some(9e7),
        cache_hits: Some(8e7),
        prefill: slow,
        decode: slow,
        ttft: slow,
        ..EngineCounters::default()
    });
    let told = ReportedParts {
        counters: true,
        ..ReportedParts::default()
    };
    engine.serve(60, 3.0, told);
    let learned = engine.script.router.estimates();
    assert_eq!(learned.signals, Signals::default(), "{learned:?}");
    assert!(engine.script.stats().counters.engine_restarts <= 2);
}

#[test]
fn the_load_of_a_probe_with_nothing_pending_caps_the_backlog() {
    let config = RouterConfig {
        policy: PolicyName::MinTtft.into(),
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 1);
    let cost = |script: &Script| {
        let request = request(9_999, 77, &[7, 8, 9]);
        -script.router.explain(script.now, &request).candidates[0].score
    };
    let idle = cost(&script);
    for id in 0..6 {
        let blocks: Vec<u64> = (0..300).map(|block| 1_000 * id + block).collect();
        script.arrive(request(id, id, &blocks));
        script.effects();
        script.sleep(100);
        script.event(Event::Began(RequestId(id)));
        let load = Load {
            running: Some(u32::try_from(id).unwrap() + 1),
            ..Load::default()
        };
        script.probe_load(0, load);
    }
    let busy = cost(&script);
    assert!(
        busy < idle + 0.1,
        "{busy} after {idle}: every prompt is computed"
    );
}
