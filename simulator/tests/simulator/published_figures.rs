//! Generated traffic against the figures that papers publish of the traffic it stands for.

use std::collections::{BTreeMap, HashSet};

use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::chat::Chat;
use isotherm_simulator::workload::conversation;
use isotherm_simulator::workload::rng::SeededRng;
use isotherm_simulator::workload::trace::{BLOCK_TOKENS, Trace};
use isotherm_simulator::workload::{Session, Workload};

/// Figures of the trace: the name, the value, and the relative difference that a twin may have.
const PUBLISHED: [(&str, f64, f64); 9] = [
    ("requests per s", 3.40, 0.10),
    ("mean prompt", 12_035.0, 0.10),
    ("median prompt", 6_909.0, 0.10),
    ("90th percentile of prompts", 27_367.0, 0.12),
    ("mean answer", 342.6, 0.05),
    ("median answer", 350.0, 0.05),
    ("share of tokens seen before", 0.374, 0.12),
    ("requests half seen before", 0.425, 0.10),
    ("requests that continue one", 0.387, 0.10),
];

#[test]
fn the_twin_has_the_figures_of_the_trace() {
    for seed in 1..=3 {
        let figures = figures(&conversation::generate(conversation::HOUR_S, seed));
        println!("seed {seed}: {figures:?}");
        for ((name, wanted, part), value) in PUBLISHED.into_iter().zip(figures) {
            assert!(
                (value / wanted - 1.0).abs() <= part,
                "seed {seed}: {name} {value}, the trace has {wanted}"
            );
        }
    }
}

#[test]
fn similarity_of_requests_is_that_of_skylb() {
    for (chat, across, ratio) in [
        (Chat::wildchat(), 0.025, 7.60),
        (Chat::arena(), 0.077, 2.47),
    ] {
        let mut sum = Similarity::default();
        for seed in 1..=4 {
            let figures = Similarity::of(&chat.generate(seed), 60, seed);
            println!("{} seed {seed}: {figures:?}", chat.name);
            sum.within_user += figures.within_user / 4.0;
            sum.across_users += figures.across_users / 4.0;
            sum.across_regions += figures.across_regions / 4.0;
        }
        println!(
            "{}: {sum:?} {}",
            chat.name,
            sum.within_user / sum.across_users
        );
        assert!((sum.across_users / across - 1.0).abs() < 0.20, "{sum:?}");
        let seen = sum.within_user / sum.across_users;
        assert!((seen / ratio - 1.0).abs() < 0.15, "{seen} for {ratio}");
        assert!((sum.within_user - 0.19).abs() < 0.03, "{sum:?}");
    }
    // The paper's 2.5 % between regions.
    let wild = Similarity::of(&Chat::wildchat().generate(1), 60, 1);
    assert!((0.015..=0.035).contains(&wild.across_regions), "{wild:?}");
}

#[test]
fn similarity_is_the_common_prefix_over_the_shorter_length() {
    let prompt =
        |pieces: &[_]| Prompt::new(pieces.iter().map(|&(id, tokens)| Piece::new(id, tokens)));
    let a = prompt(&[(1, 100)]);
    let b = prompt(&[(1, 100), (2, 300)]);
    let c = prompt(&[(1, 100), (3, 100)]);
    assert_eq!(similarity(&a, &b), 1.0, "a prefix of it");
    assert_eq!(similarity(&b, &c), 0.5);
    assert_eq!(similarity(&a, &prompt(&[(9, 100)])), 0.0);
}

/// Figures of a trace in the order of [`PUBLISHED`]; its prompts are taken by their blocks.
fn figures(trace: &Trace) -> [f64; 9] {
    let lines = trace.lines();
    let count = lines.len() as f64;
    let mut known: HashSet<u64> = HashSet::new();
    let (mut seen_tokens, mut half, mut continued) = (0_u64, 0_u32, 0_u32);
    for line in lines {
        let blocks = line.hash_ids.iter().take_while(|id| known.contains(id));
        let blocks = blocks.count();
        let seen = (blocks as u64 * u64::from(BLOCK_TOKENS)).min(u64::from(line.input_length));
        known.extend(&line.hash_ids);
        seen_tokens += seen;
        half += u32::from(seen * 2 >= u64::from(line.input_length));
        continued += u32::from(blocks > 1);
    }
    let inputs = sorted(lines.iter().map(|line| line.input_length));
    let outputs = sorted(lines.iter().map(|line| line.output_length));
    let span_ms = lines.last().unwrap().timestamp - lines[0].timestamp;
    let input_mean = mean(inputs.iter().map(|tokens| f64::from(*tokens)));
    [
        count / (span_ms / 1_000.0),
        input_mean,
        quantile(&inputs, 0.5),
        quantile(&inputs, 0.9),
        mean(outputs.iter().map(|tokens| f64::from(*tokens))),
        quantile(&outputs, 0.5),
        seen_tokens as f64 / (input_mean * count),
        f64::from(half) / count,
        f64::from(continued) / count,
    ]
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn sorted(values: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values
}

/// The value below which this share of the sorted ones lies.
fn quantile(sorted: &[u32], share: f64) -> f64 {
    f64::from(sorted[(sorted.len() as f64 * share) as usize])
}

/// Mean prefix similarities of a workload, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Similarity {
    /// Similarity between requests of a user.
    within_user: f64,
    /// Similarity between requests of different users.
    across_users: f64,
    /// Similarity between requests of different regions.
    across_regions: f64,
}

/// Pairs that are drawn for each mean.
const PAIRS: usize = 20_000;

impl Similarity {
    /// The similarities among the first so many requests of each user; pairs are drawn by lot.
    ///
    /// Within users all pairs are taken.
    fn of(workload: &Workload, requests: usize, seed: u64) -> Self {
        let users = users(workload, requests);
        let mut own = Vec::new();
        for User { prompts, .. } in &users {
            for (at, a) in prompts.iter().enumerate() {
                own.extend(prompts[at + 1..].iter().map(|b| similarity(a, b)));
            }
        }
        let mut rng = SeededRng::new(seed);
        let (mut all, mut far) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let (Some(a), Some(b)) = (pick(&users, &mut rng), pick(&users, &mut rng)) else {
                break;
            };
            if a.key == b.key {
                continue;
            }
            if let (Some(x), Some(y)) = (pick(&a.prompts, &mut rng), pick(&b.prompts, &mut rng)) {
                let value = similarity(x, y);
                all.push(value);
                if a.region != b.region {
                    far.push(value);
                }
            }
        }
        Self {
            within_user: mean(own.into_iter()),
            across_users: mean(all.into_iter()),
            across_regions: mean(far.into_iter()),
        }
    }
}

struct User<'w> {
    key: u64,
    region: usize,
    prompts: Vec<&'w Prompt>,
}

fn users(workload: &Workload, requests: usize) -> Vec<User<'_>> {
    let mut users: Vec<User<'_>> = Vec::new();
    let mut by_key = BTreeMap::new();
    for Session {
        key, region, steps, ..
    } in &workload.sessions
    {
        let at = *by_key.entry(*key).or_insert_with(|| {
            users.push(User {
                key: *key,
                region: *region,
                prompts: Vec::new(),
            });
            users.len() - 1
        });
        if let Some(user) = users.get_mut(at) {
            let room = requests.saturating_sub(user.prompts.len());
            user.prompts
                .extend(steps.iter().map(|step| &step.prompt).take(room));
        }
    }
    users
}

fn similarity(a: &Prompt, b: &Prompt) -> f64 {
    let mut common = 0;
    for (x, y) in a.pieces().iter().zip(b.pieces()) {
        if x.id != y.id {
            break;
        }
        common += x.tokens.min(y.tokens);
        if x.tokens != y.tokens {
            break;
        }
    }
    f64::from(common) / f64::from(a.tokens().min(b.tokens()).max(1))
}

fn pick<'a, T>(list: &'a [T], rng: &mut SeededRng) -> Option<&'a T> {
    list.get(((rng.unit() * list.len() as f64) as usize).min(list.len().saturating_sub(1)))
}
