//! Probes one replica: detects its engine, then reads its load from the engine's metrics page, and its adapters.

use std::net::SocketAddr;

use tokio::sync::{OwnedSemaphorePermit, watch};

use super::client::{LoadedClient, ReplicaClient};
use super::connections::ProbedReplica;
use super::fetch::{ProbeError, fetch};
use super::load::{PageError, PageReport, detect_engine, parse_page};
use super::models::{AdapterList, ListedModels};
use crate::config::{Engine, PoolConfig};
use crate::http_client::HttpError;

#[derive(Debug)]
pub(super) struct LoadProbe {
    client: watch::Receiver<LoadedClient>,
    addr: SocketAddr,
    /// The detected engine, and the path of its metrics page.
    detected: Option<(Engine, &'static str)>,
    /// The engine of the last successful probe.
    engine: Option<Engine>,
    /// The detection that the log has: a reload detects the engine again, and mostly finds the same one.
    told: Option<(Engine, &'static str)>,
    adapters: AdapterList,
    /// Whether the last answer was late.
    is_slow: bool,
    replica: ProbedReplica,
}

impl LoadProbe {
    pub(super) fn new(
        client: watch::Receiver<LoadedClient>,
        addr: SocketAddr,
        replica: ProbedReplica,
    ) -> Self {
        Self {
            client,
            addr,
            detected: None,
            engine: None,
            told: None,
            adapters: AdapterList::default(),
            is_slow: false,
            replica,
        }
    }

    /// Waits until another probe may be under way.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.replica.turn().await
    }

    /// Probes the replica. Calls `on_late` when the answer is late, and the one before was not: a replica that was late is slow, and is down
    /// only when no answer comes at all.
    pub(super) async fn probe(
        &mut self,
        config: &PoolConfig,
        on_late: &(dyn Fn() + Send + Sync),
    ) -> Result<PageReport, ProbeError> {
        let is_slow = std::mem::take(&mut self.is_slow);
        let on_late = || {
            if !is_slow {
                on_late();
            }
        };
        let report = self.load(config, &on_late).await;
        self.is_slow = matches!(report, Err(ProbeError::Late { .. }));
        report
    }

    async fn load(
        &mut self,
        config: &PoolConfig,
        on_late: &(dyn Fn() + Send + Sync),
    ) -> Result<PageReport, ProbeError> {
        let (engine, path) = match (config.engine, &self.detected) {
            (Some(engine), _) => (engine, engine.table().path),
            (None, Some(detected)) => *detected,
            (None, None) => return self.detect(config, on_late).await,
        };
        let client = self.client()?;
        let page = fetch(&client, self.addr, path, config.probe.timeout, on_late).await;
        let report = page.and_then(|page| Ok(parse_page(engine, &page)?));
        self.engine = Some(engine);
        if let Err(ProbeError::Page(_) | ProbeError::Status { .. }) = report {
            // Another engine may listen on the address now: the next probe detects it.
            self.detected = None;
        }
        report
    }

    /// Whether the replica was never asked for its adapters.
    pub(super) fn has_new_list(&self) -> bool {
        self.adapters.is_new()
    }

    /// Asks for the adapters at the next opportunity: the engine may have restarted.
    pub(super) fn expire_list(&mut self) {
        self.adapters.expire();
    }

    /// Asks the replica for its list of models when it is time; returns it if it has changed.
    pub(super) async fn list_adapters(
        &mut self,
        config: &PoolConfig,
        jitter: f64,
    ) -> Option<ListedModels> {
        let client = self.client().ok()?;
        let to = (&client, self.addr);
        let timeout = config.probe.timeout;
        self.adapters
            .update(self.engine?, to, timeout, jitter)
            .await
    }

    /// The engine of the last successful probe.
    pub(super) const fn engine(&self) -> Option<Engine> {
        self.engine
    }

    /// The detected engine and the path of its page, if they are new.
    pub(super) fn new_engine(&mut self) -> Option<(Engine, &'static str)> {
        let is_new = self.detected.is_some() && self.detected != self.told;
        if is_new {
            self.told = self.detected;
        }
        self.detected.filter(|_| is_new)
    }

    /// Forgets the detected engine, since the configuration has changed.
    pub(super) fn forget(&mut self) {
        self.detected = None;
    }

    fn client(&self) -> Result<ReplicaClient, HttpError> {
        let client = self.client.borrow().clone();
        let mut client = client.map_err(|error| HttpError::Connection(error.to_string().into()))?;
        client.keeps_connection = self.replica.keeps_connection();
        Ok(client)
    }

    /// Tries the paths of all engines until a page has the metrics of one.
    async fn detect(
        &mut self,
        config: &PoolConfig,
        on_late: &(dyn Fn() + Send + Sync),
    ) -> Result<PageReport, ProbeError> {
        let mut paths = Vec::new();
        for path in Engine::ALL.iter().map(|engine| engine.table().path) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        let client = self.client()?;
        let mut failure: Option<ProbeError> = None;
        for path in paths {
            let page = fetch(&client, self.addr, path, config.probe.timeout, on_late).await;
            let error = match page.and_then(|page| Ok((detect_engine(&page)?, page))) {
                Ok((engine, page)) => {
                    let report = parse_page(engine, &page)?;
                    self.detected = Some((engine, path));
                    self.engine = Some(engine);
                    return Ok(report);
                }
                // A replica without this page may have the next one.
                Err(error @ (ProbeError::Status { .. } | ProbeError::Page(_))) => error,
                Err(error) => return Err(error),
            };
            if failure
                .as_ref()
                .is_none_or(|known| known.weight() < error.weight())
            {
                failure = Some(error);
            }
        }
        Err(failure.unwrap_or(ProbeError::Page(PageError::Unknown)))
    }
}
