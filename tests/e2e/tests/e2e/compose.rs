//! `deploy/compose/compose.yaml`, without Docker: its files exist, its images are of a release or pinned, and each program takes
//! the arguments and the configuration that it gets there.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_harness::Tools;
use isotherm_harness::tools::repository_file;
use serde_json::Value;

use super::openai::check_success;

const FOLDER: &str = "deploy/compose";
/// Images of a release, with their programs. The filter has none.
const RELEASED: [&str; 3] = ["isotherm", "isotherm-engine", "isotherm-filter"];

fn compose() -> anyhow::Result<Value> {
    let text = fs::read_to_string(repository_file(FOLDER).join("compose.yaml"))?;
    Ok(serde_saphyr::from_str(&text)?)
}

/// The items of a list; none where it is absent.
fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value.as_str().with_context(|| value.to_string())
}

/// The name of a released image, if it is one.
fn released(image: &str) -> anyhow::Result<Option<&str>> {
    let Some((_, name)) = image.split_once("}/") else {
        let (_, tag) = image.rsplit_once(':').context("no tag")?;
        let is_pinned = tag.contains('.') && tag.contains(|letter: char| letter.is_ascii_digit());
        ensure!(is_pinned, "{image}");
        return Ok(None);
    };
    let (name, version) = name.split_once(':').context("no version")?;
    ensure!(RELEASED.contains(&name), "{image}");
    ensure!(version == env!("CARGO_PKG_VERSION"), "{image}");
    Ok(Some(name))
}

#[test]
fn every_file_exists_and_every_image_is_released_or_pinned() -> anyhow::Result<()> {
    let compose = compose()?;
    let services = compose["services"].as_object().context("no services")?;
    let mut files = 0;
    for service in services.values() {
        released(text(&service["image"])?)?;
        for volume in items(&service["volumes"]) {
            let source = text(&volume["source"])?;
            match text(&volume["type"])? {
                "bind" => {
                    files += 1;
                    let file = repository_file(FOLDER).join(source);
                    ensure!(file.is_file(), "{}", file.display());
                }
                "image" => ensure!(released(source)?.is_some(), "{source}"),
                _ => ensure!(compose["volumes"].get(source).is_some(), "{source}"),
            }
        }
        for config in items(&service["configs"]) {
            let source = text(&config["source"])?;
            ensure!(compose["configs"].get(source).is_some(), "{source}");
        }
    }
    ensure!(files >= 4, "{files}");
    Ok(())
}

#[test]
fn every_program_takes_its_arguments_and_its_configuration() -> anyhow::Result<()> {
    let compose = compose()?;
    let tools = Tools::find()?;
    let folder = tempfile::tempdir()?;
    let envoy = folder.path().join("envoy.yaml");
    let configuration = repository_file(FOLDER).join("isotherm.yaml");
    let paths = [
        ("/etc/isotherm/isotherm.yaml", configuration.as_path()),
        ("/filter/plugin.wasm", tools.filter.as_path()),
        ("/etc/envoy/envoy.yaml", envoy.as_path()),
    ];
    let here = |argument: &str| {
        paths
            .iter()
            .fold(argument.to_owned(), |argument, (path, file)| {
                argument.replace(path, &file.to_string_lossy())
            })
    };
    let command = |service: &str| -> anyhow::Result<Vec<String>> {
        let arguments = items(&compose["services"][service]["command"]);
        arguments
            .map(|argument| Ok(here(text(argument)?)))
            .collect()
    };
    let run = |program: &Path, arguments: &[String]| {
        check_success(&Command::new(program).args(arguments).output()?)
            .with_context(|| format!("{arguments:?}"))
    };
    let with_help = |service: &str| -> anyhow::Result<Vec<String>> {
        Ok([command(service)?, vec!["--help".to_owned()]].concat())
    };
    run(&tools.engine, &with_help("engine")?)?;
    run(&tools.isotherm, &with_help("isotherm")?)?;
    let check = ["check", "--config"].map(str::to_owned);
    let configuration = configuration.to_string_lossy().into_owned();
    run(&tools.isotherm, &[&check[..], &[configuration]].concat())?;
    run(&tools.isotherm, &command("envoy-configuration")?)?;
    let validate = ["--mode", "validate"].map(str::to_owned);
    run(
        &tools.envoy,
        &[command("envoy")?, validate.to_vec()].concat(),
    )?;
    check_prometheus(
        text(&compose["configs"]["prometheus"]["content"])?,
        folder.path(),
    )
}

/// Checks the configuration of Prometheus where its tool is installed.
fn check_prometheus(configuration: &str, folder: &Path) -> anyhow::Result<()> {
    let rules = repository_file("deploy/helm/isotherm/monitoring/alerts.yaml");
    let rules = rules.to_string_lossy();
    let file = folder.join("prometheus.yaml");
    fs::write(
        &file,
        configuration.replace("/etc/prometheus/alerts.yaml", &rules),
    )?;
    match Command::new("promtool")
        .args(["check", "config"])
        .arg(&file)
        .output()
    {
        Ok(output) => check_success(&output),
        Err(error) => {
            eprintln!("SKIPPED: no promtool (Debian: prometheus): {error}");
            Ok(())
        }
    }
}
