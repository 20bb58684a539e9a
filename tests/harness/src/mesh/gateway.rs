//! The gateways that the manifests of `deploy/` configure, and the programs that each needs.

use std::path::PathBuf;

use anyhow::bail;
use serde_json::{Value, json};

use super::own_root::check_root;
use crate::tools::{ai_gateway_controller, control_plane_envoy, mesh_program};

/// A gateway with the manifests that put Isotherm into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeshGateway {
    /// Envoy Gateway in front of a Service, with the filter.
    EnvoyGateway,
    /// Envoy AI Gateway in front of an InferencePool, with the filter.
    AiGateway,
    /// Istio in front of an InferencePool, with the filter.
    Istio,
    /// Istio in front of a Service, with the filter.
    IstioService,
    /// Istio in front of an InferencePool, without the filter: it sends whole bodies to the service.
    InferencePool,
}

impl MeshGateway {
    /// All gateways.
    pub const ALL: [Self; 5] = [
        Self::EnvoyGateway,
        Self::AiGateway,
        Self::Istio,
        Self::IstioService,
        Self::InferencePool,
    ];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::EnvoyGateway => "envoy-gateway",
            Self::AiGateway => "ai-gateway",
            Self::Istio => "istio",
            Self::IstioService => "istio-service",
            Self::InferencePool => "inference-pool",
        }
    }

    /// The manifest, below the root of the repository.
    pub fn manifest(self) -> &'static str {
        match self {
            Self::EnvoyGateway => "deploy/mesh/envoy-gateway.yaml",
            Self::AiGateway => "deploy/mesh/ai-gateway.yaml",
            Self::Istio => "deploy/mesh/istio.yaml",
            Self::IstioService => "deploy/mesh/istio-service.yaml",
            Self::InferencePool => "deploy/mesh/inference-pool.yaml",
        }
    }

    /// Whether the prompt stays in the proxy, as the gateway's page in `docs/mesh` says.
    pub fn keeps_prompts(self) -> bool {
        self != Self::InferencePool
    }

    /// Names of the programs of the mesh, as `cargo xtask mesh-tools --only` takes them.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::EnvoyGateway => &["envoy-gateway"],
            Self::AiGateway => &["envoy-gateway", "crds", "etcd", "kube-apiserver", "helm"],
            Self::Istio | Self::IstioService | Self::InferencePool => {
                &["pilot-discovery", "crds", "etcd", "kube-apiserver"]
            }
        }
    }

    /// The control plane, by its name in `envoy/envoy-version.toml`.
    fn control_plane(self) -> &'static str {
        match self {
            Self::EnvoyGateway => "envoy-gateway",
            Self::AiGateway => "ai-gateway",
            Self::Istio | Self::IstioService | Self::InferencePool => "istio",
        }
    }

    /// The Envoy of the control plane's release.
    pub(super) fn envoy(self) -> anyhow::Result<PathBuf> {
        control_plane_envoy(self.control_plane())
    }

    /// Finds the programs of the mesh. The error names what is missing, and the command that gets it.
    pub fn find_programs(self) -> anyhow::Result<Vec<PathBuf>> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in self.programs() {
            match mesh_program(name) {
                Ok(path) => found.push(path),
                Err(error) => missing.push(error.to_string()),
            }
        }
        missing.extend(self.envoy().err().map(|error| error.to_string()));
        if self == Self::AiGateway {
            let found = ai_gateway_controller().and_then(|_| check_root());
            missing.extend(found.err().map(|error| error.to_string()));
        }
        if !missing.is_empty() {
            bail!("{}", missing.join("; "));
        }
        Ok(found)
    }

    /// The service's source of replicas, as the gateway's page configures it.
    pub(super) fn replicas(self, engines: &[String]) -> Value {
        match self {
            // Envoy Gateway reads files here, so there is no API server.
            Self::EnvoyGateway => json!({ "static": engines }),
            Self::IstioService => json!({ "kubernetes": {
                "service": "engines", "port": super::ENGINE_PORT, "namespace": "default"
            }}),
            Self::AiGateway | Self::Istio | Self::InferencePool => {
                json!({ "kubernetes": { "inference_pool": "llm", "namespace": "default" } })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::repository_file;

    #[test]
    fn every_gateway_has_a_manifest() {
        for gateway in MeshGateway::ALL {
            let manifest = repository_file(gateway.manifest());
            assert!(manifest.is_file(), "{}", manifest.display());
        }
    }
}
