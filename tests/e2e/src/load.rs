//! Clients that go on asking, each in its own session, while a test breaks something.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::ensure;
use isotherm_harness::wait_until;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Client, HttpResponse, WAIT_MAX};

/// How one request went.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Its session.
    pub session: String,
    /// When it was sent.
    pub sent: Instant,
    /// When its answer was complete, or it failed.
    pub ended: Instant,
    /// Whether an answer had begun.
    pub response_started: bool,
    /// The whole answer, or why there is none.
    pub answer: Result<HttpResponse, String>,
}

impl RequestRecord {
    /// Whether there is a whole answer that is no error.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.answer
            .as_ref()
            .is_ok_and(|answer| answer.status == 200)
    }

    /// The scripted replica that answered.
    #[must_use]
    pub fn served_by(&self) -> Option<&str> {
        self.answer.as_ref().ok()?.served_by()
    }
}

type Records = Arc<Mutex<Vec<RequestRecord>>>;

/// Running clients. They stop when this is dropped.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    clients: JoinSet<()>,
    records: Records,
}

impl Load {
    /// Starts `clients` clients. Each sends its next request when the one before has ended; `body` makes it from the
    /// client's number and the request's.
    ///
    /// # Errors
    /// When the system has no resources for a client.
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
                    let record = ask(&client, &session, &body(number, turn)).await;
                    lock(&records).push(record);
                }
            });
        }
        Ok(Self {
            stop,
            clients: tasks,
            records,
        })
    }

    /// Waits until `count` requests that were sent after this call have ended, and returns them.
    ///
    /// # Errors
    /// When that takes longer than anything should.
    pub async fn wait_for_requests(&self, count: usize) -> anyhow::Result<Vec<RequestRecord>> {
        let start = Instant::now();
        let since = || {
            let records = lock(&self.records);
            let since = records.iter().filter(|record| record.sent >= start);
            since.cloned().collect::<Vec<_>>()
        };
        let what = format!("{count} more answers");
        wait_until(WAIT_MAX, &what, || {
            std::future::ready(since().len() >= count)
        })
        .await?;
        Ok(since())
    }

    /// Lets every client end the request that it is at, and returns all that happened.
    ///
    /// # Errors
    /// When a client never ends.
    pub async fn stop(mut self) -> anyhow::Result<Vec<RequestRecord>> {
        self.stop.send_replace(true);
        let all = async { while self.clients.join_next().await.is_some() {} };
        tokio::time::timeout(WAIT_MAX, all).await?;
        Ok(std::mem::take(&mut *lock(&self.records)))
    }
}

/// That every request had a whole, good answer; the error shows those that had not.
///
/// # Errors
/// When one had none.
pub fn check_all_succeeded(records: &[RequestRecord]) -> anyhow::Result<()> {
    let bad: Vec<String> = records
        .iter()
        .filter(|record| !record.is_success())
        .map(|record| match &record.answer {
            Ok(answer) => format!("{}: {} {}", record.session, answer.status, answer.text()),
            Err(error) => format!("{}: {error}", record.session),
        })
        .collect();
    let shown = bad.get(..bad.len().min(5)).unwrap_or_default();
    ensure!(
        bad.is_empty(),
        "{} of {} requests failed, such as {shown:#?}",
        bad.len(),
        records.len()
    );
    Ok(())
}

async fn ask(client: &Client, session: &str, body: &Value) -> RequestRecord {
    let sent = Instant::now();
    let request = client.post("/v1/chat/completions", body);
    let (begun, answer) = match request.header("x-session-id", session).send().await {
        Ok(response) => (true, HttpResponse::read(response).await),
        Err(error) => (false, Err(error.into())),
    };
    RequestRecord {
        session: session.to_owned(),
        sent,
        ended: Instant::now(),
        response_started: begun,
        answer: answer.map_err(|error| format!("{error:#}")),
    }
}

fn lock(records: &Records) -> std::sync::MutexGuard<'_, Vec<RequestRecord>> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}
