//! Handle of the admin interface and the metrics on the regions.

use std::collections::BTreeMap;
use std::sync::Arc;

use isotherm_regions::{EntryStatus, Leases};
use isotherm_router::{PeerId, Time};

use super::RegionsDriver;
use super::heard::HeardService;
use super::links::Link;
use super::state::DriverState;
use super::status::{
    LeaseState, PeerSource, PeerState, RegionsCounters, RegionsStatus, SiblingState,
};
use crate::clock::millis;
use crate::config::peer_cluster;

/// Handle on this service's state among regions. Clones share it.
#[derive(Clone, Debug)]
pub struct RegionsHandle(pub(super) Arc<RegionsDriver>);

impl RegionsHandle {
    /// Returns the status of the regions.
    pub fn status(&self) -> RegionsStatus {
        let core = self.0.lock();
        let now = self.0.clock().now();
        let silence_max = core.config.silence_max();
        let leases = core.leases.as_ref();
        let entries = leases.into_iter().flat_map(Leases::entries);
        let entries = entries.map(|status| (&*status.entry.region, status));
        let entries: BTreeMap<&str, EntryStatus<'_>> = entries.collect();
        let peers = core.links.peers();
        let peers = peers.filter_map(|(id, link)| peer_state(&core, id, link, &entries, now));
        let mut peers: Vec<_> = peers.collect();
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        let siblings = core.links.siblings().map(|link| {
            let (round_trip_ms, heartbeat_age_ms) = heard(&link.heard, now);
            let heartbeat = link.heard.fresh(now, silence_max);
            let reports = heartbeat.into_iter().flat_map(|last| &last.pools);
            SiblingState {
                address: link.endpoint.address.to_string(),
                link: link.state.clone(),
                round_trip_ms,
                heartbeat_age_ms,
                queue: reports.fold(0, |sum, (_, report)| sum.saturating_add(report.queue)),
            }
        });
        let certificate = self.0.identity.certificate();
        RegionsStatus {
            name: core.config.name.clone(),
            has_gateway: core.has_gateway(now),
            lease: lease_state(&core, entries.get(&*core.config.name), now),
            peers,
            siblings: siblings.collect(),
            counters: RegionsCounters {
                certificate_loads: certificate.loaded,
                certificate_failures: certificate.rejected,
                peer_addresses_rejected: core.leased.addresses_rejected,
                ..core.counters
            },
            lease_counters: leases.map(Leases::counters).unwrap_or_default(),
            certificate_expires: certificate.expires,
        }
    }
}

fn peer_state(
    core: &DriverState,
    id: PeerId,
    link: &Link,
    entries: &BTreeMap<&str, EntryStatus<'_>>,
    now: Time,
) -> Option<PeerState> {
    let mut peers = core.config.peers.iter();
    let config = peers.find(|peer| peer.name == link.endpoint.region)?;
    let status = entries.get(&*config.name);
    let (round_trip_ms, heartbeat_age_ms) = heard(&link.heard, now);
    let version = &link.heard.heartbeat.version;
    Some(PeerState {
        name: config.name.clone(),
        cluster: peer_cluster(&config.name),
        address: config.address.to_string(),
        link: link.state.clone(),
        state: link.region_state(now, core.config.silence_max()),
        source: match core.members.borrow().contains(config) {
            true => PeerSource::Store,
            false => PeerSource::Configuration,
        },
        lease: status.and_then(|status| lease_state(core, Some(status), now)),
        round_trip_ms,
        heartbeat_age_ms,
        version: (!version.is_empty()).then(|| version.to_string()),
        replicas: status.map_or(0, |status| status.entry.replicas()),
        leased: core.leased.count(id),
    })
}

/// The lease in a record; `None` without a store.
fn lease_state(
    core: &DriverState,
    status: Option<&EntryStatus<'_>>,
    now: Time,
) -> Option<LeaseState> {
    let leases = core.leases.as_ref()?;
    let holder = status.and_then(|status| status.holder);
    Some(LeaseState {
        holder: holder.map(ToString::to_string),
        revision: status.map_or(0, |status| status.entry.revision),
        store_age_ms: leases.store_age(now).map(millis),
    })
}

/// Round trip and age of the last heartbeat, in milliseconds. The round trip has three decimals: between services of one region it
/// takes a fraction of a millisecond.
fn heard(service: &HeardService, now: Time) -> (Option<f64>, Option<u64>) {
    let round_trip = service.round_trip;
    let round_trip_ms = round_trip.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
    let age_ms = service.as_of.map(|as_of| millis(now.since(as_of)));
    (round_trip_ms, age_ms)
}
