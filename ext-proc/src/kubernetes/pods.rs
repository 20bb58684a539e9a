//! The replicas behind pods: every ready pod at every port of its pool.
//!
//! A data-parallel engine serves each rank at a port of its own, so each port is a replica. The annotation
//! `llm-d.ai/active-ports` names the ports that a pod serves, if it serves fewer than its pool lists.
//!
//! The label `llm-d.ai/role` gives the part of a request that a pod serves. As in llm-d, a pod without it serves both parts, and
//! one with a value that names neither (`encode`, or an unknown one) gets no request.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use isotherm_router::Role;
use kube::core::Resource as _;

use super::objects::Pod;
use super::{DiscoveredReplica, DiscoveredReplicas};

/// Annotations that restrict the ports of a pod, the current name first.
const ACTIVE_PORTS: [&str; 2] = [
    "llm-d.ai/active-ports",
    "inference.networking.k8s.io/active-ports",
];
/// Label with the part of a request that a pod serves.
const ROLE: &str = "llm-d.ai/role";
/// Limit of ports that the annotation of one pod may name.
const ACTIVE_PORTS_MAX: usize = 64;

/// The state of a pod that decides about its replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodState {
    ip: Option<IpAddr>,
    is_ready: bool,
    uid: Option<String>,
    /// The containers, as the pod asks for them.
    containers: Vec<ContainerState>,
    active_ports: Option<Vec<u16>>,
    role: PodRole,
}

/// A container with the ports that it names, and the number of its restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContainerState {
    ports: Vec<u16>,
    restarts: u32,
}

/// The value of the label [`ROLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodRole {
    Known(Role),
    /// The pod encodes images for other pods.
    Encode,
    Unknown,
}

impl PodRole {
    fn of(label: Option<&str>) -> Self {
        match label {
            None | Some("" | "both" | "prefill-decode" | "encode-prefill-decode") => {
                Self::Known(Role::Both)
            }
            Some("prefill" | "encode-prefill") => Self::Known(Role::Prefill),
            Some("decode") => Self::Known(Role::Decode),
            Some("encode") => Self::Encode,
            Some(_) => Self::Unknown,
        }
    }
}

impl PodState {
    pub(super) fn of(pod: &Pod) -> Self {
        let is_ready = |condition: &super::objects::PodCondition| {
            condition.kind == "Ready" && condition.status == "True"
        };
        let restarts = |name: &str| {
            let mut statuses = pod.status.container_statuses.iter();
            let status = statuses.find(|status| status.name == name);
            status.map_or(0, |status| status.restart_count)
        };
        let containers = pod.containers.iter().map(|container| ContainerState {
            ports: container
                .ports
                .iter()
                .map(|port| port.container_port)
                .collect(),
            restarts: restarts(&container.name),
        });
        let annotations = ACTIVE_PORTS
            .iter()
            .find_map(|name| pod.annotations.get(*name));
        Self {
            ip: pod.status.pod_ip.as_ref().and_then(|ip| ip.parse().ok()),
            is_ready: !pod.is_terminating && pod.status.conditions.iter().any(is_ready),
            uid: pod.meta().uid.clone(),
            containers: containers.collect(),
            active_ports: annotations.map(|ports| parse_ports(ports)),
            role: PodRole::of(pod.labels.get(ROLE).map(String::as_str)),
        }
    }

    /// Hash that another process at the same address does not share: of the pod's id, and of the restarts of the container that
    /// serves the port. The restart of a sidecar is none of the engine. Where no container names the port, the first one serves it.
    fn incarnation(&self, port: u16) -> u64 {
        let mut containers = self.containers.iter();
        let named = containers.find(|container| container.ports.contains(&port));
        let container = named.or(self.containers.first());
        let mut hasher = DefaultHasher::new();
        self.uid.hash(&mut hasher);
        container
            .map(|container| container.restarts)
            .hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the pod gets no request because nothing is known of its role.
    pub(super) fn has_unknown_role(&self) -> bool {
        self.role == PodRole::Unknown
    }

    /// Adds the replicas of the pod. A pod without an address has none.
    pub(super) fn add_to(&self, endpoints: &mut DiscoveredReplicas, ports: &[u16]) {
        let (Some(ip), PodRole::Known(role)) = (self.ip, self.role) else {
            return;
        };
        let is_active = |port: &&u16| {
            let active = self.active_ports.as_ref();
            active.is_none_or(|active| active.contains(port))
        };
        for port in ports.iter().filter(is_active) {
            let endpoint = DiscoveredReplica {
                incarnation: self.incarnation(*port),
                is_draining: !self.is_ready,
                role,
            };
            endpoints.add(SocketAddr::new(ip, *port), endpoint);
        }
    }
}

/// Parses `8000,8001`. As in llm-d, text that is no port names none.
fn parse_ports(text: &str) -> Vec<u16> {
    let ports = text.split(',').take(ACTIVE_PORTS_MAX);
    ports.filter_map(|port| port.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(change: impl FnOnce(&mut Value)) -> PodState {
        let mut pod = json!({
            "metadata": { "name": "a", "uid": "1" },
            "spec": { "containers": [
                { "name": "istio-proxy", "ports": [{ "containerPort": 15090 }] },
                { "name": "vllm", "ports": [{ "containerPort": 8000 }] }
            ] },
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Ready", "status": "True" }],
                "containerStatuses": [{ "name": "istio-proxy", "restartCount": 0 }, { "name": "vllm", "restartCount": 0 }]
            }
        });
        change(&mut pod);
        PodState::of(&serde_json::from_value(pod).unwrap())
    }

    /// The ports at which requests may be sent, and the draining ports.
    fn ports(pod: &PodState) -> (Vec<u16>, Vec<u16>) {
        let mut endpoints = DiscoveredReplicas::default();
        pod.add_to(&mut endpoints, &[8000, 8001]);
        let of = |is_draining| {
            let endpoints = endpoints.iter();
            let endpoints =
                endpoints.filter(move |(_, endpoint)| endpoint.is_draining == is_draining);
            endpoints.map(|(address, _)| address.port()).collect()
        };
        (of(false), of(true))
    }

    #[test]
    fn a_ready_pod_is_a_replica_at_every_port() {
        assert_eq!(ports(&pod(|_| {})), (vec![8000, 8001], vec![]));
    }

    #[test]
    fn an_unready_or_terminating_pod_drains() {
        let unready = pod(|pod| pod["status"]["conditions"][1]["status"] = "False".into());
        assert_eq!(ports(&unready), (vec![], vec![8000, 8001]));
        let terminating =
            pod(|pod| pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
        assert_eq!(ports(&terminating), (vec![], vec![8000, 8001]));
    }

    #[test]
    fn a_pod_without_an_address_has_no_replica() {
        let starting = pod(|pod| {
            pod["status"].as_object_mut().unwrap().remove("podIP");
        });
        assert_eq!(ports(&starting), (vec![], vec![]));
    }

    #[test]
    fn the_annotation_restricts_the_ports_and_its_current_name_wins() {
        let restricted =
            |annotations: Value| ports(&pod(|pod| pod["metadata"]["annotations"] = annotations)).0;
        assert_eq!(
            restricted(json!({ ACTIVE_PORTS[0]: " 8001 , 9000,x" })),
            [8001]
        );
        assert_eq!(restricted(json!({ ACTIVE_PORTS[1]: "8000" })), [8000]);
        let both = json!({ ACTIVE_PORTS[0]: "8001", ACTIVE_PORTS[1]: "8000" });
        assert_eq!(restricted(both), [8001]);
        assert!(restricted(json!({ ACTIVE_PORTS[0]: "" })).is_empty());
    }

    #[test]
    fn the_label_gives_the_role_of_a_pod() {
        let role_of = |label: Option<&str>| {
            let pod = pod(|pod| {
                if let Some(label) = label {
                    pod["metadata"]["labels"] = json!({ ROLE: label });
                }
            });
            let mut endpoints = DiscoveredReplicas::default();
            pod.add_to(&mut endpoints, &[8000]);
            let role = endpoints.iter().next().map(|(_, replica)| replica.role);
            (role, pod.has_unknown_role())
        };
        let both = ["both", "prefill-decode", "encode-prefill-decode"].map(Some);
        for label in both.into_iter().chain([None]) {
            assert_eq!(role_of(label), (Some(Role::Both), false), "{label:?}");
        }
        assert_eq!(role_of(Some("decode")), (Some(Role::Decode), false));
        for label in ["prefill", "encode-prefill"] {
            assert_eq!(role_of(Some(label)), (Some(Role::Prefill), false));
        }
        assert_eq!(role_of(Some("encode")), (None, false));
        assert_eq!(role_of(Some("prefil")), (None, true));
    }

    #[test]
    fn a_recreated_pod_and_a_restarted_engine_are_other_processes() {
        let first = pod(|_| {}).incarnation(8000);
        let recreated = pod(|pod| pod["metadata"]["uid"] = "2".into());
        let restarted = pod(|pod| pod["status"]["containerStatuses"][1]["restartCount"] = 1.into());
        assert_ne!(first, recreated.incarnation(8000));
        assert_ne!(first, restarted.incarnation(8000));
        let unready = pod(|pod| pod["status"]["conditions"][1]["status"] = "False".into());
        assert_eq!(first, unready.incarnation(8000));
    }

    #[test]
    fn the_restart_of_a_sidecar_is_none_of_the_engine() {
        let restarted = pod(|pod| pod["status"]["containerStatuses"][0]["restartCount"] = 3.into());
        assert_eq!(
            pod(|_| {}).incarnation(8000),
            restarted.incarnation(8000),
            "another container names the port"
        );
        // No container names this port, so the first one is the engine.
        assert_ne!(pod(|_| {}).incarnation(8001), restarted.incarnation(8001));
    }
}
