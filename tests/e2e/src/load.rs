//! Clients that send requests without pause, each in its own session, while a test causes a fault.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use isotherm_harness::wait_for;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{Client, HttpResponse, WAIT_MAX, lock};

/// Pause after a request without a response, so that a client of a dead Envoy leaves the cores to others.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// The outcome of one request.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Session of the client.
    pub session: String,
    /// Time at which the client sent the request.
    pub sent: Instant,
    /// Time at which the response had ended.
    pub ended: Instant,
    /// Whether a response had started.
    pub response_started: bool,
    /// Whole response, or the error.
    pub response: Result<HttpResponse, String>,
}

impl RequestRecord {
    /// Whether the response is whole and has status 200.
    pub fn is_success(&self) -> bool {
        let response = self.response.as_ref();
        response.is_ok_and(|response| response.status == 200)
    }

    /// The name of the scripted replica that responded.
    pub fn served_by(&self) -> Option<&str> {
        self.response.as_ref().ok()?.served_by()
    }
}

type Records = Arc<Mutex<Vec<RequestRecord>>>;

/// Running clients. They stop when this is dropped.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    clients: JoinSet<()>,
    client_count: usize,
    records: Records,
}

impl Load {
    /// Starts `clients` clients. Each sends its next request when its previous one has ended; `body` makes the body from
    /// the client's number and the request's number.
    pub fn start(
        base: &str,
        clients: usize,
        body: impl Fn(usize, usize) -> Value + Clone + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let records = Records::default();
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let client = Client::new(base)?;
            let (body, records, stopped) = (body.clone(), Arc::clone(&records), stopped.clone());
            tasks.spawn(async move {
                let session = format!("session-{number}");
                for turn in 0.. {
                    if *stopped.borrow() {
                        return;
                    }
                    let record = send_recorded(&client, &session, &body(number, turn)).await;
                    let is_refused = !record.response_started;
                    lock(&records).push(record);
                    if is_refused {
                        sleep(REFUSED_PAUSE).await;
                    }
                }
            });
        }
        Ok(Self {
            stop,
            clients: tasks,
            client_count: clients,
            records,
        })
    }

    /// Waits until `count` requests that were sent after this call have ended, and returns them.
    pub async fn wait_for_requests(&self, count: usize) -> anyhow::Result<Vec<RequestRecord>> {
        let condition = format!("{count} more responses");
        self.wait_for_records(&condition, |records| records.len() >= count)
            .await
    }

    /// Waits until each client has ended a request that it sent after this call: until requests that were in flight
    /// before the call have ended.
    pub async fn wait_for_each_client(&self) -> anyhow::Result<Vec<RequestRecord>> {
        self.wait_for_records("a response for each client", |records| {
            let sessions: BTreeSet<&str> = records
                .iter()
                .map(|record| record.session.as_str())
                .collect();
            sessions.len() == self.client_count
        })
        .await
    }

    async fn wait_for_records(
        &self,
        condition: &str,
        is_enough: impl Fn(&[RequestRecord]) -> bool,
    ) -> anyhow::Result<Vec<RequestRecord>> {
        let start = Instant::now();
        wait_for(WAIT_MAX, condition, || {
            let records = lock(&self.records);
            let since = records.iter().filter(|record| record.sent >= start);
            let since: Vec<RequestRecord> = since.cloned().collect();
            std::future::ready(Ok(is_enough(&since).then_some(since)))
        })
        .await
    }

    /// Waits until every client has ended its current request, and returns all requests.
    pub async fn stop(mut self) -> anyhow::Result<Vec<RequestRecord>> {
        self.stop.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(WAIT_MAX, all).await?;
        Ok(std::mem::take(&mut *lock(&self.records)))
    }
}

/// Checks that every request succeeded; the error shows the first that did not.
pub fn check_all_succeeded(records: &[RequestRecord]) -> anyhow::Result<()> {
    let failure = |record: &RequestRecord| match &record.response {
        Ok(response) if response.status == 200 => None,
        Ok(response) => Some(format!(
            "{}: {} {}",
            record.session,
            response.status,
            response.text()
        )),
        Err(error) => Some(format!("{}: {error}", record.session)),
    };
    let failures: Vec<String> = records.iter().filter_map(failure).collect();
    let examples = failures.get(..failures.len().min(5)).unwrap_or_default();
    ensure!(
        failures.is_empty(),
        "{} of {} requests failed, such as {examples:#?}",
        failures.len(),
        records.len()
    );
    Ok(())
}

async fn send_recorded(client: &Client, session: &str, body: &Value) -> RequestRecord {
    let sent = Instant::now();
    let request = client.post_chat(body).header("x-session-id", session);
    let (response_started, response) = match request.send().await {
        Ok(response) => (true, HttpResponse::read(response).await),
        Err(error) => (false, Err(error.into())),
    };
    RequestRecord {
        session: session.to_owned(),
        sent,
        ended: Instant::now(),
        response_started,
        response: response.map_err(|error| format!("{error:#}")),
    }
}
