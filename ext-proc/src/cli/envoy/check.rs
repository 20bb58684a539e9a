//! `isotherm envoy check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use hyper::{Request, StatusCode};
use isotherm_envoy_config::check::{self, Mistake, Severity, Source};

use super::read;
use crate::cli::output;
use crate::http_client::HttpClient;

/// The longest wait for Envoy's configuration dump.
const DUMP_TIME_MAX: Duration = Duration::from_secs(10);
/// The largest configuration dump, in bytes.
const DUMP_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Bootstrap, with the discovery files that it names, if Envoy reads its listeners or clusters from files.
    #[arg(value_name = "FILE", required_unless_present = "admin")]
    files: Vec<PathBuf>,
    /// Envoy's admin interface, such as http://127.0.0.1:9901: checks the configuration that Envoy runs.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Check) -> anyhow::Result<ExitCode> {
    let mut findings = Vec::new();
    if !args.files.is_empty() {
        let files = args.files.iter().map(|file| source(file));
        let mut sources = files.collect::<anyhow::Result<Vec<Source>>>()?;
        sources.extend(named_files(&args.files, &sources)?);
        findings.extend(findings_in(&sources)?);
    }
    if let Some(admin) = &args.admin {
        let name = format!("{}/config_dump", admin.trim_end_matches('/'));
        let text = fetch(&name).await?;
        findings.extend(findings_in(&[Source { name, text }])?);
    }
    print(args, &findings)?;
    let has_error = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    Ok(if has_error {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The findings in those of these texts, with their names, that are Envoy's own configuration with Isotherm in it.
pub(in crate::cli) fn findings_in_texts(
    texts: &[(String, String)],
) -> anyhow::Result<Vec<Mistake>> {
    let own = texts.iter().filter(|(_, text)| check::has_isotherm(text));
    let own = own.map(|(name, text)| Source {
        name: name.clone(),
        text: text.clone(),
    });
    findings_in(&own.collect::<Vec<Source>>())
}

fn print(args: &Check, findings: &[Mistake]) -> anyhow::Result<()> {
    if args.json {
        let text = serde_json::to_string_pretty(findings)?;
        return output::print(&format!("{text}\n"));
    }
    if findings.is_empty() {
        return output::print("no known mistakes\n");
    }
    let texts = findings.iter().map(|finding| format!("{finding}\n"));
    output::print(&texts.collect::<String>())
}

fn findings_in(sources: &[Source]) -> anyhow::Result<Vec<Mistake>> {
    check::check(sources).map_err(|(file, error)| anyhow!("{file} is no YAML or JSON: {error}"))
}

fn source(file: &Path) -> anyhow::Result<Source> {
    let name = file.display().to_string();
    let text = read(file)?;
    Ok(Source { name, text })
}

/// The discovery files that a bootstrap names, where they can be read: at their path, or beside the bootstrap.
fn named_files(given: &[PathBuf], sources: &[Source]) -> anyhow::Result<Vec<Source>> {
    let mut found = Vec::new();
    for (file, bootstrap) in given.iter().zip(sources) {
        let folder = file.parent().unwrap_or(Path::new(""));
        for named in check::discovery_files(&bootstrap.text) {
            let named = Path::new(&named);
            let beside = named.file_name().map(|name| folder.join(name));
            let readable = [Some(named.to_path_buf()), beside];
            let readable = readable.into_iter().flatten().find(|path| path.is_file());
            if let Some(path) = readable.filter(|path| !given.contains(path)) {
                found.push(source(&path)?);
            }
        }
    }
    Ok(found)
}

/// Asks an Envoy for its configuration.
async fn fetch(url: &str) -> anyhow::Result<String> {
    let request = Request::get(url).body(Bytes::new());
    let request =
        request.with_context(|| format!("{url} is no URL, such as http://127.0.0.1:9901"))?;
    let client = HttpClient::new();
    let response = client.fetch(request, DUMP_TIME_MAX, DUMP_BYTES_MAX).await;
    let response = response.with_context(|| format!("cannot read {url}"))?;
    if response.status() != StatusCode::OK {
        bail!(
            "{url} answers {}: is this Envoy's admin interface?",
            response.status()
        );
    }
    let text = String::from_utf8(response.into_body().to_vec());
    text.with_context(|| format!("{url} answers no text"))
}
