//! Probes one replica: detects its engine, then reads its load from the engine's metrics page.

use std::net::SocketAddr;

use isotherm_router::Load;

use super::fetch::{ProbeError, fetch};
use super::load::{PageError, detect_engine, parse_load};
use crate::config::{Engine, PoolConfig};
use crate::http_client::HttpClient;

#[derive(Debug)]
pub(super) struct LoadProbe {
    http: HttpClient,
    addr: SocketAddr,
    /// The detected engine, and the path of its metrics page.
    detected: Option<(Engine, String)>,
}

impl LoadProbe {
    pub(super) fn new(http: HttpClient, addr: SocketAddr) -> Self {
        Self {
            http,
            addr,
            detected: None,
        }
    }

    pub(super) async fn probe(&mut self, config: &PoolConfig) -> Result<Load, ProbeError> {
        let (engine, path) = match (config.engine, &self.detected) {
            (Some(engine), _) => {
                let own = || engine.table().path.to_owned();
                (engine, config.probe.path.clone().unwrap_or_else(own))
            }
            (None, Some(detected)) => detected.clone(),
            (None, None) => return self.detect(config).await,
        };
        let page = fetch(&self.http, self.addr, &path, config.probe.timeout).await;
        let load = page.and_then(|page| Ok(parse_load(engine, &page)?));
        if let Err(ProbeError::Page(_) | ProbeError::Status { .. }) = load {
            // Another engine may listen on the address now: the next probe detects it.
            self.detected = None;
        }
        load
    }

    /// Forgets the detected engine, since the configuration has changed.
    pub(super) fn forget(&mut self) {
        self.detected = None;
    }

    /// Tries the paths of all engines until a page has the metrics of one.
    async fn detect(&mut self, config: &PoolConfig) -> Result<Load, ProbeError> {
        let mut paths = Vec::from_iter(config.probe.path.as_deref());
        if paths.is_empty() {
            for path in Engine::ALL.iter().map(|engine| engine.table().path) {
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        }
        let mut failure = ProbeError::Page(PageError::Unknown);
        for path in paths {
            let page = match fetch(&self.http, self.addr, path, config.probe.timeout).await {
                Ok(page) => page,
                // A replica without this page may have the next one.
                Err(error @ ProbeError::Status { .. }) => {
                    failure = error;
                    continue;
                }
                Err(error) => return Err(error),
            };
            match detect_engine(&page) {
                Ok(engine) => {
                    let load = parse_load(engine, &page)?;
                    tracing::info!(replica = %self.addr, %engine, path, "detected the engine");
                    self.detected = Some((engine, path.to_owned()));
                    return Ok(load);
                }
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }
}
