//! `isotherm regions`: shows the other regions.

use std::process::ExitCode;

use clap::Args;

use super::client::{AdminClient, Connection};
use super::output::{self, JsonFlag, or_dash};
use crate::admin::view::{PeerView, RegionPoolView, RegionsView};
use crate::regions::{LeaseState, LinkState, PeerSource, SiblingState};

/// The path of the regions in the admin interface.
pub(super) const PATH: &str = "/api/regions";

#[derive(Debug, Args)]
pub(super) struct Regions {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    json: JsonFlag,
}

pub(super) async fn run(args: Regions) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    let regions: RegionsView = client.get(PATH).await?;
    args.json.print(&regions, list)?;
    Ok(ExitCode::SUCCESS)
}

/// Column names of [`rows`].
pub(super) const HEADER: [&str; 12] = [
    "REGION",
    "STATE",
    "ROUND TRIP",
    "HEARTBEAT",
    "POOL",
    "FORWARDING",
    "AVAILABLE",
    "QUEUE",
    "FREE CAPACITY",
    "FORWARDED",
    "RETURNED",
    "LEASED",
];

/// Formats each pool of each region as a row; this region first.
pub(super) fn rows(regions: &RegionsView) -> Vec<Vec<String>> {
    let name = or_dash(regions.name.as_ref());
    let state = match regions.has_gateway {
        true => "this region",
        false => "this region, no_gateway",
    };
    let own = regions.pools.iter().map(|pool| {
        let region = [name.clone(), state.to_owned(), dash(), dash()];
        let [available, queue, free_capacity] = load(Some(pool));
        let pool = [pool.pool.clone(), dash(), available, queue, free_capacity];
        [&region[..], &pool, &[dash(), dash(), dash()]].concat()
    });
    let peers = regions.peers.iter().flat_map(peer_rows);
    own.chain(peers).collect()
}

fn peer_rows(PeerView { region, pools }: &PeerView) -> Vec<Vec<String>> {
    let region = [
        region.name.clone(),
        region.state.as_ref().to_owned(),
        round_trip(region.round_trip_ms),
        heartbeat(region.heartbeat_age_ms),
    ];
    if pools.is_empty() {
        return vec![[&region[..], &vec![dash(); 8]].concat()];
    }
    let pools = pools.iter().map(|pool| {
        let [available, queue, free_capacity] = load(pool.report.as_ref());
        let pool = [
            pool.pool.clone(),
            pool.availability.clone(),
            available,
            queue,
            free_capacity,
            pool.forwarded.to_string(),
            pool.returned.to_string(),
            pool.leased.to_string(),
        ];
        [&region[..], &pool].concat()
    });
    pools.collect()
}

/// Formats available replicas, queue and free capacity of a report.
fn load(report: Option<&RegionPoolView>) -> [String; 3] {
    let Some(report) = report else {
        return [dash(), dash(), dash()];
    };
    let free = report.free_capacity;
    [
        format!("{}/{}", report.available, report.replicas),
        report.queue.to_string(),
        free.map_or_else(|| "unlimited".to_owned(), |free| free.to_string()),
    ]
}

fn round_trip(ms: Option<f64>) -> String {
    or_dash(ms.map(|ms| format!("{ms:.1} ms")))
}

fn heartbeat(age_ms: Option<u64>) -> String {
    or_dash(age_ms.map(|ms| format!("{ms} ms ago")))
}

fn dash() -> String {
    "-".to_owned()
}

/// Formats everything as plain text.
fn list(regions: &RegionsView) -> String {
    if regions.name.is_none() {
        return "no other regions: the configuration has no section `region`\n".to_owned();
    }
    let mut text = output::table(&HEADER, rows(regions)) + &notes(regions);
    if !regions.siblings.is_empty() {
        let rows = regions.siblings.iter().map(sibling_row).collect();
        let header = ["SIBLING", "LINK", "ROUND TRIP", "HEARTBEAT", "QUEUE"];
        text = format!("{text}\n{}", output::table(&header, rows));
    }
    text
}

/// Formats what does not fit into the table: where a region is known from, why a link is down, and the leases.
pub(super) fn notes(regions: &RegionsView) -> String {
    let mut notes = Vec::new();
    if let Some(lease) = &regions.lease {
        let name = or_dash(regions.name.as_ref());
        notes.push(format!("{name}: {}", lease_note(lease)));
        let age = lease.store_age_ms.map(|ms| format!("answered {ms} ms ago"));
        let age = age.unwrap_or_else(|| "has not answered yet".to_owned());
        notes.push(format!("the store of leases {age}"));
    }
    for PeerView { region: peer, .. } in &regions.peers {
        let name = &peer.name;
        let source = match peer.source {
            PeerSource::Configuration => "the configuration",
            PeerSource::Store => "the store",
        };
        notes.push(format!("{name} at {}: known from {source}", peer.address));
        if peer.link != LinkState::Up {
            notes.push(format!("{name}: the link is {}", link_state(&peer.link)));
        }
        if let Some(lease) = &peer.lease {
            let (leased, all) = (peer.leased, peer.replicas);
            let here = match leased {
                0 => String::new(),
                leased => format!("; {leased} of its {all} replicas are in the pools here"),
            };
            notes.push(format!("{name}: {}{here}", lease_note(lease)));
        }
    }
    notes.iter().map(|note| format!("{note}\n")).collect()
}

fn lease_note(lease: &LeaseState) -> String {
    let revision = lease.revision;
    match &lease.holder {
        Some(holder) => format!(
            "{holder} holds the lease of its replicas, with revision {revision} (by the store)"
        ),
        None => "no region holds the lease of its replicas (by the store)".to_owned(),
    }
}

/// Formats the state of a link with its reason, which may begin with the state itself.
fn link_state(link: &LinkState) -> String {
    match (link.as_ref(), link.reason()) {
        (state, None) => state.to_owned(),
        (state, Some(reason)) if reason.starts_with(state) => reason.to_owned(),
        (state, Some(reason)) => format!("{state}: {reason}"),
    }
}

fn sibling_row(sibling: &SiblingState) -> Vec<String> {
    vec![
        sibling.address.clone(),
        link_state(&sibling.link),
        round_trip(sibling.round_trip_ms),
        heartbeat(sibling.heartbeat_age_ms),
        sibling.queue.to_string(),
    ]
}

#[cfg(test)]
pub(super) mod tests {

    use super::*;
    use crate::admin::view::PeerPoolView;
    use crate::regions::{PeerState, RegionState};

    /// A region `us` with one peer that is up and one that is lost.
    pub(in crate::cli) fn two_peers() -> RegionsView {
        let pool = |available, queue| RegionPoolView {
            pool: "llama".into(),
            available,
            replicas: 4,
            free_capacity: Some(7),
            queue,
            drain_per_s: 1.5,
        };
        let region = |name: &str, state| PeerState {
            name: name.into(),
            cluster: format!("region-{name}"),
            address: format!("{name}.example:9004"),
            link: LinkState::Up,
            state,
            source: PeerSource::Configuration,
            lease: Some(LeaseState {
                holder: Some(name.into()),
                revision: 7,
                store_age_ms: Some(40),
            }),
            round_trip_ms: Some(80.25),
            heartbeat_age_ms: Some(120),
            version: None,
            replicas: 4,
            leased: 0,
        };
        let peer = |name: &str, state| PeerView {
            region: region(name, state),
            pools: vec![PeerPoolView {
                pool: "llama".into(),
                availability: "available".into(),
                report: Some(pool(3, 0)),
                forwarded: 12,
                returned: 1,
                in_flight: 2,
                leased: 0,
            }],
        };
        let mut lost = peer("asia", RegionState::Lost);
        lost.region.link = LinkState::Unreachable("connection refused".into());
        lost.region.source = PeerSource::Store;
        lost.region.leased = 4;
        lost.region.lease = Some(LeaseState {
            holder: Some("us".into()),
            revision: 8,
            store_age_ms: Some(40),
        });
        lost.pools.clear();
        RegionsView {
            name: Some("us".into()),
            has_gateway: true,
            lease: Some(LeaseState {
                holder: Some("us".into()),
                revision: 3,
                store_age_ms: Some(40),
            }),
            pools: vec![pool(0, 5)],
            peers: vec![peer("eu", RegionState::Up), lost],
            siblings: vec![SiblingState {
                address: "10.0.0.2:9004".into(),
                link: LinkState::Up,
                round_trip_ms: Some(0.3),
                heartbeat_age_ms: Some(40),
                queue: 2,
            }],
        }
    }

    #[test]
    fn every_region_has_a_line_per_pool_and_every_problem_is_shown() {
        let text = list(&two_peers());
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "us this region - - llama - 0/4 5 7 - - -",
            "eu up 80.2 ms 120 ms ago llama available 3/4 0 7 12 1 0",
            "asia lost 80.2 ms 120 ms ago - - - - - - - -",
            "asia: the link is unreachable: connection refused",
            "asia at asia.example:9004: known from the store",
            "asia: us holds the lease of its replicas, with revision 8 (by the store); 4 of its 4 replicas are in the pools here",
            "10.0.0.2:9004 up 0.3 ms 40 ms ago 2",
        ] {
            assert!(
                lines.iter().any(|found| found == line),
                "no `{line}` in\n{text}"
            );
        }
    }

    #[test]
    fn a_service_without_regions_reports_that() {
        assert!(list(&RegionsView::default()).contains("no section `region`"));
    }
}
