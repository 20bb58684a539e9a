//! The addresses behind the EndpointSlices of a Service.
//!
//! A dual-stack Service has slices of both families, which name the same pods: of those the service takes IPv4. A pod
//! may stand in two slices for a moment while the control plane moves it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use isotherm_router::Role;

use super::objects::{EndpointSlice, SliceEndpoint};
use super::{DiscoveredReplica, DiscoveredReplicas};
use crate::config::ServicePort;

/// Limit of ports that a message about a Service lists.
const PORTS_SHOWN_MAX: usize = 8;

/// An EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceState {
    endpoints: Vec<SliceAddress>,
    /// TCP ports with their names. An unnamed port has the empty name.
    ports: Vec<(String, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SliceAddress {
    ip: IpAddr,
    incarnation: u64,
    is_ready: bool,
}

impl SliceState {
    pub(super) fn of(slice: EndpointSlice) -> Self {
        let is_tcp = |protocol: &Option<String>| protocol.as_deref().is_none_or(|p| p == "TCP");
        let ports = slice
            .ports
            .into_iter()
            .filter(|port| is_tcp(&port.protocol));
        let ports = ports.filter_map(|port| Some((port.name.unwrap_or_default(), port.port?)));
        Self {
            endpoints: slice
                .endpoints
                .iter()
                .filter_map(SliceAddress::of)
                .collect(),
            ports: ports.collect(),
        }
    }

    /// Returns the number of the port; `None` if the slice does not have it, or has several and none is named.
    fn port(&self, wanted: Option<&ServicePort>) -> Option<u16> {
        match wanted {
            None => match self.ports.as_slice() {
                [(_, only)] => Some(*only),
                _ => None,
            },
            Some(ServicePort::Number(number)) => {
                let mut ports = self.ports.iter().map(|(_, port)| *port);
                ports.find(|port| port == number)
            }
            Some(ServicePort::Unlisted(number)) => Some(*number),
            Some(ServicePort::Name(name)) => {
                let mut ports = self.ports.iter();
                ports
                    .find(|(known, _)| known == name)
                    .map(|(_, port)| *port)
            }
        }
    }
}

impl SliceAddress {
    /// The address of an endpoint; `None` for a host name.
    fn of(endpoint: &SliceEndpoint) -> Option<Self> {
        let mut hasher = DefaultHasher::new();
        endpoint
            .target_ref
            .as_ref()
            .map(|target| &target.uid)
            .hash(&mut hasher);
        let is_terminating = endpoint.conditions.terminating == Some(true);
        Some(Self {
            ip: endpoint.addresses.first()?.parse().ok()?,
            incarnation: hasher.finish(),
            // Absent means ready.
            is_ready: endpoint.conditions.ready != Some(false) && !is_terminating,
        })
    }
}

/// The replicas behind slices, or the reason why a slice does not tell their port.
pub(super) fn replicas<'a>(
    slices: impl Iterator<Item = &'a SliceState> + Clone,
    port: Option<&ServicePort>,
) -> (DiscoveredReplicas, Option<String>) {
    let (mut endpoints, mut problem) = (DiscoveredReplicas::default(), None);
    let mut all = slices.clone().flat_map(|slice| &slice.endpoints);
    let has_ipv4 = all.any(|address| address.ip.is_ipv4());
    for slice in slices.filter(|slice| !slice.endpoints.is_empty()) {
        let Some(number) = slice.port(port) else {
            problem = Some(port_problem(slice, port));
            continue;
        };
        for address in &slice.endpoints {
            if address.ip.is_ipv4() == has_ipv4 {
                let endpoint = DiscoveredReplica {
                    incarnation: address.incarnation,
                    is_draining: !address.is_ready,
                    // An EndpointSlice has no labels of its pods.
                    role: Role::Both,
                };
                endpoints.add(SocketAddr::new(address.ip, number), endpoint);
            }
        }
    }
    (endpoints, problem)
}

fn port_problem(slice: &SliceState, wanted: Option<&ServicePort>) -> String {
    let shown = slice
        .ports
        .iter()
        .take(PORTS_SHOWN_MAX)
        .map(|(name, port)| match name.as_str() {
            "" => port.to_string(),
            name => format!("{port} (`{name}`)"),
        });
    let ports = match Vec::from_iter(shown) {
        shown if shown.is_empty() => "none".to_owned(),
        shown => shown.join(", "),
    };
    match wanted {
        None => format!(
            "its EndpointSlices have several TCP ports or none: give one as `port` (it has: {ports})"
        ),
        Some(wanted) => {
            format!("its EndpointSlices have no TCP port {wanted}: change `port` (it has: {ports})")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(endpoints: Value, ports: Value) -> SliceState {
        let slice = json!({ "metadata": { "name": "s" }, "endpoints": endpoints, "ports": ports });
        SliceState::of(serde_json::from_value(slice).unwrap())
    }

    fn one_port() -> Value {
        json!([{ "name": "", "port": 8000, "protocol": "TCP" }])
    }

    /// Addresses of a Service with their draining state.
    fn shown(slices: &[SliceState], port: Option<&ServicePort>) -> Vec<(String, bool)> {
        let (endpoints, _) = replicas(slices.iter(), port);
        let endpoints = endpoints.iter();
        endpoints
            .map(|(address, endpoint)| (address.to_string(), endpoint.is_draining))
            .collect()
    }

    #[test]
    fn an_endpoint_without_conditions_is_ready_and_an_unready_or_terminating_one_drains() {
        let endpoints = json!([
            { "addresses": ["10.0.0.1"] },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.3"], "conditions": { "ready": true, "serving": true, "terminating": true } },
            { "addresses": ["engine.example"], "conditions": { "ready": true } }
        ]);
        let slices = [slice(endpoints, one_port())];
        let expected = [
            ("10.0.0.1:8000", false),
            ("10.0.0.2:8000", true),
            ("10.0.0.3:8000", true),
        ];
        assert_eq!(
            shown(&slices, None),
            expected.map(|(a, d)| (a.to_owned(), d))
        );
    }

    #[test]
    fn a_port_is_found_by_number_and_by_name_and_must_be_named_among_several() {
        let ports = json!([
            { "name": "http", "port": 8000 },
            { "name": "dns", "port": 53, "protocol": "UDP" },
            { "name": "metrics", "port": 9090, "protocol": "TCP" }
        ]);
        let slices = [slice(json!([{ "addresses": ["10.0.0.1"] }]), ports)];
        let name = |name: &str| ServicePort::Name(name.into());
        assert_eq!(shown(&slices, Some(&name("metrics")))[0].0, "10.0.0.1:9090");
        assert_eq!(
            shown(&slices, Some(&ServicePort::Number(8000)))[0].0,
            "10.0.0.1:8000"
        );
        let problem = |port: Option<&ServicePort>| replicas(slices.iter(), port).1.unwrap();
        let known = "(it has: 8000 (`http`), 9090 (`metrics`))";
        assert!(problem(None).contains(known), "{}", problem(None));
        let dns = problem(Some(&name("dns")));
        assert!(
            dns.contains("no TCP port `dns`") && dns.contains(known),
            "{dns}"
        );
    }

    #[test]
    fn an_empty_slice_needs_no_port() {
        let slices = [slice(Value::Null, Value::Null)];
        assert_eq!(
            replicas(slices.iter(), None),
            (DiscoveredReplicas::default(), None)
        );
    }

    #[test]
    fn a_dual_stack_service_counts_each_pod_once() {
        let four = slice(json!([{ "addresses": ["10.0.0.1"] }]), one_port());
        let six = slice(json!([{ "addresses": ["fd00::1"] }]), one_port());
        let both = [six.clone(), four];
        assert_eq!(shown(&both, None), [("10.0.0.1:8000".to_owned(), false)]);
        assert_eq!(shown(&[six], None), [("[fd00::1]:8000".to_owned(), false)]);
    }

    #[test]
    fn an_address_in_two_slices_is_ready_if_one_of_them_says_so() {
        let old = slice(
            json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": false } }]),
            one_port(),
        );
        let new = slice(json!([{ "addresses": ["10.0.0.1"] }]), one_port());
        for slices in [[old.clone(), new.clone()], [new, old]] {
            assert_eq!(shown(&slices, None), [("10.0.0.1:8000".to_owned(), false)]);
        }
    }
}
