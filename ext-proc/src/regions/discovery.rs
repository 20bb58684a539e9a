//! Siblings that Kubernetes lists: the other pods behind the headless Service `region.siblings_service`.
//!
//! A sibling counts before it is ready, since a starting service needs the prefix index of the others, and until its pod is gone.
//! All services of a region are equal; there is no lease and no leader among them.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::config::{Address, KubernetesSource, KubernetesTarget, RegionConfig, ServicePort};

/// The environment variable with the address of this pod.
const POD_IP: &str = "POD_IP";
/// Limit of siblings. A region has a handful.
const SIBLINGS_MAX: usize = 64;

/// Returns the Service of the siblings, which all listen at `port`.
pub(super) fn sibling_source(config: &RegionConfig, port: u16) -> Option<KubernetesSource> {
    let name = config.siblings_service.clone()?;
    let port = Some(ServicePort::Unlisted(port));
    Some(KubernetesSource {
        target: KubernetesTarget::Service { name, port },
        namespace: None,
    })
}

/// Returns the addresses of the siblings among the pods of their Service.
pub(super) fn siblings(pods: impl Iterator<Item = SocketAddr>) -> impl Iterator<Item = Address> {
    let own = std::env::var(POD_IP).ok().and_then(|ip| ip.parse().ok());
    let others = pods.filter(move |address| !is_own(address.ip(), own));
    others.take(SIBLINGS_MAX).map(Address::from)
}

/// Whether `ip` is the given address of this pod. If none is given: whether an interface has it, since the system binds
/// a socket to no other address.
fn is_own(ip: IpAddr, own: Option<IpAddr>) -> bool {
    match own {
        Some(own) => ip == own,
        None => UdpSocket::bind((ip, 0)).is_ok(),
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
