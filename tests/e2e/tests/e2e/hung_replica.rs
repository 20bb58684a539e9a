//! A replica that hangs under load: it accepts requests, and nothing comes back.

use std::time::{Duration, Instant};

use isotherm_e2e::load::RequestRecord;
use isotherm_e2e::{Load, WAIT_MAX, admin, chat, fixture, permit, with_decision_header};
use isotherm_harness::{Stack, wait_for};
use reqwest::StatusCode;
use serde_json::{Value, json};

const REPLICAS: usize = 4;
const CLIENTS: usize = 12;
/// Enough requests for every replica to answer several.
const REQUESTS: usize = 120;
/// Time after which a hung replica gets nothing new, with time for slow machines.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);
/// Output tokens of a request: its answer takes longer than the time between two probes.
const OUTPUT_TOKENS: u32 = 100;

/// The part of a replica that hangs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hang {
    /// The whole process (`SIGSTOP`).
    Process,
    /// The computation; the metrics page stays perfect.
    Computation,
}

impl Hang {
    async fn set(self, stack: &Stack, hangs: bool) -> anyhow::Result<()> {
        let engine = stack.engine(0)?;
        match (self, hangs) {
            (Self::Process, true) => engine.process().suspend(),
            (Self::Process, false) => engine.process().resume(),
            (Self::Computation, _) => {
                let fault = reqwest::Client::new()
                    .post(format!("http://{}/fault", engine.address()))
                    .json(&json!({ "hang": hangs }));
                fault.send().await?.error_for_status()?;
                Ok(())
            }
        }
    }
}

/// A prompt of the client's own, so that each replica has clients that prefer it.
fn prompt(client: usize, _turn: usize) -> Value {
    let mut body = chat(&format!("Client {client} begins like this. ").repeat(80));
    body["max_tokens"] = OUTPUT_TOKENS.into();
    body
}

#[tokio::test]
async fn a_suspended_replica_gets_nothing_new_and_its_requests_are_answered() -> anyhow::Result<()>
{
    check_noticed(Hang::Process).await
}

#[tokio::test]
async fn a_replica_with_perfect_metrics_that_answers_nothing_gets_nothing_new() -> anyhow::Result<()>
{
    check_noticed(Hang::Computation).await
}

async fn check_noticed(hang: Hang) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = fixture::engines(&format!("hung-{hang:?}"), REPLICAS, 20.0);
    let stack = stack.service(|config| {
        let bounds = json!({ "timeout_ms": 2_000 });
        config.set("pools/0/probe", bounds)
    });
    let stack = with_decision_header(stack).start().await?;
    let address = stack.engine(0)?.address().to_string();
    let is_there = |record: &RequestRecord| {
        let response = record.response.as_ref().ok();
        response.and_then(|response| response.decision("replica")) == Some(&address)
    };
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    wait_for(WAIT_MAX, "the replica to serve", || async {
        let records = load.wait_for_requests(REQUESTS).await?;
        Ok(records.iter().any(is_there).then_some(()))
    })
    .await?;

    hang.set(&stack, true).await?;
    let hung_at = Instant::now();
    // The clients wait without a limit of their own, so each of these requests is answered by the filter.
    let during = load.wait_for_each_client().await?;
    admin::wait_for_log(stack.service(), "replica hangs").await?;
    for record in &during {
        let response = record.response.as_ref();
        let response = response.map_err(|error| anyhow::anyhow!("no response: {error}"))?;
        if response.status != StatusCode::OK {
            assert_eq!(response.status, StatusCode::GATEWAY_TIMEOUT);
            assert_eq!(response.json()?["error"]["code"], "replica_hung");
            assert!(record.sent < hung_at + NOTICED_WITHIN, "sent to it later");
        }
    }
    let abandoned = admin::counter(stack.service(), "isotherm_abandoned_total", &[]).await?;
    assert!(abandoned > 0, "no request was there");

    hang.set(&stack, false).await?;
    wait_for(WAIT_MAX, "the replica to serve again", || async {
        let records = load.wait_for_requests(REQUESTS).await?;
        let served = |record: &RequestRecord| is_there(record) && record.is_success();
        Ok(records.iter().any(served).then_some(()))
    })
    .await?;
    load.stop().await?;
    Ok(())
}
