//! Metrics of the other regions, read from this service's view of them at each scrape.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use isotherm_regions::LeaseCounters;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::{Page, counters, flag};
use crate::regions::{LinkState, RegionsCounters, RegionsHandle, RegionsStatus};

/// Reads the state of the regions at each scrape. A service without a section `region` has no samples.
#[derive(Debug)]
pub struct RegionCollector(
    /// The regions, if the service takes part in any.
    pub Option<RegionsHandle>,
);

impl Collector for RegionCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        encode(encoder, self.0.as_ref().map(RegionsHandle::status).as_ref())
    }
}

pub(super) fn encode(
    encoder: DescriptorEncoder<'_>,
    status: Option<&RegionsStatus>,
) -> fmt::Result {
    let mut page = Page::new(encoder);
    encode_own_region(&mut page, status)?;
    encode_peers(&mut page, status)?;
    encode_siblings(&mut page, status)?;
    for (name, help, read) in COUNTERS {
        page.total(
            name,
            help,
            status.map_or(0, |status| read(&status.counters)),
        )?;
    }
    for (name, help, read) in LEASE_COUNTERS {
        let read = status.map_or(0, |status| read(&status.lease_counters));
        page.total(name, help, read)?;
    }
    Ok(())
}

/// A counter: its name, its help, and how to read its value.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

const COUNTERS: &[Counter<RegionsCounters>] = counters! {
    peer_handshakes_rejected: "Inbound connections and requests rejected: no certificate, a wrong certificate, too many connections, or a malformed message",
    peer_addresses_rejected: "Addresses of leased replicas that were not used, because they are outside the configured networks",
    certificate_failures: "Times that changed certificate files were rejected; the previous ones stay in use until they expire",
    sharing_sent: "Messages with placements sent to siblings",
    sharing_received: "Messages with placements received from siblings",
    sharing_dropped: "Messages with placements dropped because the link to the sibling was down or full",
};

const LEASE_COUNTERS: &[Counter<LeaseCounters>] = counters! {
    lease_store_failures: "Calls of the store of leases without an answer",
};

fn encode_own_region(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let own = || status.map(|status| (status, [("region", status.name.as_str())]));
    page.gauges(
        "region_gateway",
        "1 while an Envoy of this region is connected",
        own().map(|(status, labels)| (labels, flag(status.has_gateway))),
    )?;
    page.gauges(
        "certificate_expires_seconds",
        "Expiry of this region's certificate, in seconds since 1970",
        own().and_then(|(status, labels)| {
            let since = status.certificate_expires?.duration_since(UNIX_EPOCH);
            Some((labels, since.ok()?.as_secs_f64()))
        }),
    )?;
    page.gauges(
        "lease_store_age_seconds",
        "Time since the request for the last list of the store of leases was sent",
        own_lease(status).map(|(labels, age_ms)| (labels, seconds(age_ms))),
    )
}

fn own_lease(status: Option<&RegionsStatus>) -> Option<([(&str, &str); 1], u64)> {
    let status = status?;
    let age_ms = status.lease.as_ref()?.store_age_ms?;
    Some(([("region", status.name.as_str())], age_ms))
}

fn encode_peers(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let peers = || {
        let peers = status.into_iter().flat_map(|status| &status.peers);
        peers.map(|peer| (peer, ("region", peer.name.as_str())))
    };
    page.gauges(
        "region_link_up",
        "1 while the link to the region is up; state is up, dialling, unreachable or refused",
        peers().map(|(peer, region)| {
            let state = ("state", peer.link.as_ref());
            ([region, state], flag(peer.link == LinkState::Up))
        }),
    )?;
    page.gauges(
        "region_state",
        "1 for the state of the region: up, no_gateway, never_heard, lost, refused (the region runs and must not be \
         used)",
        peers().map(|(peer, region)| ([region, ("state", peer.state.as_ref())], 1.0)),
    )?;
    page.gauges(
        "region_round_trip_seconds",
        "Round-trip time to the region",
        peers().filter_map(|(peer, region)| Some(([region], peer.round_trip_ms? / 1e3))),
    )
}

fn encode_siblings(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let siblings = || {
        let siblings = status.into_iter().flat_map(|status| &status.siblings);
        siblings.map(|sibling| (sibling, ("sibling", sibling.address.as_str())))
    };
    page.gauges(
        "sibling_link_up",
        "1 while the link to the sibling is up; state is up, dialling, unreachable or refused",
        siblings().map(|(sibling, address)| {
            let state = ("state", sibling.link.as_ref());
            ([address, state], flag(sibling.link == LinkState::Up))
        }),
    )
}

fn seconds(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}
