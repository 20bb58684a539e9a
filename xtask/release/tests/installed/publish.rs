//! The release in a registry: `cargo xtask publish` pushes it, and clients get what the folder has.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;

use crate::files::{find, folder, mesh_program, successful, variable};
use crate::images::Layout;

/// Programs that the test starts.
const PROGRAMS: [&str; 3] = ["registry", "oras", "helm"];

/// In front of the port that the registry has chosen, in its log.
const LISTENS: &str = "listening on 127.0.0.1:";

/// The registry has no TLS.
const PLAIN_HTTP: &str = "--plain-http";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A registry that keeps images in memory, and ends with this value.
struct Registry {
    child: Child,
    address: String,
}

impl Registry {
    fn start(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        let config = folder.join("registry.json");
        let text = r#"{"version":"0.1","storage":{"inmemory":{}},"http":{"addr":"127.0.0.1:0"}}"#;
        fs::write(&config, text)?;
        let mut command = Command::new(program);
        command.arg("serve").arg(config);
        command.env("OTEL_TRACES_EXPORTER", "none");
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().context("no log")?;
        let mut registry = Self {
            child,
            address: String::new(),
        };
        let mut lines = BufReader::new(log).lines();
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once(LISTENS)?;
            let port = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
            Some(port.to_owned())
        });
        registry.address = format!("127.0.0.1:{}", port.context("the registry ends")?);
        // A registry that cannot write its log would wait.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_registry_has_the_images_and_the_chart_of_the_folder() -> anyhow::Result<()> {
    let found = PROGRAMS.map(mesh_program);
    let [Some(program), Some(oras), Some(helm)] = &found else {
        println!("the release is not published");
        return Ok(());
    };
    let scratch = tempfile::tempdir()?;
    let registry = Registry::start(program, scratch.path())?;
    let address = format!("{}/team", registry.address);
    let tools = oras.parent().context("a folder")?.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = [tools].into_iter().chain(env::split_paths(&path));
    let mut publish = Command::new(variable("ISOTHERM_XTASK")?);
    publish.env("PATH", env::join_paths(folders)?);
    publish.args(["publish", PLAIN_HTTP, "--no-sign", "--registry", &address]);
    successful(publish.arg("--dir").arg(folder()?))?;

    for name in ["isotherm", "isotherm-engine", "isotherm-filter"] {
        let reference = format!("{address}/{name}:{VERSION}");
        let mut resolve = Command::new(oras);
        let resolved = successful(resolve.args(["resolve", PLAIN_HTTP, &reference]))?;
        let digest = String::from_utf8(resolved.stdout)?;
        assert_eq!(
            digest.trim(),
            Layout::read(name)?.index()?.digest().to_string()
        );
        // A copy reads each blob of each architecture, and checks its digest.
        let copy = scratch.path().join(name);
        let mut pull = Command::new(oras);
        pull.args(["cp", "--from-plain-http", "--to-oci-layout", &reference]);
        successful(pull.arg(format!("{}:{VERSION}", copy.display())))?;
    }
    let mut pull = Command::new(helm);
    pull.args([
        "pull",
        PLAIN_HTTP,
        &format!("oci://{address}/charts/isotherm"),
    ]);
    pull.args(["--version", VERSION, "--destination"]);
    successful(pull.arg(scratch.path()))?;
    let chart = find("isotherm-", ".tgz")?;
    let name = chart.file_name().context("a name")?;
    assert_eq!(fs::read(scratch.path().join(name))?, fs::read(&chart)?);
    Ok(())
}
