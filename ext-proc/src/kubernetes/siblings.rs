//! Finds the siblings of this service: the other pods behind its headless Service.
//!
//! A sibling counts before it is ready, since a starting service needs the prefix index of the others, and until it
//! terminates. All services of a region are equal; there is no lease and no leader among them.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use tokio::sync::{mpsc, watch};

use super::client::KubernetesClient;
use super::follow::service_label;
use super::list::List;
use super::objects::EndpointSlice;
use super::problem::{Problem, ProblemLog};
use super::slices::{self, SliceState};
use super::watch::{EVENTS_MAX, WatchQuery, watch};
use super::{Follower, SiblingReport, SiblingService};
use crate::tasks::AbortOnDrop;

/// The environment variable with the address of this pod.
const POD_IP: &str = "POD_IP";
/// Limit of siblings. A region has a handful.
const SIBLINGS_MAX: usize = 64;

/// Follows the siblings behind `service`.
pub(crate) fn follow_siblings(
    client: &KubernetesClient,
    service: SiblingService,
) -> Follower<SiblingReport> {
    let own = std::env::var(POD_IP).ok().and_then(|ip| ip.parse().ok());
    Follower::spawn(|siblings| run(client.clone(), service, own, siblings))
}

pub(super) async fn run(
    client: KubernetesClient,
    service: SiblingService,
    own: Option<IpAddr>,
    siblings: watch::Sender<SiblingReport>,
) {
    let mut log = ProblemLog::default();
    let connection = client.connect(|problem| warn_of(&problem, &mut log)).await;
    let query = WatchQuery {
        namespace: connection.namespace(service.namespace.as_deref()),
        labels: Some(service_label(&service.name)),
        name: None,
    };
    let (sender, mut receiver) = mpsc::channel(EVENTS_MAX);
    let read = |slice: EndpointSlice| SliceState::of(slice);
    let task = tokio::spawn(watch(connection, query, read, sender, |news| news));
    let _task = AbortOnDrop(task.abort_handle());
    let mut list = List::default();
    while let Some(news) = receiver.recv().await {
        match news {
            Err(problem) => warn_of(&problem, &mut log),
            Ok(event) => {
                if list.handle(event) && log.is_over() {
                    tracing::info!("Kubernetes shows the siblings again");
                }
            }
        }
        if list.is_whole() {
            let addresses = addresses(&list, own, service.port);
            siblings.send_if_modified(|known| {
                let is_new = known.as_ref() != Some(&addresses);
                if is_new {
                    tracing::info!(service = service.name, siblings = ?addresses, "siblings found");
                    *known = Some(addresses);
                }
                is_new
            });
        }
    }
}

/// The addresses of the siblings in order, without this service's own.
fn addresses(slices: &List<SliceState>, own: Option<IpAddr>, port: u16) -> Vec<SocketAddr> {
    let others = slices::addresses(slices.objects()).filter(|ip| !is_own(*ip, own));
    let mut addresses = Vec::from_iter(others.map(|ip| SocketAddr::new(ip, port)));
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(SIBLINGS_MAX);
    addresses
}

/// Whether `ip` is the given address of this pod. If none is given: whether an interface has it, since the system binds
/// a socket to no other address.
fn is_own(ip: IpAddr, own: Option<IpAddr>) -> bool {
    match own {
        Some(own) => ip == own,
        None => UdpSocket::bind((ip, 0)).is_ok(),
    }
}

fn warn_of(problem: &Problem, log: &mut ProblemLog) {
    if log.note(problem) {
        tracing::warn!(
            problem = problem.text,
            "Kubernetes does not show the siblings; the known ones stay"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_machine_is_its_own_unless_the_pod_names_its_address() {
        let local = IpAddr::from([127, 0, 0, 1]);
        // TEST-NET-1: no interface has it.
        let foreign = IpAddr::from([192, 0, 2, 1]);
        assert!(is_own(local, None) && !is_own(foreign, None));
        assert!(!is_own(local, Some(foreign)) && is_own(foreign, Some(foreign)));
    }
}
