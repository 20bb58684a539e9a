//! The table of gateways in `docs/compatibility.md`: what the tests of meshes found, each control plane with its own Envoy.

use std::env;
use std::path::Path;

use anyhow::Context as _;

use crate::envoy;
use crate::envoys::PAGE;
use crate::mesh::MeshPrograms;
use crate::mesh_tools::MESH_TOOLS;
use crate::page_table::{compare_or_write, heading, row, rows};

const TITLES: [&str; 5] = ["gateway", "Envoy", "manifest", "prompts", "result"];
const IN_PROXY: &str = "stay in the proxy";
const TO_SERVICE: &str = "go to the service";

/// A gateway with a manifest, and the test that runs it.
struct Pair {
    gateway: &'static str,
    /// The program with the gateway's version, or the version.
    version: Version,
    /// Name of the control plane in `envoy/envoy-version.toml`.
    control_plane: &'static str,
    /// Name of the gateway on the command line, which selects its programs.
    name: &'static str,
    manifest: &'static str,
    prompts: &'static str,
    test: &'static str,
    /// The result when the test passes.
    result: &'static str,
}

enum Version {
    Tool(&'static str),
    /// The version whose controller `ISOTHERM_AI_GATEWAY` names.
    Given(&'static str),
}

const PAIRS: [Pair; 6] = [
    Pair {
        gateway: "Envoy Gateway",
        version: Version::Tool("envoy-gateway"),
        control_plane: "envoy-gateway",
        name: "envoy-gateway",
        manifest: "[`envoy-gateway`](mesh/envoy-gateway.md)",
        prompts: IN_PROXY,
        test: "gateways::envoy_gateway_keeps_the_prompt_in_front_of_a_service",
        result: "full",
    },
    Pair {
        gateway: "Envoy Gateway",
        version: Version::Tool("envoy-gateway"),
        control_plane: "envoy-gateway",
        name: "envoy-gateway",
        manifest: "[`envoy-gateway`](mesh/envoy-gateway.md) without EnvoyPatchPolicy",
        prompts: IN_PROXY,
        test: "gateways::envoy_gateway_without_patches_decides_by_headers",
        result: "headers only",
    },
    Pair {
        gateway: "Envoy AI Gateway",
        version: Version::Given("1.1.0"),
        control_plane: "ai-gateway",
        name: "ai-gateway",
        manifest: "[`ai-gateway`](mesh/ai-gateway.md)",
        prompts: IN_PROXY,
        test: "gateways::envoy_ai_gateway_keeps_the_prompt_in_front_of_an_inference_pool",
        result: "full",
    },
    Pair {
        gateway: "Istio",
        version: Version::Tool("pilot-discovery"),
        control_plane: "istio",
        name: "istio",
        manifest: "[`istio`](mesh/istio.md)",
        prompts: IN_PROXY,
        test: "gateways::istio_keeps_the_prompt_in_front_of_an_inference_pool",
        result: "full",
    },
    Pair {
        gateway: "Istio",
        version: Version::Tool("pilot-discovery"),
        control_plane: "istio",
        name: "istio-service",
        manifest: "[`istio-service`](mesh/istio.md)",
        prompts: IN_PROXY,
        test: "gateways::istio_keeps_the_prompt_in_front_of_a_service",
        result: "full",
    },
    Pair {
        gateway: "Istio",
        version: Version::Tool("pilot-discovery"),
        control_plane: "istio",
        name: "inference-pool",
        manifest: "[`inference-pool`](mesh/inference-pool.md)",
        prompts: TO_SERVICE,
        test: "gateways::istio_sends_the_prompt_of_an_inference_pool_without_the_filter",
        result: "full",
    },
];

impl Pair {
    /// Cells of the row before the result.
    fn cells(&self, root: &Path) -> anyhow::Result<[String; 4]> {
        let version = match self.version {
            Version::Given(version) => version,
            Version::Tool(name) => {
                let tool = MESH_TOOLS.iter().find(|tool| tool.name == name);
                tool.context("no such program")?.version
            }
        };
        let planes = envoy::control_planes(root)?;
        let mut planes = planes.into_iter();
        let found = planes.find(|(plane, _)| plane == self.control_plane);
        let (_, envoy) = found.context("no Envoy of this control plane")?;
        let gateway = format!("{} {version}", self.gateway);
        Ok([
            gateway,
            envoy,
            self.manifest.to_owned(),
            self.prompts.to_owned(),
        ])
    }

    /// Whether the test runs instead of being skipped.
    fn can_run(&self, root: &Path, programs: &MeshPrograms) -> anyhow::Result<bool> {
        let is_named = match self.version {
            Version::Tool(_) => true,
            Version::Given(_) => env::var_os("ISOTHERM_AI_GATEWAY").is_some(),
        };
        let [_, version, ..] = self.cells(root)?;
        let has_programs = programs.require(&[self.name]).is_ok();
        Ok(is_named && has_programs && envoy::is_to_hand(root, &version)?)
    }
}

/// Compares the page's table with what the tests found; with `UPDATE_DOCS=1` writes it. `failed` has the failed tests. A pair
/// that could not run keeps its row.
pub(crate) fn compare(
    root: &Path,
    programs: &MeshPrograms,
    failed: &[String],
) -> anyhow::Result<()> {
    let known = rows(root, PAGE, TITLES[0])?;
    let mut table = heading(&TITLES);
    for pair in &PAIRS {
        let cells = pair.cells(root)?;
        let cells = cells.each_ref().map(String::as_str);
        let beginning = row(&cells);
        let beginning = beginning.trim_end_matches('|');
        if pair.can_run(root, programs)? {
            let has_failed = failed.iter().any(|test| test == pair.test);
            let result = if has_failed { "no" } else { pair.result };
            table.push(row(&[&cells[..], &[result]].concat()));
        } else {
            let mut known = known.iter();
            table.extend(known.find(|row| row.starts_with(beginning)).cloned());
        }
    }
    compare_or_write(root, PAGE, &table, "cargo xtask test mesh")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::root;

    #[test]
    fn the_page_has_a_row_of_each_pair() {
        let rows = rows(&root(), PAGE, TITLES[0]).unwrap();
        assert_eq!(rows.len(), PAIRS.len());
        for (row, pair) in rows.iter().zip(&PAIRS) {
            let cells = pair.cells(&root()).unwrap().join(" | ");
            let results = [pair.result, "no"].map(|result| format!("| {cells} | {result} |"));
            assert!(results.contains(row), "{row}\nis neither of\n{results:#?}");
        }
    }
}
