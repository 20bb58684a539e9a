//! How the regions are: read from what this service knows of them when somebody scrapes.

use std::fmt;
use std::time::UNIX_EPOCH;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::page::Page;
use crate::regions::{LinkState, RegionsHandle, RegionsStatus};

/// Reads the regions at each scrape. Where there are none, every figure is without a value.
#[derive(Debug)]
pub struct RegionCollector(Option<RegionsHandle>);

impl RegionCollector {
    /// A collector over the regions, where there are any.
    #[must_use]
    pub fn new(regions: Option<RegionsHandle>) -> Self {
        Self(regions)
    }
}

impl Collector for RegionCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let status = self.0.as_ref().map(RegionsHandle::status);
        let mut page = Page::new(encoder);
        peers(&mut page, status.as_ref())?;
        siblings(&mut page, status.as_ref())?;
        counters(&mut page, status.as_ref())
    }
}

fn peers(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let peers = || status.into_iter().flat_map(|status| &status.peers);
    let region = |name: &str| [("region", name.to_owned())];
    page.labelled(
        "region_link_up",
        "1 when the link to it is up; the label says how it is",
        peers().map(|peer| {
            let state = ("state", peer.link.as_str().to_owned());
            ([("region", peer.name.clone()), state], is_up(&peer.link))
        }),
    )?;
    page.labelled(
        "region_state",
        "1 for the state of the region: up, no_gateway, never_heard, lost, refused, dead, declared_lost",
        peers().map(|peer| {
            let state = ("state", peer.state.as_str().to_owned());
            ([("region", peer.name.clone()), state], 1.0)
        }),
    )?;
    page.labelled(
        "region_round_trip_seconds",
        "Round trip to it",
        peers().filter_map(|peer| Some((region(&peer.name), peer.round_trip?.as_secs_f64()))),
    )?;
    page.labelled(
        "region_heartbeat_age_seconds",
        "How long ago its last heartbeat was asked for",
        peers().filter_map(|peer| Some((region(&peer.name), peer.heartbeat_age?.as_secs_f64()))),
    )?;
    page.labelled(
        "certificate_expires_seconds",
        "When this region's certificate expires, in seconds since 1970",
        status.and_then(|status| {
            let since = status.certificate.expires?.duration_since(UNIX_EPOCH);
            Some(([("region", status.name.clone())], since.ok()?.as_secs_f64()))
        }),
    )?;
    page.labelled(
        "region_gateway",
        "1 while an Envoy of this region is connected",
        status.map(|status| {
            (
                [("region", status.name.clone())],
                f64::from(u8::from(status.has_gateway)),
            )
        }),
    )
}

fn siblings(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let siblings = || status.into_iter().flat_map(|status| &status.siblings);
    page.labelled(
        "sibling_link_up",
        "1 when the link to another service of this region is up; the label says how it is",
        siblings().map(|sibling| {
            let state = ("state", sibling.link.as_str().to_owned());
            (
                [("sibling", sibling.address.clone()), state],
                is_up(&sibling.link),
            )
        }),
    )?;
    page.labelled(
        "sibling_heartbeat_age_seconds",
        "How long ago its last heartbeat was asked for",
        siblings().filter_map(|sibling| {
            let age = sibling.heartbeat_age?.as_secs_f64();
            Some(([("sibling", sibling.address.clone())], age))
        }),
    )
}

fn counters(page: &mut Page<'_>, status: Option<&RegionsStatus>) -> fmt::Result {
    let counted = status.map(|status| (status.counters, status.placements, status.certificate));
    let (counters, shared, certificate) = counted.unwrap_or_default();
    for (name, help, value) in [
        (
            "peer_handshakes_rejected",
            "Inbound links rejected: no certificate, a wrong certificate, too many links, or a malformed message",
            status.map_or(0, |status| status.handshakes_rejected),
        ),
        (
            "certificate_loads",
            "Times that new files of certificates were loaded",
            certificate.loaded,
        ),
        (
            "certificate_failures",
            "Times that new files of certificates were refused",
            certificate.rejected,
        ),
        (
            "heartbeats",
            "Heartbeats that were believed",
            counters.heartbeats,
        ),
        (
            "heartbeats_refused",
            "Heartbeats that were not: late, repeated, never asked for",
            counters.heartbeats_rejected,
        ),
        (
            "records_refused",
            "Records of replicas that were not believed",
            counters.records_rejected,
        ),
        (
            "regions_lost",
            "Times that a region was lost",
            counters.peers_lost,
        ),
        (
            "adoptions",
            "Times that this region adopted another one's replicas",
            counters.adoptions,
        ),
        (
            "adoption_conflicts",
            "Times that another region held the same replicas; should stay zero",
            counters.adoption_conflicts,
        ),
        ("sharing_sent", "Messages to siblings", shared.sent),
        ("sharing_received", "Messages of siblings", shared.received),
        (
            "sharing_dropped",
            "Messages to siblings that were lost on a link that was down or behind",
            shared.dropped,
        ),
    ] {
        page.total(name, help, value)?;
    }
    Ok(())
}

fn is_up(link: &LinkState) -> f64 {
    f64::from(u8::from(*link == LinkState::Up))
}
