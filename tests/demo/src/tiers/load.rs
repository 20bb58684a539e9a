//! The conversations of interactive clients, drawn in full before the first run.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::setup::TierSetup;
use crate::workload::{Chat, ClientId, Conversation};

/// Tenants.
pub(super) const TENANTS: usize = 5;
/// The tenant that bursts.
pub(super) const BURSTING: usize = 0;
/// Load of the bursting tenant during the burst, in shares of a tenant.
const BURST: f64 = 10.0;
/// Users of all tenants that talk at a time, for each replica: about half of what a replica serves.
const USERS: f64 = 6.0;
/// Usual duration of a conversation by the engines' clock, with its pauses.
const CONVERSATION_S: f64 = 110.0;

/// A conversation of a tenant's user.
#[derive(Clone, Debug)]
pub(super) struct TenantConversation {
    pub(super) tenant: usize,
    /// Whether the user expects an answer at once.
    pub(super) is_fast: bool,
    pub(super) conversation: Conversation,
}

/// The conversations of every run.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    /// Every tenant at its share, in order of their start.
    pub(super) usual: Vec<TenantConversation>,
    /// The further conversations of the burst.
    pub(super) burst: Vec<TenantConversation>,
}

impl Draw {
    pub(super) fn new(setup: &TierSetup) -> Self {
        let chat = Chat::multi_turn(setup.seed, setup.replicas);
        let users = USERS * setup.replicas as f64 / TENANTS as f64;
        let mut random = Pcg64Mcg::seed_from_u64(setup.seed);
        let mut of_tenant = |tenant: usize, users: f64, first: usize, from_s: f64, to_s: f64| {
            let count = (users * (to_s - from_s) / CONVERSATION_S).round() as usize;
            let drawn = (first..first + count).map(|client| {
                let id = ClientId {
                    name: "user",
                    region: tenant,
                    client,
                };
                let at = setup.time(random.random_range(from_s..to_s));
                let conversation = chat.conversation(id, 0, setup.speed);
                TenantConversation {
                    tenant,
                    is_fast: client % 2 == 0,
                    conversation: Conversation {
                        at,
                        session: format!("{tenant}-{client}"),
                        ..conversation
                    },
                }
            });
            drawn.collect::<Vec<_>>()
        };
        let whole = setup.length_s();
        let usual = (0..TENANTS).flat_map(|tenant| of_tenant(tenant, users, 0, 0.0, whole));
        let mut usual = Vec::from_iter(usual);
        let window = setup.window_s();
        let first = usual.len();
        let more = (BURST - 1.0) * users;
        let mut burst = of_tenant(BURSTING, more, first, window.start, window.end);
        let start = |drawn: &TenantConversation| drawn.conversation.at;
        usual.sort_by_key(start);
        burst.sort_by_key(start);
        Self { usual, burst }
    }

    /// The conversations of a run, in order of their start.
    pub(super) fn conversations(&self, has_burst: bool) -> Vec<TenantConversation> {
        let burst = self.burst.iter().filter(|_| has_burst);
        let mut all: Vec<_> = self.usual.iter().chain(burst).cloned().collect();
        all.sort_by_key(|drawn| drawn.conversation.at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(seed: u64) -> TierSetup {
        TierSetup {
            replicas: 4,
            engine: "llama-3.1-8b-l4".into(),
            speed: 10.0,
            seed,
        }
    }

    #[test]
    fn a_burst_is_ten_times_a_share_and_leaves_the_others_as_they_are() {
        let (setup, draw) = (setup(1), Draw::new(&setup(1)));
        let window = setup.window();
        let in_window = |has_burst, tenant| {
            let all = draw.conversations(has_burst);
            let is_in = |drawn: &&TenantConversation| {
                drawn.tenant == tenant && window.contains(&drawn.conversation.at)
            };
            all.iter().filter(is_in).count() as f64
        };
        let factor = in_window(true, BURSTING) / in_window(false, BURSTING);
        assert!((7.0..14.0).contains(&factor), "{factor}");
        for other in 1..TENANTS {
            assert_eq!(in_window(true, other), in_window(false, other));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_conversations() {
        let drawn = |seed| format!("{:?}", Draw::new(&setup(seed)));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn no_two_users_share_a_session() {
        let draw = Draw::new(&setup(1));
        let all = draw.conversations(true);
        let mut sessions: Vec<_> = all
            .iter()
            .map(|drawn| &drawn.conversation.session)
            .collect();
        let count = sessions.len();
        sessions.sort_unstable();
        sessions.dedup();
        assert_eq!(sessions.len(), count);
    }
}
