//! Needs of tests and demos on a mesh: the mesh's programs, and a network of their own.
//!
//! In that network pods have addresses that EndpointSlices accept, every default port is free, and nothing leaves.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::mesh_tools::{self, MESH_TOOLS, MeshTool};
use crate::process::{announce, output};

/// Programs of the gateways that `cargo xtask demo --mesh` knows. `MeshGateway` in `tests/harness` starts them.
const GATEWAYS: [(&str, &[&str]); 5] = [
    ("envoy-gateway", &["envoy-gateway"]),
    ("ai-gateway", &AI_GATEWAY),
    ("istio", &ISTIO),
    ("istio-service", &ISTIO),
    ("inference-pool", &ISTIO),
];
const AI_GATEWAY: [&str; 5] = ["envoy-gateway", "crds", "etcd", "kube-apiserver", "helm"];
const ISTIO: [&str; 4] = ["pilot-discovery", "crds", "etcd", "kube-apiserver"];

/// Options of `unshare` for a new network: as root, and as a user where the system allows it.
const UNSHARE: [&[&str]; 2] = [&["--net"], &["--user", "--map-root-user", "--net"]];
/// Gives the new network the addresses `10.77.0.0/16`. On a loopback interface every address of the prefix is local.
const ADDRESSES: &str = "ip link set lo up && ip addr add 10.77.0.1/16 dev lo";

/// The mesh's programs on this machine.
pub(crate) struct MeshPrograms {
    folder: PathBuf,
    built: Vec<&'static MeshTool>,
    missing: Vec<&'static MeshTool>,
}

impl MeshPrograms {
    /// Looks which programs the cache has in their pinned versions.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let folder = mesh_tools::folder()?;
        let (built, missing) = MESH_TOOLS.iter().partition(|tool| tool.is_built(&folder));
        Ok(Self {
            folder,
            built,
            missing,
        })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.built.is_empty()
    }

    /// Names each program that is missing, and the command that builds it.
    pub(crate) fn announce_missing(&self) {
        for tool in &self.missing {
            announce(&format!(
                "without {}: `{}` builds it",
                tool.name,
                tool.command()
            ));
        }
    }

    /// Fails when a program of these gateways is missing.
    pub(crate) fn require(&self, gateways: &[&str]) -> anyhow::Result<()> {
        let needed = GATEWAYS.iter().filter(|(name, _)| gateways.contains(name));
        let needed: Vec<&str> = needed
            .flat_map(|(_, programs)| *programs)
            .copied()
            .collect();
        let missing = self.missing.iter();
        let missing: Vec<&str> = missing
            .map(|tool| tool.name)
            .filter(|name| needed.contains(name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let options: Vec<String> = missing
            .iter()
            .map(|name| format!("--only {name}"))
            .collect();
        bail!(
            "{} needs {}, not built here yet; run `cargo xtask mesh-tools {}`",
            gateways.join(", "),
            missing.join(", "),
            options.join(" ")
        )
    }

    /// Variables by which a test or a demo finds the programs, and only those in their pinned versions.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        let names: Vec<&str> = self.built.iter().map(|tool| tool.name).collect();
        [
            ("ISOTHERM_MESH_TOOLS", self.folder.clone().into()),
            ("ISOTHERM_MESH_PROGRAMS", names.join(",").into()),
        ]
    }
}

/// A command that runs `program` in a network of its own. The error says what the system refuses.
pub(crate) fn in_own_network(program: &OsStr) -> anyhow::Result<Command> {
    let mut refusal = None;
    for options in UNSHARE {
        let mut probe = Command::new("unshare");
        probe.args(options).args(["sh", "-c", ADDRESSES]);
        match output(&mut probe) {
            Ok(_) => {
                let mut command = Command::new("unshare");
                command.args(options).args(["sh", "-c"]);
                command.arg(format!("{ADDRESSES}; exec \"$@\"")).arg("sh");
                command.arg(program).env("ISOTHERM_MESH_NETWORK", "1");
                return Ok(command);
            }
            Err(error) => refusal = Some(error),
        }
    }
    let refusal = refusal.context("no way to a network of its own")?;
    Err(refusal).context("no network of its own here, which a mesh needs (`unshare --net`, `ip`)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_a_gateway_can_be_built() {
        for (gateway, programs) in GATEWAYS {
            for name in programs {
                let is_known = MESH_TOOLS.iter().any(|tool| tool.name == *name);
                assert!(is_known, "{gateway}: {name}");
            }
        }
    }

    #[test]
    fn a_gateway_without_its_programs_names_the_command_that_builds_them() {
        let programs = MeshPrograms {
            folder: PathBuf::new(),
            built: Vec::new(),
            missing: MESH_TOOLS.iter().collect(),
        };
        let error = programs
            .require(&["envoy-gateway"])
            .map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err(
                "envoy-gateway needs envoy-gateway, not built here yet; run \
                 `cargo xtask mesh-tools --only envoy-gateway`"
                    .to_owned()
            )
        );
        let error = programs
            .require(&["istio"])
            .map_err(|error| error.to_string());
        let error = error.err().unwrap_or_default();
        assert!(error.contains("--only pilot-discovery"), "{error}");
        assert!(
            programs.require(&["unknown"]).is_ok(),
            "the demo refuses it"
        );
    }
}
