//! `/api/regions`: the regions as this service sees them, and an operator's word that one is gone.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use isotherm_regions::AdoptionBlocker;
use isotherm_router::{PeerId, PeerReport, PeerStatus};

use super::auth::Authorization;
use super::error::ApiError;
use super::{Admin, AdminState, view};
use crate::pool::{Member, Pool, PoolRegistry};
use crate::regions::{PeerState, RegionsHandle, RegionsStatus, SiblingState};

pub(super) async fn show(State(admin): AdminState) -> Json<view::RegionsView> {
    let status = admin.regions.as_ref().map(RegionsHandle::status);
    Json(view_of(&admin.pool_registry, status.as_ref()))
}

pub(super) async fn lost(
    _: Authorization,
    State(admin): AdminState,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    declare(&admin, &name, true)
}

pub(super) async fn not_lost(
    _: Authorization,
    State(admin): AdminState,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    declare(&admin, &name, false)
}

fn declare(admin: &Admin, name: &str, lost: bool) -> Result<StatusCode, ApiError> {
    let regions = admin.regions.as_ref().ok_or_else(alone)?;
    regions.declare_lost(name, lost)?;
    Ok(StatusCode::NO_CONTENT)
}

fn alone() -> ApiError {
    let message = "this service knows no other regions: its configuration has no section `region`";
    ApiError::new(StatusCode::CONFLICT, "no_regions", message)
}

fn view_of(pool_registry: &PoolRegistry, status: Option<&RegionsStatus>) -> view::RegionsView {
    let pools = pool_registry.pools();
    let Some(status) = status else {
        return view::RegionsView {
            pools: pools.iter().map(|pool| own(pool)).collect(),
            ..view::RegionsView::default()
        };
    };
    let seen: Vec<_> = pools.iter().map(|pool| PoolPeers::from(pool)).collect();
    view::RegionsView {
        name: Some(status.name.clone()),
        gateway: status.has_gateway,
        successors: status.successors.clone(),
        pools: pools.iter().map(|pool| own(pool)).collect(),
        peers: status
            .peers
            .iter()
            .map(|peer| peer_of(peer, &seen))
            .collect(),
        siblings: status.siblings.iter().map(sibling_of).collect(),
    }
}

fn own(pool: &Pool) -> view::RegionPoolView {
    said(pool, &pool.report())
}

fn said(pool: &Pool, report: &PeerReport) -> view::RegionPoolView {
    view::RegionPoolView {
        pool: pool.name().to_string(),
        available: report.available,
        replicas: report.replicas,
        free_capacity: (report.free_capacity < u32::MAX).then_some(report.free_capacity),
        queue: report.queue,
        drain_per_s: report.drain_per_s,
    }
}

/// A pool's view of its peers, read under one lock.
struct PoolPeers<'a> {
    pool: &'a Pool,
    peers: Vec<PeerStatus>,
    members: Arc<Vec<Member>>,
}

impl<'a> PoolPeers<'a> {
    fn from(pool: &'a Pool) -> Self {
        Self {
            pool,
            peers: pool.peers(),
            members: Arc::clone(&pool.members().borrow()),
        }
    }

    /// A peer's pool of the same model; `None` while this pool does not know the peer.
    fn of(&self, peer: PeerId) -> Option<view::PeerPoolView> {
        let known = self.peers.iter().find(|known| known.id == peer)?;
        let adopted = |member: &&Member| member.adopted_from == Some(peer);
        Some(view::PeerPoolView {
            pool: self.pool.name().to_string(),
            availability: known.availability.as_str().to_owned(),
            said: known.report.map(|report| said(self.pool, &report)),
            forwarded: known.forwarded,
            returned: known.returned,
            in_flight: known.outstanding,
            adopted: self.members.iter().filter(adopted).count(),
        })
    }
}

fn peer_of(peer: &PeerState, pools: &[PoolPeers<'_>]) -> view::PeerView {
    view::PeerView {
        name: peer.name.clone(),
        cluster: peer.cluster.clone(),
        address: peer.address.clone(),
        link: peer.link.as_str().to_owned(),
        why: peer.link.why().map(str::to_owned),
        state: peer.state.as_str().to_owned(),
        blocked: peer.adoption_blocker.as_ref().map(blocked),
        round_trip_ms: peer.round_trip.map(fine_ms),
        heartbeat_age_ms: peer.heartbeat_age.map(ms),
        version: peer.version.clone(),
        replicas: peer.replicas,
        adopted: peer.adopted,
        held_by: peer.adopted_by.clone(),
        pools: pools.iter().filter_map(|seen| seen.of(peer.id)).collect(),
    }
}

fn sibling_of(sibling: &SiblingState) -> view::SiblingView {
    view::SiblingView {
        address: sibling.address.clone(),
        link: sibling.link.as_str().to_owned(),
        why: sibling.link.why().map(str::to_owned),
        round_trip_ms: sibling.round_trip.map(fine_ms),
        heartbeat_age_ms: sibling.heartbeat_age.map(ms),
        queue: sibling.queue,
    }
}

/// Why a region's replicas are not adopted here, for people.
fn blocked(blocked: &AdoptionBlocker) -> String {
    match blocked {
        AdoptionBlocker::Disabled => "adoption is switched off here".to_owned(),
        AdoptionBlocker::NoGateway => "no Envoy is connected here".to_owned(),
        AdoptionBlocker::NoRecord => "its replicas are not known here".to_owned(),
        AdoptionBlocker::NotProvedDead => "it is not proved to be dead".to_owned(),
        AdoptionBlocker::ReplicasUnreachable => "its replicas do not answer from here".to_owned(),
        AdoptionBlocker::Yielded => "another region is better placed".to_owned(),
        AdoptionBlocker::Unaccounted(region) => {
            format!("{region} may look after them, and is not heard")
        }
        AdoptionBlocker::AdoptedBy(region) => format!("{region} looks after them"),
        AdoptionBlocker::RegionAhead(region) => format!("{region} goes first"),
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// With three decimals: between services of one region it is a fraction of one.
fn fine_ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
