//! The clients of all regions, active for a fixed time.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::client_counts::ClientCounts;
use super::deployment::REGIONS;
use crate::client::Client;
use crate::drive::Player;
use crate::record::RequestLog;
use crate::workload::{Chat, ClientId};

/// The clients of every run of a trial. Times are those of this machine.
#[derive(Clone, Debug)]
pub struct ClientPopulation {
    /// Clients of each region over time.
    pub counts: ClientCounts,
    /// Conversations of the clients.
    pub chat: Chat,
    /// Factor by which everything runs faster than real time.
    pub speed: f64,
    /// Time in which clients start requests.
    pub length: Duration,
    /// Part of that time that fills the caches and does not count.
    pub warm_up: Duration,
}

impl ClientPopulation {
    /// Plays all clients, and returns when the last response has ended.
    pub async fn run(&self, clients: &[Client], log: &RequestLog) {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for client in clients {
            for index in 0..self.counts.max(client.region) {
                let player = Player {
                    client: client.clone(),
                    log: log.clone(),
                    start,
                    length: Some(self.length),
                };
                let population = self.clone();
                tasks.spawn(async move { population.play(&player, index).await });
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Plays the conversations of one client while the client is active.
    async fn play(&self, player: &Player, client: usize) {
        let region = player.client.region;
        let id = ClientId {
            name: REGIONS.get(region).copied().unwrap_or_default(),
            region,
            client,
        };
        for number in 0.. {
            let now = player.start.elapsed();
            let share = now.as_secs_f64() / self.length.as_secs_f64();
            let Some(active_from) = self.counts.next(region, client, share) else {
                return;
            };
            let wait = self.length.mul_f64(active_from).saturating_sub(now);
            let conversation = self.chat.conversation(id, number, self.speed);
            if !player.pause(wait + conversation.at).await {
                return;
            }
            player.converse(conversation).await;
        }
    }
}
