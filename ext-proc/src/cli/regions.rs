//! `isotherm regions`.

use std::fmt::Write;
use std::process::ExitCode;

use bytes::Bytes;
use clap::{Args, Subcommand};
use hyper::Method;

use super::client::{AdminClient, Connection, percent_encode};
use super::output;
use super::table::{self, or_dash};
use crate::admin::view::{PeerView, RegionPoolView, RegionsView, SiblingView};

/// Where the service shows its regions.
pub(super) const PATH: &str = "/api/regions";

#[derive(Debug, Args)]
pub(super) struct Regions {
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show every region: its link, its heartbeats, its pools, and who looks after its replicas. The default.
    List,
    /// Say that a region is lost and will not come back by itself, where that cannot be proved from here: its replicas
    /// may be adopted. Be sure that no part of it runs. `found` takes it back.
    Lost {
        /// The region.
        name: String,
    },
    /// Take back that a region is lost.
    Found {
        /// The region.
        name: String,
    },
}

pub(super) async fn run(args: Regions) -> anyhow::Result<ExitCode> {
    let client = AdminClient::new(&args.connection)?;
    match args.action.unwrap_or(Action::List) {
        Action::List => output::print(&list(&client.get(PATH).await?))?,
        Action::Lost { name } => {
            let path = format!("{PATH}/{}/lost", percent_encode(&name));
            client.command(Method::POST, &path, Bytes::new()).await?;
            println!("{name} is taken for lost");
        }
        Action::Found { name } => {
            let path = format!("{PATH}/{}/lost", percent_encode(&name));
            client.command(Method::DELETE, &path, Bytes::new()).await?;
            println!("{name} is what it shows of itself");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of the columns of [`rows`].
pub(super) const HEADER: [&str; 12] = [
    "REGION",
    "STATE",
    "ROUND TRIP",
    "HEARD",
    "POOL",
    "TAKES",
    "FREE",
    "QUEUE",
    "ROOM",
    "FORWARDED",
    "CAME BACK",
    "ADOPTED",
];

/// A line for each region and pool; this region first.
pub(super) fn rows(regions: &RegionsView) -> Vec<[String; 12]> {
    let own = regions.pools.iter().map(|pool| own_row(regions, pool));
    let peers = regions.peers.iter().flat_map(peer_rows);
    own.chain(peers).collect()
}

fn own_row(regions: &RegionsView, pool: &RegionPoolView) -> [String; 12] {
    let [free, queue, free_capacity] = said(Some(pool));
    let state = if regions.gateway {
        "this one"
    } else {
        "this one, no_gateway"
    };
    [
        or_dash(regions.name.as_ref()),
        state.to_owned(),
        dash(),
        dash(),
        pool.pool.clone(),
        dash(),
        free,
        queue,
        free_capacity,
        dash(),
        dash(),
        dash(),
    ]
}

fn peer_rows(peer: &PeerView) -> Vec<[String; 12]> {
    let of_region = || {
        [
            peer.name.clone(),
            peer.state.clone(),
            or_dash(peer.round_trip_ms.map(|ms| format!("{ms:.1} ms"))),
            or_dash(peer.heartbeat_age_ms.map(|ms| format!("{ms} ms ago"))),
        ]
    };
    let row = |of_pool: [String; 8]| {
        let [name, state, round_trip, heard] = of_region();
        let [
            pool,
            takes,
            free,
            queue,
            free_capacity,
            forwarded,
            returned,
            adopted,
        ] = of_pool;
        [
            name,
            state,
            round_trip,
            heard,
            pool,
            takes,
            free,
            queue,
            free_capacity,
            forwarded,
            returned,
            adopted,
        ]
    };
    let pools = peer.pools.iter().map(|pool| {
        let [free, queue, free_capacity] = said(pool.said.as_ref());
        row([
            pool.pool.clone(),
            pool.availability.clone(),
            free,
            queue,
            free_capacity,
            pool.forwarded.to_string(),
            pool.returned.to_string(),
            pool.adopted.to_string(),
        ])
    });
    let mut rows: Vec<_> = pools.collect();
    if rows.is_empty() {
        rows.push(row(std::array::from_fn(|_| dash())));
    }
    rows
}

/// Free replicas, queue and room, as a region said.
fn said(said: Option<&RegionPoolView>) -> [String; 3] {
    let Some(said) = said else {
        return std::array::from_fn(|_| dash());
    };
    [
        format!("{}/{}", said.available, said.replicas),
        said.queue.to_string(),
        said.free_capacity.map_or_else(
            || "unlimited".to_owned(),
            |free_capacity| free_capacity.to_string(),
        ),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

/// All of it as plain text.
fn list(regions: &RegionsView) -> String {
    if regions.name.is_none() {
        return "no other regions: the configuration has no section `region`\n".to_owned();
    }
    let mut text = table::render(HEADER, rows(regions));
    for note in notes(regions) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{note}");
    }
    if !regions.siblings.is_empty() {
        let rows: Vec<_> = regions.siblings.iter().map(sibling_row).collect();
        let header = ["SIBLING", "LINK", "ROUND TRIP", "HEARD", "QUEUE"];
        let _ = write!(text, "\n{}", table::render(header, rows));
    }
    text
}

/// Notes below the table: why a link is down, and the state of replicas whose region is down.
pub(super) fn notes(regions: &RegionsView) -> Vec<String> {
    let mut notes = Vec::new();
    for peer in &regions.peers {
        let name = &peer.name;
        if peer.link != "up" {
            let link = why_not_up(&peer.link, peer.why.as_deref());
            notes.push(format!("{name} at {}: the link is {link}", peer.address));
        }
        if peer.adopted > 0 {
            let (adopted, all) = (peer.adopted, peer.replicas);
            notes.push(format!(
                "{name}: {adopted} of its {all} replicas are looked after here"
            ));
        }
        if !peer.held_by.is_empty() {
            let holders = peer.held_by.join(", ");
            notes.push(format!(
                "{name}: its replicas are looked after by {holders}"
            ));
        }
        if let Some(blocked) = &peer.blocked {
            notes.push(format!(
                "{name}: its replicas are not adopted here: {blocked}"
            ));
        }
    }
    notes
}

/// The state of a link, and the reason for it, which may name the state itself.
fn why_not_up(link: &str, why: Option<&str>) -> String {
    match why {
        None => link.to_owned(),
        Some(why) if why.starts_with(link) => why.to_owned(),
        Some(why) => format!("{link}: {why}"),
    }
}

fn sibling_row(sibling: &SiblingView) -> [String; 5] {
    let link = why_not_up(&sibling.link, sibling.why.as_deref());
    [
        sibling.address.clone(),
        link,
        or_dash(sibling.round_trip_ms.map(|ms| format!("{ms:.1} ms"))),
        or_dash(sibling.heartbeat_age_ms.map(|ms| format!("{ms} ms ago"))),
        sibling.queue.to_string(),
    ]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::admin::view::PeerPoolView;

    /// The region `us` with a peer that is heard and one that is not.
    pub(in crate::cli) fn two_peers() -> RegionsView {
        let pool = |available, queue| RegionPoolView {
            pool: "llama".into(),
            available,
            replicas: 4,
            free_capacity: Some(7),
            queue,
            drain_per_s: 1.5,
        };
        let peer = |name: &str, state: &str| PeerView {
            name: name.into(),
            cluster: format!("region-{name}"),
            address: format!("{name}.example:9004"),
            link: "up".into(),
            why: None,
            state: state.into(),
            blocked: None,
            round_trip_ms: Some(80.25),
            heartbeat_age_ms: Some(120),
            version: None,
            replicas: 4,
            adopted: 0,
            held_by: Vec::new(),
            pools: vec![PeerPoolView {
                pool: "llama".into(),
                availability: "available".into(),
                said: Some(pool(3, 0)),
                forwarded: 12,
                returned: 1,
                in_flight: 2,
                adopted: 0,
            }],
        };
        let mut lost = peer("asia", "lost");
        lost.link = "unreachable".into();
        lost.why = Some("connection refused".into());
        lost.blocked = Some("its replicas do not answer from here".into());
        lost.pools.clear();
        RegionsView {
            name: Some("us".into()),
            gateway: true,
            successors: vec!["eu".into()],
            pools: vec![pool(0, 5)],
            peers: vec![peer("eu", "up"), lost],
            siblings: vec![SiblingView {
                address: "10.0.0.2:9004".into(),
                link: "up".into(),
                why: None,
                round_trip_ms: Some(0.3),
                heartbeat_age_ms: Some(40),
                queue: 2,
            }],
        }
    }

    #[test]
    fn every_region_has_a_line_for_each_pool_and_what_is_wrong_is_said() {
        let text = list(&two_peers());
        let lines: Vec<_> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "us this one - - llama - 0/4 5 7 - - -",
            "eu up 80.2 ms 120 ms ago llama available 3/4 0 7 12 1 0",
            "asia lost 80.2 ms 120 ms ago - - - - - - - -",
            "asia at asia.example:9004: the link is unreachable: connection refused",
            "asia: its replicas are not adopted here: its replicas do not answer from here",
            "10.0.0.2:9004 up 0.3 ms 40 ms ago 2",
        ] {
            assert!(
                lines.iter().any(|found| found == line),
                "no `{line}` in\n{text}"
            );
        }
    }

    #[test]
    fn a_service_without_regions_says_so() {
        assert!(list(&RegionsView::default()).contains("no section `region`"));
    }
}
