//! `/api/regions`: shows the regions.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use isotherm_router::{PeerReport, PeerStatus};

use super::{AdminState, view};
use crate::pool::{Member, Pool};
use crate::regions::PeerState;

pub(super) async fn show(State(admin): AdminState) -> Json<view::RegionsView> {
    let snapshots = admin.pool_registry.pools();
    let snapshots = Vec::from_iter(snapshots.iter().map(|pool| PoolSnapshot::of(pool)));
    let pools = snapshots.iter().map(|snapshot| {
        let pool = snapshot.pool;
        report_view(pool, &pool.report())
    });
    let mut regions = view::RegionsView {
        pools: pools.collect(),
        ..view::RegionsView::default()
    };
    if let Some(status) = admin.regions.as_ref().map(|regions| regions.status()) {
        let peers = status.peers.into_iter();
        regions.name = Some(status.name);
        regions.has_gateway = status.has_gateway;
        regions.lease = status.lease;
        regions.peers = peers.map(|peer| peer_view(peer, &snapshots)).collect();
        regions.siblings = status.siblings;
    }
    Json(regions)
}

fn report_view(pool: &Pool, report: &PeerReport) -> view::RegionPoolView {
    view::RegionPoolView {
        pool: pool.name().to_string(),
        available: report.available,
        replicas: report.replicas,
        free_capacity: (report.free_capacity < u32::MAX).then_some(report.free_capacity),
        queue: report.queue,
        drain_per_s: report.drain_per_s,
    }
}

/// A pool's view of all peers. Reading it takes the pool's lock once.
struct PoolSnapshot<'a> {
    pool: &'a Pool,
    peers: Vec<PeerStatus>,
    members: Arc<Vec<Member>>,
}

impl<'a> PoolSnapshot<'a> {
    fn of(pool: &'a Pool) -> Self {
        Self {
            pool,
            peers: pool.peers(),
            members: Arc::clone(&pool.members().borrow()),
        }
    }

    /// Returns the peer's pool of the same model; `None` while this pool does not know the peer.
    fn peer(&self, name: &str) -> Option<view::PeerPoolView> {
        let status = self.peers.iter().find(|status| status.name == name)?;
        let is_leased = |member: &&Member| member.owner() == Some(status.id);
        let report = status.report.as_ref();
        Some(view::PeerPoolView {
            pool: self.pool.name().to_string(),
            availability: status.availability.as_ref().to_owned(),
            report: report.map(|report| report_view(self.pool, report)),
            forwarded: status.forwarded,
            returned: status.returned,
            in_flight: status.outstanding,
            leased: self.members.iter().filter(is_leased).count(),
        })
    }
}

fn peer_view(region: PeerState, pools: &[PoolSnapshot<'_>]) -> view::PeerView {
    let pools = pools.iter().filter_map(|pool| pool.peer(&region.name));
    view::PeerView {
        pools: pools.collect(),
        region,
    }
}
