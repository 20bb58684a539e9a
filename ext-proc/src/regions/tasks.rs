//! The tasks that feed the core. None keeps the service: each ends when it is gone.

use std::sync::{Arc, Weak};

use isotherm_router::PeerId;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::RegionsDriver;
use super::links::LinkKey;
use super::pools::own_members;
use super::status::CertificateState;
use crate::config::{Config, PeerConfig, RegionConfig};
use crate::peering::{Credentials, LinkEvent, ReloadResult};
use crate::pool::PoolTable;
use crate::sans_io::Driver;

/// Takes what happens to links.
pub(super) async fn hear(
    shared: Weak<RegionsDriver>,
    mut events: mpsc::Receiver<(LinkKey, LinkEvent)>,
) {
    while let Some((key, event)) = events.recv().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.link(key, event);
    }
}

/// Loads certificates again when they change, and keeps count of it.
pub(super) async fn follow_certificate(shared: Weak<RegionsDriver>, credentials: Arc<Credentials>) {
    let known = Arc::clone(&credentials);
    let note = move |change: fn(&mut CertificateState)| {
        if let Some(shared) = shared.upgrade() {
            let mut core = shared.lock();
            change(&mut core.certificate);
            core.certificate.expires = known.expires();
        }
    };
    note(|_| {});
    let counted = move |loaded: &ReloadResult| match loaded {
        Ok(()) => note(|certificate| certificate.loaded += 1),
        Err(_) => note(|certificate| certificate.rejected += 1),
    };
    credentials.follow(counted).await;
}

/// Asks the siblings with each interval.
pub(super) async fn beat(shared: Weak<RegionsDriver>) {
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        strong.beat();
        let next = Instant::now() + strong.lock().config.heartbeat;
        drop(strong);
        sleep_until(next).await;
    }
}

/// Tells the core who this region's own replicas are.
pub(super) async fn follow_members(shared: Weak<RegionsDriver>) {
    let Some(mut revision) = shared
        .upgrade()
        .map(|shared| shared.pool_registry().revision())
    else {
        return;
    };
    loop {
        revision.mark_unchanged();
        let Some(strong) = shared.upgrade() else {
            return;
        };
        if let Some(pools) = own_members(&strong.pool_registry().table()) {
            strong.members(pools);
        }
        drop(strong);
        if revision.changed().await.is_err() {
            return;
        }
    }
}

/// Takes adopted replicas into pools that come.
pub(super) async fn follow_pools(shared: Weak<RegionsDriver>) {
    let Some(mut table) = shared
        .upgrade()
        .map(|shared| shared.pool_registry().watch())
    else {
        return;
    };
    while table.changed().await.is_ok() {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.drive(|core, _| core.adoptions.pools_changed());
    }
}

/// Dials those that the configuration names, through reloads.
pub(super) async fn follow_config(
    shared: Weak<RegionsDriver>,
    mut applied: RegionConfig,
    mut config: watch::Receiver<Arc<Config>>,
) {
    while config.changed().await.is_ok() {
        let region = config.borrow_and_update().region.clone();
        let Some(shared) = shared.upgrade() else {
            return;
        };
        // A section that a reload takes out, or puts in, waits for a restart.
        if let Some(new) = region
            && applied != new
        {
            apply(&shared, &new);
            applied = new;
        }
    }
}

/// Dials those that a configuration names, and keeps to the rest of it, apart from what only a restart changes.
pub(super) fn apply(shared: &RegionsDriver, config: &RegionConfig) {
    let running = shared.lock().config.clone();
    let config = RegionConfig {
        name: running.name,
        listen: running.listen,
        security: running.security,
        state_file: running.state_file,
        ..config.clone()
    };
    let peers = identities(&config, &shared.pool_registry().table());
    shared.apply(&config, &peers);
}

/// Peers by the identities that the pools know them by. A region cannot be its own peer.
fn identities(region: &RegionConfig, table: &PoolTable) -> Vec<(PeerId, PeerConfig)> {
    let id = |peer: &PeerConfig| Some(table.peer_table()?.named(&peer.name)?.id);
    let peers = region.peers.iter();
    let others = peers.filter(|peer| peer.name != region.name);
    others
        .filter_map(|peer| Some((id(peer)?, peer.clone())))
        .collect()
}

/// Tells the core whether an Envoy is connected.
pub(super) async fn follow_envoys(shared: Weak<RegionsDriver>, mut envoys: watch::Receiver<usize>) {
    loop {
        let count = *envoys.borrow_and_update();
        let Some(strong) = shared.upgrade() else {
            return;
        };
        strong.own_gateway(count > 0);
        drop(strong);
        if envoys.changed().await.is_err() {
            return;
        }
    }
}
