//! SkyLB's prefix similarity of pairs of requests (section 3.2): the common prefix over the shorter of the two.

use super::rng::SeededRng;
use super::{Session, Workload};
use crate::prompt::Prompt;

/// Mean prefix similarities of a workload, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Similarity {
    /// Similarity between requests of a user.
    pub within_user: f64,
    /// Similarity between requests of different users.
    pub across_users: f64,
    /// Similarity between requests of different regions.
    pub across_regions: f64,
}

/// Pairs that are drawn for each mean.
const PAIRS: usize = 20_000;

impl Similarity {
    /// The similarities among the first so many requests of each user; pairs are drawn by lot.
    ///
    /// Within users all pairs are taken.
    #[must_use]
    pub fn of(workload: &Workload, requests: usize, seed: u64) -> Self {
        let users = users(workload, requests);
        let mut own = Mean::default();
        for user in &users {
            within(&user.prompts, &mut own);
        }
        let mut rng = SeededRng::new(seed);
        let (mut all, mut far) = (Mean::default(), Mean::default());
        for _ in 0..PAIRS {
            let (Some(a), Some(b)) = (pick(&users, &mut rng), pick(&users, &mut rng)) else {
                break;
            };
            if a.key == b.key {
                continue;
            }
            if let (Some(x), Some(y)) = (pick(&a.prompts, &mut rng), pick(&b.prompts, &mut rng)) {
                let value = similarity(x, y);
                all.add(value);
                if a.region != b.region {
                    far.add(value);
                }
            }
        }
        Self {
            within_user: own.value(),
            across_users: all.value(),
            across_regions: far.value(),
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
    let mut by_key = std::collections::BTreeMap::new();
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

fn within(prompts: &[&Prompt], mean: &mut Mean) {
    for (at, a) in prompts.iter().enumerate() {
        for b in prompts.iter().skip(at + 1) {
            mean.add(similarity(a, b));
        }
    }
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

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::Piece;

    #[test]
    fn similarity_is_the_common_prefix_over_the_shorter_length() {
        let prompt = |pieces: &[(u64, u32)]| {
            Prompt::new(pieces.iter().map(|(id, tokens)| Piece {
                id: *id,
                tokens: *tokens,
            }))
        };
        let (a, b, c) = (
            prompt(&[(1, 100)]),
            prompt(&[(1, 100), (2, 300)]),
            prompt(&[(1, 100), (3, 100)]),
        );
        assert_eq!(similarity(&a, &b), 1.0, "a prefix of it");
        assert_eq!(similarity(&b, &c), 0.5);
        assert_eq!(similarity(&a, &prompt(&[(9, 100)])), 0.0);
    }
}
