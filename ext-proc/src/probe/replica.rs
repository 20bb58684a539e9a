//! The probe of one replica, which detects the engine and the path of its page.

use std::net::SocketAddr;

use isotherm_router::Load;

use super::fetch::{Fetcher, ProbeError};
use super::load::{PageError, detect_engine, parse_load};
use crate::config::{Engine, PoolConfig};

/// The probe of one replica.
#[derive(Debug)]
pub(super) struct ReplicaProbe {
    addr: SocketAddr,
    /// The detected engine and its path.
    found: Option<(Engine, String)>,
}

impl ReplicaProbe {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { addr, found: None }
    }

    /// Fetches the load of the replica.
    pub(super) async fn probe(
        &mut self,
        fetcher: &Fetcher,
        config: &PoolConfig,
    ) -> Result<Load, ProbeError> {
        let timeout = config.probe.timeout;
        let (engine, path) = match (config.engine, &self.found) {
            (Some(engine), _) => {
                let own = || engine.table().path.to_owned();
                (engine, config.probe.path.clone().unwrap_or_else(own))
            }
            (None, Some(found)) => found.clone(),
            (None, None) => return self.detect(fetcher, config).await,
        };
        let read = match fetcher.get(self.addr, &path, timeout).await {
            Ok(page) => parse_load(engine, &page).map_err(ProbeError::from),
            Err(error) => Err(error),
        };
        if let Err(ProbeError::Page(_) | ProbeError::Status { .. }) = read {
            // Another engine may have taken over the address: look again next time.
            self.found = None;
        }
        read
    }

    /// Forgets the detected engine: the configuration has changed.
    pub(super) fn forget(&mut self) {
        self.found = None;
    }

    /// Tries the paths of all engines until a page has known metrics.
    async fn detect(&mut self, fetcher: &Fetcher, config: &PoolConfig) -> Result<Load, ProbeError> {
        let mut paths = vec![];
        match &config.probe.path {
            Some(path) => paths.push(path.clone()),
            None => {
                for engine in Engine::ALL {
                    let path = engine.table().path;
                    if !paths.iter().any(|known| known == path) {
                        paths.push(path.to_owned());
                    }
                }
            }
        }
        let mut failure = ProbeError::Page(PageError::Unknown);
        for path in paths {
            let page = match fetcher.get(self.addr, &path, config.probe.timeout).await {
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
                    tracing::info!(replica = %self.addr, %engine, path, "recognised the engine");
                    self.found = Some((engine, path));
                    return Ok(load);
                }
                Err(error) => failure = error.into(),
            }
        }
        Err(failure)
    }
}
