//! `mesh-tools`: builds the programs that a mesh consists of, for tests against the real ones.
//!
//! Go builds each of them in one pinned version: a program of several projects has no package on crates.io or PyPI. They
//! stand outside `target`, so that `cargo clean` does not cost a quarter of an hour. A module below `tests/mesh` pins
//! what `go install PROGRAM@VERSION` cannot build.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::cargo::root;
use crate::process::{announce, output, run};

/// The oldest Go that builds every program, as in the modules' `go` lines.
const GO_MIN: (u32, u32) = (1, 26);

/// How Go finds a program.
enum Origin {
    /// `go install PACKAGE@VERSION`, where VERSION may differ from the program's own.
    Install {
        package: &'static str,
        module_version: &'static str,
    },
    /// Files of modules: module, version, and a folder or a file in it.
    Files(&'static [[&'static str; 3]]),
    /// `go build PACKAGE` in a module of this project.
    Module {
        folder: &'static str,
        package: &'static str,
    },
}

/// A program of a mesh, in a pinned version.
pub(crate) struct MeshTool {
    /// The program's file name in the cache, and its name for `--only`.
    pub(crate) name: &'static str,
    /// Use of the program in the tests.
    purpose: &'static str,
    pub(crate) version: &'static str,
    origin: Origin,
    /// Flags of Go's linker besides `-s -w`.
    linker_flags: &'static str,
    /// Processor time of a build from nothing, in minutes.
    cpu_minutes: f32,
}

/// Definitions of Gateway API, InferencePool, Istio and Envoy Gateway, in the versions of the programs below.
const CRDS: [[&str; 3]; 4] = [
    ["sigs.k8s.io/gateway-api", "v1.6.1", "config/crd/standard"],
    [
        "sigs.k8s.io/gateway-api-inference-extension",
        "v1.5.0",
        "config/crd/bases",
    ],
    [
        "istio.io/istio",
        ISTIO,
        "manifests/charts/base/files/crd-all.gen.yaml",
    ],
    [
        "github.com/envoyproxy/gateway",
        "v1.9.0",
        "charts/gateway-crds-helm/templates/generated",
    ],
];

/// Definitions of KEDA, in the version of its operator.
const KEDA_CRDS: [[&str; 3]; 1] = [["github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases"]];

/// Istio's releases have tags without `v`, which Go does not accept as versions.
const ISTIO: &str = "v0.0.0-20260827124520-eed52ebb66ad";

/// Every program, from cheap to expensive.
pub(crate) const MESH_TOOLS: [MeshTool; 12] = [
    MeshTool {
        name: "crds",
        purpose: "custom resource definitions that kube-apiserver needs",
        version: "1",
        origin: Origin::Files(&CRDS),
        linker_flags: "",
        cpu_minutes: 0.1,
    },
    MeshTool {
        name: "keda-crds",
        purpose: "custom resource definitions of KEDA",
        version: "2.21.0",
        origin: Origin::Files(&KEDA_CRDS),
        linker_flags: "",
        cpu_minutes: 0.1,
    },
    MeshTool {
        name: "kubeconform",
        purpose: "schemas of rendered manifests",
        version: "0.8.0",
        origin: Origin::Install {
            package: "github.com/yannh/kubeconform/cmd/kubeconform",
            module_version: "v0.8.0",
        },
        linker_flags: "",
        cpu_minutes: 0.1,
    },
    MeshTool {
        name: "oras",
        purpose: "pushes images to registries",
        version: "1.3.6",
        origin: Origin::Install {
            package: "oras.land/oras/cmd/oras",
            module_version: "v1.3.6",
        },
        linker_flags: "",
        cpu_minutes: 0.3,
    },
    MeshTool {
        name: "helm",
        purpose: "the chart",
        version: "3.22.0",
        origin: Origin::Install {
            package: "helm.sh/helm/v3/cmd/helm",
            module_version: "v3.22.0",
        },
        linker_flags: "",
        cpu_minutes: 2.9,
    },
    MeshTool {
        name: "registry",
        purpose: "a registry of images",
        version: "3.1.2",
        origin: Origin::Install {
            package: "github.com/distribution/distribution/v3/cmd/registry",
            module_version: "v3.1.2",
        },
        linker_flags: "",
        cpu_minutes: 3.3,
    },
    MeshTool {
        name: "gie-epp",
        purpose: "the reference endpoint picker",
        version: "1.5.0",
        origin: Origin::Module {
            folder: "tests/mesh/picker",
            package: "sigs.k8s.io/gateway-api-inference-extension/cmd/epp",
        },
        linker_flags: "",
        cpu_minutes: 4.3,
    },
    MeshTool {
        name: "etcd",
        purpose: "the store of kube-apiserver",
        version: "3.7.3",
        origin: Origin::Module {
            folder: "tests/mesh/kubernetes",
            package: "go.etcd.io/etcd/server/v3",
        },
        linker_flags: "",
        cpu_minutes: 1.5,
    },
    MeshTool {
        name: "envoy-gateway",
        purpose: "Envoy Gateway's translation of the manifests",
        version: "1.9.0",
        origin: Origin::Install {
            package: "github.com/envoyproxy/gateway/cmd/envoy-gateway",
            module_version: "v1.9.0",
        },
        linker_flags: "",
        cpu_minutes: 8.6,
    },
    MeshTool {
        name: "pilot-discovery",
        purpose: "istiod, Istio's translation of the manifests",
        version: "eed52ebb66ad",
        origin: Origin::Install {
            package: "istio.io/istio/pilot/cmd/pilot-discovery",
            module_version: ISTIO,
        },
        linker_flags: "",
        cpu_minutes: 10.9,
    },
    MeshTool {
        name: "kube-apiserver",
        purpose: "Kubernetes as a source of replicas",
        version: "1.37.2",
        origin: Origin::Module {
            folder: "tests/mesh/kubernetes",
            package: "k8s.io/kubernetes/cmd/kube-apiserver",
        },
        // Without the flag the server says that its version is v0.0.0.
        linker_flags: "-X k8s.io/component-base/version.gitVersion=v1.37.2",
        cpu_minutes: 11.7,
    },
    MeshTool {
        name: "keda-operator",
        purpose: "KEDA, which reads the number of replicas",
        version: "2.21.0",
        origin: Origin::Module {
            folder: "tests/mesh/keda",
            package: "github.com/kedacore/keda/v2/cmd/operator",
        },
        linker_flags: "",
        cpu_minutes: 15.6,
    },
];

/// Checks the workflows of CI. It is no program of a mesh; Go builds it in the same way.
pub(crate) const ACTIONLINT: MeshTool = MeshTool {
    name: "actionlint",
    purpose: "the workflows of CI",
    version: "1.7.12",
    origin: Origin::Install {
        package: "github.com/rhysd/actionlint/cmd/actionlint",
        module_version: "v1.7.12",
    },
    linker_flags: "",
    cpu_minutes: 0.3,
};

/// The folder of the programs: `ISOTHERM_MESH_TOOLS`, else below the user's cache.
pub(crate) fn folder() -> anyhow::Result<PathBuf> {
    let given = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = given("ISOTHERM_MESH_TOOLS") {
        return std::path::absolute(folder).context("ISOTHERM_MESH_TOOLS");
    }
    let cache = given("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| given("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither ISOTHERM_MESH_TOOLS nor XDG_CACHE_HOME nor HOME names a folder")?;
    Ok(cache.join("isotherm/mesh-tools"))
}

/// Builds the named programs, or all of them, where they are missing, and prints their paths.
pub(crate) fn build(only: &[String]) -> anyhow::Result<()> {
    for name in only {
        ensure!(
            MESH_TOOLS.iter().any(|tool| tool.name == name),
            "there is no program `{name}`; there are {}",
            MESH_TOOLS.map(|tool| tool.name).join(", ")
        );
    }
    let folder = folder()?;
    let is_wanted = |tool: &&MeshTool| only.is_empty() || only.iter().any(|name| name == tool.name);
    let wanted: Vec<&MeshTool> = MESH_TOOLS.iter().filter(is_wanted).collect();
    let missing = wanted.iter().filter(|tool| !tool.is_built(&folder));
    let missing: Vec<&MeshTool> = missing.copied().collect();
    if !missing.is_empty() {
        check_go()?;
        announce_builds(&missing, &folder);
    }
    for tool in missing {
        tool.build(&folder)?;
    }
    for tool in wanted {
        println!("{}", folder.join(tool.name).display());
    }
    Ok(())
}

fn announce_builds(missing: &[&MeshTool], folder: &Path) {
    announce(&format!("builds into {}:", folder.display()));
    for tool in missing {
        announce(&format!(
            "  {:<16}{:<14}{}",
            tool.name, tool.version, tool.purpose
        ));
    }
    let minutes: f32 = missing.iter().map(|tool| tool.cpu_minutes).sum();
    announce(&format!(
        "that takes about {minutes:.0} minutes of processor time, less where Go has built a part before"
    ));
}

/// Fails with a message that says what to install where Go is missing or too old.
fn check_go() -> anyhow::Result<()> {
    let (major, minor) = GO_MIN;
    let install =
        format!("install Go {major}.{minor} or later (https://go.dev/dl) and put `go` on PATH");
    let printed = output(Command::new("go").args(["env", "GOVERSION"]));
    let printed = printed.with_context(|| format!("no Go here; {install}"))?;
    let version = version_of_go(&printed)
        .with_context(|| format!("`go env GOVERSION` says `{}`; {install}", printed.trim()))?;
    ensure!(
        version >= GO_MIN,
        "Go {}.{} is too old; {install}",
        version.0,
        version.1
    );
    Ok(())
}

/// Major and minor version in `go1.26.8`.
fn version_of_go(printed: &str) -> Option<(u32, u32)> {
    let mut parts = printed
        .trim()
        .strip_prefix("go")?
        .split(['.', 'r', 'b', ' ', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl MeshTool {
    /// The program, built if it is missing; `None` where it cannot be built, which is announced.
    pub(crate) fn obtain(&self) -> anyhow::Result<Option<PathBuf>> {
        let folder = folder()?;
        if !self.is_built(&folder) {
            let built = check_go().and_then(|()| self.build(&folder));
            if let Err(error) = built {
                announce(&format!("without {}: {error:#}", self.name));
                return Ok(None);
            }
        }
        Ok(Some(folder.join(self.name)))
    }

    /// The command that builds the program.
    pub(crate) fn command(&self) -> String {
        format!("cargo xtask mesh-tools --only {}", self.name)
    }

    /// Whether the pinned version is in the cache.
    pub(crate) fn is_built(&self, folder: &Path) -> bool {
        let version = fs::read_to_string(self.stamp(folder)).unwrap_or_default();
        version.trim() == self.version && folder.join(self.name).exists()
    }

    /// The file that holds the version of the program in the cache.
    fn stamp(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.version", self.name))
    }

    /// Builds the program in a folder of its own, then renames it: an interrupted build leaves nothing under its name.
    fn build(&self, folder: &Path) -> anyhow::Result<()> {
        announce(&format!("building {} {}", self.name, self.version));
        let scratch = folder.join(format!(".{}.partial-{}", self.name, std::process::id()));
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let built = self.compile(&scratch).and_then(|program| {
            let _ = fs::remove_file(self.stamp(folder));
            let kept = folder.join(self.name);
            let _ = fs::remove_dir_all(&kept); // a folder does not replace another one
            fs::rename(program, kept)?;
            let stamp = scratch.join("version");
            fs::write(&stamp, self.version)?;
            Ok(fs::rename(stamp, self.stamp(folder))?)
        });
        let _ = fs::remove_dir_all(&scratch);
        built.with_context(|| format!("{} {} was not built", self.name, self.version))
    }

    /// Runs Go, and returns the program.
    fn compile(&self, scratch: &Path) -> anyhow::Result<PathBuf> {
        let flags = format!("-s -w {}", self.linker_flags);
        let mut go = Command::new("go");
        go.env("CGO_ENABLED", "0");
        match self.origin {
            Origin::Install {
                package,
                module_version,
            } => {
                go.env("GOBIN", scratch).current_dir(scratch);
                go.args(["install", "-trimpath", "-ldflags", &flags]);
                run(go.arg(format!("{package}@{module_version}")))?;
                let name = package.rsplit('/').next().unwrap_or(package);
                Ok(scratch.join(name))
            }
            Origin::Files(files) => {
                let kept = scratch.join(self.name);
                fs::create_dir_all(&kept)?;
                for [module, version, path] in files {
                    copy_definitions(module, version, path, &kept)?;
                }
                Ok(kept)
            }
            Origin::Module { folder, package } => {
                let program = scratch.join(self.name);
                // Go completes `go.mod`, so it gets a copy.
                for file in ["go.mod", "go.sum"] {
                    let pinned = root().join(folder).join(file);
                    fs::copy(&pinned, scratch.join(file))
                        .with_context(|| format!("cannot read {}", pinned.display()))?;
                }
                go.current_dir(scratch);
                go.args(["build", "-mod=mod", "-trimpath", "-ldflags", &flags, "-o"]);
                run(go.arg(&program).arg(package))?;
                Ok(program)
            }
        }
    }
}

/// Copies the YAML files at `path` in a module. Lines of templates are left out: they only switch definitions on.
fn copy_definitions(module: &str, version: &str, path: &str, into: &Path) -> anyhow::Result<()> {
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json"]);
    let answer = output(download.arg(format!("{module}@{version}")))?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let module_folder = answer.get("Dir").and_then(serde_json::Value::as_str);
    let source = Path::new(module_folder.context("`go mod download` names no folder")?).join(path);
    let files: Vec<PathBuf> = if source.is_file() {
        vec![source]
    } else {
        let entries = fs::read_dir(&source)?.filter_map(Result::ok);
        entries.map(|entry| entry.path()).collect()
    };
    for file in files {
        let name = file.file_name().unwrap_or_default();
        if name == "kustomization.yaml" || file.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let lines = text.lines().filter(|line| !line.starts_with("{{"));
        fs::write(into.join(name), lines.collect::<Vec<_>>().join("\n"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{MESH_TOOLS, version_of_go};

    #[test]
    fn the_version_of_go_is_read_from_releases_and_candidates() {
        assert_eq!(version_of_go("go1.26.8\n"), Some((1, 26)));
        assert_eq!(version_of_go("go1.27rc1\n"), Some((1, 27)));
        assert_eq!(version_of_go("devel +1a2b\n"), None);
    }

    #[test]
    fn a_program_is_built_only_in_the_version_of_its_stamp() -> std::io::Result<()> {
        let folder =
            std::env::temp_dir().join(format!("isotherm-mesh-tools-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let [tool, ..] = &MESH_TOOLS;
        std::fs::write(folder.join(tool.name), "")?;
        assert!(!tool.is_built(&folder));
        std::fs::write(tool.stamp(&folder), "0.0.1")?;
        assert!(!tool.is_built(&folder));
        std::fs::write(tool.stamp(&folder), tool.version)?;
        assert!(tool.is_built(&folder));
        std::fs::remove_dir_all(folder)
    }
}
