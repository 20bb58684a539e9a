//! Clients in a closed loop: each has one connection and sends the next request when the last answer has ended, so
//! together they find how much the way carries.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::prompts::{ConversationState, Prompts};
use super::workload::Workload;

/// Counts of requests in one window.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Answered with status 200, to the end.
    pub good: u64,
    /// Everything else.
    pub failed: u64,
    /// From the first request to the end of the last answer.
    pub took: Duration,
}

/// Sends requests over this many connections for this long.
///
/// # Errors
/// When a connection cannot be opened, or no request at all is answered.
pub async fn drive(
    target: SocketAddr,
    workload: &Workload,
    connections: u16,
    time: Duration,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (prompts, workload) = (Arc::clone(prompts), *workload);
        clients.spawn(async move { client(target, &workload, start + time, &prompts).await });
    }
    let (mut good, mut failed) = (0, 0);
    while let Some(ended) = clients.join_next().await {
        let (of_client, failures) = ended??;
        good += of_client;
        failed += failures;
    }
    if good == 0 {
        bail!("none of {failed} requests to {target} was answered");
    }
    let took = start.elapsed();
    Ok(Tally { good, failed, took })
}

async fn client(
    target: SocketAddr,
    workload: &Workload,
    end: Instant,
    prompts: &Prompts,
) -> anyhow::Result<(u64, u64)> {
    let (mut good, mut failed) = (0, 0);
    let mut connection = Connection::open(target).await?;
    let mut conversation = ConversationState::default();
    while Instant::now() < end {
        if connection
            .ask(prompts.next(workload, &mut conversation))
            .await
            .is_ok()
        {
            good += 1;
        } else {
            failed += 1;
            connection = Connection::open(target).await?;
        }
    }
    Ok((good, failed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use crate::workload;

    #[tokio::test]
    async fn clients_are_answered_by_the_upstream_whole_or_in_chunks() {
        let upstream = Upstream::start(1).await.unwrap();
        let target = *upstream.addresses().first().unwrap();
        for (chunks, prompts) in [
            (0, workload::PromptKind::Unique),
            (3, workload::PromptKind::MultiTurn),
        ] {
            upstream.answer_in(chunks);
            let asked = Workload {
                name: "test",
                prompt_bytes: 400_000,
                prompts,
                chunks,
            };
            let time = Duration::from_millis(100);
            let tally = drive(target, &asked, 2, time, &Arc::default())
                .await
                .unwrap();
            assert!(tally.good > 0 && tally.failed == 0, "{tally:?}");
        }
    }
}
