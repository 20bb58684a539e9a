//! The objects of the API server, with the few fields that the service reads.
//!
//! A pod has some ten kilobytes of JSON. The types here skip everything else while they parse, `managedFields` included,
//! and tolerate absent and unknown fields.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::core::{NamespaceResourceScope, ObjectMeta, Resource};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// An `InferencePool` of `inference.networking.k8s.io/v1`.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct InferencePool {
    #[serde(default, deserialize_with = "identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    pub(super) spec: InferencePoolSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InferencePoolSpec {
    pub(super) selector: LabelSelector,
    pub(super) target_ports: Vec<TargetPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct LabelSelector {
    pub(super) match_labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TargetPort {
    pub(super) number: u16,
}

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "RawPod")]
pub(super) struct Pod {
    metadata: ObjectMeta,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) is_terminating: bool,
    pub(super) containers: Vec<Container>,
    pub(super) status: PodStatus,
}

#[derive(Deserialize)]
struct RawPod {
    #[serde(default)]
    metadata: RawMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodSpec {
    containers: Vec<Container>,
}

/// A container that a pod asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) name: String,
    #[serde(deserialize_with = "null_as_empty")]
    pub(super) ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerPort {
    pub(super) container_port: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: Option<String>,
    pub(super) conditions: Vec<PodCondition>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) restart_count: u32,
}

/// A part of the endpoints of a Service: `EndpointSlice` of `discovery.k8s.io/v1`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    #[serde(default, deserialize_with = "identity")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) endpoints: Vec<SliceEndpoint>,
    #[serde(default, deserialize_with = "null_as_empty")]
    pub(super) ports: Vec<SlicePort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SliceEndpoint {
    pub(super) addresses: Vec<String>,
    pub(super) conditions: EndpointConditions,
    pub(super) target_ref: Option<TargetRef>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointConditions {
    pub(super) ready: Option<bool>,
    pub(super) terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TargetRef {
    pub(super) uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SlicePort {
    pub(super) name: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) protocol: Option<String>,
}

/// The metadata that the service reads.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RawMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Option<BTreeMap<String, String>>,
    labels: Option<BTreeMap<String, String>>,
}

impl RawMetadata {
    fn into_identity(self) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            uid: self.uid,
            resource_version: self.resource_version,
            ..ObjectMeta::default()
        }
    }
}

impl From<RawPod> for Pod {
    fn from(mut raw: RawPod) -> Self {
        let annotations = raw.metadata.annotations.take().unwrap_or_default();
        let labels = raw.metadata.labels.take().unwrap_or_default();
        Self {
            is_terminating: raw.metadata.deletion_timestamp.is_some(),
            annotations,
            labels,
            metadata: raw.metadata.into_identity(),
            containers: raw.spec.containers,
            status: raw.status,
        }
    }
}

fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(RawMetadata::deserialize(deserializer)?.into_identity())
}

/// Go's encoder writes an empty list as `null`.
fn null_as_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

macro_rules! resource {
    ($object:ident, $kind:literal, $group:literal, $plural:literal) => {
        impl Resource for $object {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                "v1".into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(
    InferencePool,
    "InferencePool",
    "inference.networking.k8s.io",
    "inferencepools"
);
resource!(Pod, "Pod", "", "pods");
resource!(
    EndpointSlice,
    "EndpointSlice",
    "discovery.k8s.io",
    "endpointslices"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inference_pool_without_an_endpoint_picker_and_with_unknown_fields_is_read() {
        let pool: InferencePool = serde_json::from_value(serde_json::json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": { "name": "llm", "uid": "u", "managedFields": [{ "manager": "kubectl" }] },
            "spec": {
                "selector": { "matchLabels": { "app": "vllm" }, "matchExpressions": [] },
                "targetPorts": [{ "number": 8000, "name": "new" }, { "number": 8001 }],
                "appProtocol": "http", "future": { "field": 1 }
            },
            "status": { "parents": [] }
        }))
        .unwrap();
        assert_eq!(pool.meta().name.as_deref(), Some("llm"));
        assert!(pool.meta().managed_fields.is_none());
        assert_eq!(pool.spec.selector.match_labels["app"], "vllm");
        let ports: Vec<u16> = pool
            .spec
            .target_ports
            .iter()
            .map(|port| port.number)
            .collect();
        assert_eq!(ports, [8000, 8001]);
    }

    #[test]
    fn a_pod_keeps_its_identity_its_labels_and_its_status() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "annotations": { "k": "v" }, "labels": { "app": "vllm" }
            },
            "spec": { "containers": [{ "name": "vllm", "image": "x" }] },
            "status": {
                "podIP": "10.0.0.1", "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True", "lastProbeTime": null }],
                "containerStatuses": [{ "name": "vllm", "restartCount": 2, "ready": true }]
            }
        }))
        .unwrap();
        assert!(pod.is_terminating);
        assert_eq!(pod.meta().resource_version.as_deref(), Some("7"));
        assert_eq!(pod.annotations["k"], "v");
        assert_eq!(pod.labels["app"], "vllm");
        assert_eq!(pod.status.pod_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(pod.containers[0].name, "vllm");
        assert_eq!(pod.status.container_statuses[0].name, "vllm");
        assert_eq!(pod.status.container_statuses[0].restart_count, 2);
    }

    #[test]
    fn an_endpoint_slice_with_null_lists_is_empty() {
        let slice: EndpointSlice =
            serde_json::from_str(r#"{"metadata":{"name":"s"},"endpoints":null,"ports":null}"#)
                .unwrap();
        assert!(slice.endpoints.is_empty() && slice.ports.is_empty());
    }
}
