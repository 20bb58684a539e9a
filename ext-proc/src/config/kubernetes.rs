//! Kubernetes as a source: `pools[].replicas.kubernetes`, and the Service of this region's siblings.

use std::fmt;

use super::errors::Reader;
use super::options::{RawKubernetes, RegionConfig};
use super::service_port::ServicePort;

/// Replicas that the API server of Kubernetes lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSource {
    /// Selection of the replicas.
    pub target: KubernetesTarget,
    /// The namespace; `None` for the namespace of this pod, or of the context of KUBECONFIG.
    pub namespace: Option<String>,
}

/// Selection of replicas in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesTarget {
    /// The name of an InferencePool.
    InferencePool(String),
    /// Pods.
    Pods {
        /// Label selector, as the API server reads it.
        selector: String,
        /// The ports of each pod, every one a replica.
        ports: Vec<u16>,
    },
    /// The endpoints of a Service.
    Service {
        /// The name of the Service.
        name: String,
        /// The port of its EndpointSlices; `None` for the only one.
        port: Option<ServicePort>,
    },
}

impl fmt::Display for KubernetesSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            KubernetesTarget::InferencePool(name) => write!(f, "InferencePool {name}")?,
            KubernetesTarget::Pods { selector, ports } => {
                let ports = Vec::from_iter(ports.iter().map(u16::to_string)).join(", ");
                write!(f, "pods {selector} at {ports}")?;
            }
            KubernetesTarget::Service { name, port } => {
                write!(f, "Service {name}")?;
                if let Some(port) = port {
                    write!(f, " at {port}")?;
                }
            }
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// Resolves the section `option`; `None` if it has a mistake.
pub(super) fn resolve(
    raw: RawKubernetes,
    option: &str,
    reader: &mut Reader,
) -> Option<KubernetesSource> {
    let target = match (raw.inference_pool, raw.selector, raw.service) {
        (Some(name), None, None) => {
            if !raw.ports.is_empty() {
                let message = "an InferencePool lists its ports itself: remove them";
                reader.error(&format!("{option}.ports"), message);
            }
            KubernetesTarget::InferencePool(name)
        }
        (None, Some(selector), None) => KubernetesTarget::Pods {
            selector,
            ports: pod_ports(&raw.ports, &format!("{option}.ports"), reader),
        },
        (None, None, Some(name)) => {
            if raw.ports.len() > 1 {
                let message = "a Service has one port for replicas: give its number or its name";
                reader.error(&format!("{option}.ports"), message);
            }
            KubernetesTarget::Service {
                name,
                port: raw.ports.into_iter().next(),
            }
        }
        (None, None, None) => {
            let members = ["inference_pool", "selector", "service"];
            if members
                .iter()
                .all(|member| reader.is_valid(&format!("{option}.{member}")))
            {
                reader.error(
                    option,
                    "give one of `inference_pool`, `selector` and `service`",
                );
            }
            return None;
        }
        _ => {
            let message = "give only one of `inference_pool`, `selector` and `service`";
            reader.error(option, message);
            return None;
        }
    };
    Some(KubernetesSource {
        target,
        namespace: raw.namespace,
    })
}

/// The ports of each pod of a selector, which has no names for them.
fn pod_ports(ports: &[ServicePort], option: &str, reader: &mut Reader) -> Vec<u16> {
    let number = |port: &ServicePort| match port {
        ServicePort::Number(number) => Some(*number),
        ServicePort::Name(_) | ServicePort::Unlisted(_) => None,
    };
    let numbers = Vec::from_iter(ports.iter().filter_map(number));
    if (numbers.is_empty() || numbers.len() < ports.len()) && reader.is_valid(option) {
        let message = "must be given with `selector`: the numbers of the ports of each pod";
        reader.error(option, message);
    }
    numbers
}

/// Checks the Service of the siblings.
pub(super) fn check_siblings(region: &RegionConfig, reader: &mut Reader) {
    let option = "region.siblings_service";
    if region.siblings_service.is_some() && !region.siblings.is_empty() {
        let message = "`region.siblings` is given as well: list the siblings, or name their Service, not both";
        reader.error(option, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, parse};

    fn source(members: &str) -> KubernetesSource {
        let text = format!("pools: [{{ replicas: {{ kubernetes: {{ {members} }} }} }}]");
        let Config { mut pools, .. } = parse(&text).unwrap();
        pools.remove(0).sources.kubernetes.unwrap()
    }

    /// The mistakes of a section, without their locations.
    fn mistakes(members: &str) -> Vec<String> {
        let text = format!("pools:\n- replicas:\n    kubernetes: {{ {members} }}");
        let errors = parse(&text).unwrap_err().errors.into_iter();
        errors
            .map(|error| {
                assert_eq!(error.location.unwrap().line, 3, "{error}");
                let option = error
                    .option
                    .trim_start_matches("pools[0].replicas.")
                    .to_owned();
                format!("{option}: {}", error.message)
            })
            .collect()
    }

    #[test]
    fn each_kind_of_source_is_read() {
        for (members, shown) in [
            (
                "inference_pool: llm, namespace: prod",
                "InferencePool llm in prod",
            ),
            (
                "selector: 'app=vllm,tier in (a, b)', ports: [8000, 8001]",
                "pods app=vllm,tier in (a, b) at 8000, 8001",
            ),
            ("service: engines", "Service engines"),
            ("service: engines, ports: [8000]", "Service engines at 8000"),
            (
                "service: engines, ports: [http]",
                "Service engines at `http`",
            ),
        ] {
            assert_eq!(source(members).to_string(), shown);
        }
    }

    #[test]
    fn a_source_names_one_of_its_three_kinds() {
        for (members, message) in [
            ("namespace: prod", "kubernetes: give one of"),
            (
                "inference_pool: a, service: b",
                "kubernetes: give only one of",
            ),
            ("selector: a=b", "kubernetes.ports: must be given"),
            (
                "selector: a=b, ports: [80, http]",
                "kubernetes.ports: must be given",
            ),
            (
                "service: a, ports: [80, 81]",
                "kubernetes.ports: a Service has one port",
            ),
            (
                "inference_pool: a, ports: [1]",
                "kubernetes.ports: an InferencePool lists its ports",
            ),
            (
                "inference_pool: A_b",
                "kubernetes.inference_pool: `A_b` is not a name",
            ),
            ("selector: '', ports: [80]", "kubernetes.selector: "),
            ("service: a, ports: [70000]", "kubernetes.ports[0]: "),
            ("service: a, ports: [Http!]", "kubernetes.ports[0]: "),
            ("selector: a=b, ports: [80, 80]", "kubernetes.ports[1]: "),
        ] {
            let mistakes = mistakes(members);
            let [mistake] = mistakes.as_slice() else {
                panic!("{members}: {mistakes:?}");
            };
            assert!(mistake.starts_with(message), "{mistake}");
        }
    }

    #[test]
    fn siblings_are_listed_or_found_not_both() {
        let region = |members: &str| {
            let text = format!("region: {{ name: us, listen: '127.0.0.1:9004', {members} }}");
            parse(&text)
        };
        let found = region("siblings_service: isotherm")
            .unwrap()
            .region
            .unwrap();
        assert!(found.rules().share);
        let error = |members: &str| region(members).unwrap_err().errors.remove(0).to_string();
        assert!(error("siblings_service: a, siblings: ['127.0.0.1:1']").contains("not both"));
    }
}
