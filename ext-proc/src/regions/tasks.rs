//! Tasks that feed the core. The runtime owns them, and the driver reaches none of them, so each may hold the driver.

use std::sync::Arc;

use isotherm_router::PeerId;
use tokio::sync::watch;

use super::RegionsDriver;
use super::discovery::{sibling_source, siblings};
use super::pools::own_pools;
use crate::config::{Config, PeerConfig, RegionConfig};
use crate::kubernetes::KubernetesClient;
use crate::pool::{Discovery, PoolTable};
use crate::sans_io::Driver;

/// Passes changes to the core: this region's own replicas, the number of connected Envoys, and the configuration. To the
/// configuration belong the siblings that Kubernetes lists, and the regions that the store names.
pub(super) async fn follow(
    driver: Arc<RegionsDriver>,
    applied: RegionConfig,
    mut config: watch::Receiver<Arc<Config>>,
    mut envoys: watch::Receiver<usize>,
) {
    let (client, mut discovery) = (KubernetesClient::default(), Discovery::default());
    let mut current = applied;
    let mut applied = current.clone();
    let mut members = driver.lock().members.subscribe();
    let mut revision = driver.pool_registry().revision();
    loop {
        let source = sibling_source(&current, driver.lock().config.listen.port());
        discovery.update(source.as_ref(), &client, "siblings", None);
        let pods = discovery.replicas().map(|(address, _)| address);
        let mut wanted = current.clone();
        wanted.siblings.extend(siblings(pods));
        for member in members.borrow_and_update().iter() {
            if wanted.peers.iter().all(|peer| peer.name != member.name) {
                wanted.peers.push(member.clone());
            }
        }
        if applied != wanted {
            apply(&driver, &wanted);
            applied = wanted;
        }
        revision.mark_unchanged();
        let pools = own_pools(&driver.pool_registry().table());
        let has_gateway = *envoys.borrow_and_update() > 0;
        // This step also applies the leases to new pools.
        driver.drive(|core, _| core.set_inputs(has_gateway, pools));
        // A channel without a sender does not change any more.
        tokio::select! {
            Ok(()) = config.changed() => {
                // A removed or added section `region` waits for a restart.
                if let Some(region) = config.borrow_and_update().region.clone() {
                    current = region;
                }
            }
            Ok(()) = members.changed() => {}
            Ok(()) = revision.changed() => {}
            Ok(()) = envoys.changed() => {}
            () = discovery.changed() => {}
        }
    }
}

/// Applies a configuration, except the options that only a restart changes.
pub(super) fn apply(driver: &RegionsDriver, config: &RegionConfig) {
    let running = driver.lock().config.clone();
    let config = RegionConfig {
        name: running.name,
        listen: running.listen,
        tls: running.tls,
        store: running.store,
        ..config.clone()
    };
    let registry = driver.pool_registry();
    registry.set_peers(&config);
    let peers = peers_by_id(&config, &registry.table());
    driver.apply(&config, &peers);
}

/// Pairs the configured peers with their ids in the pools. A region cannot be its own peer.
fn peers_by_id(region: &RegionConfig, table: &PoolTable) -> Vec<(PeerId, PeerConfig)> {
    let id = |peer: &PeerConfig| Some(table.peer_table()?.named(&peer.name)?.id);
    let peers = region.peers.iter();
    let others = peers.filter(|peer| peer.name != region.name);
    others
        .filter_map(|peer| Some((id(peer)?, peer.clone())))
        .collect()
}
