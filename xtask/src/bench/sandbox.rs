//! Times units of work inside Envoy's V8, the runtime that the filter runs in.
//!
//! The module runs as a service of Envoy (`envoy.bootstrap.wasm`), without a listener or a request. Envoy's clock times it
//! while Envoy configures it, and the module writes the result to Envoy's log.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::envoy;
use crate::filter::{self, Wasm};

/// Units that are timed.
const UNITS: [&str; 3] = ["extract-4-kb", "extract-64-kb", "extract-400-kb"];
/// Beginning of a line with a result.
const MARK: &str = "isotherm-bench ";

/// Times each unit in an Envoy of its own, and prints the results.
pub(super) fn time(root: &Path) -> anyhow::Result<()> {
    let module = filter::build(root, Wasm::BenchFilter)?;
    let envoy = envoy::obtain(root)?;
    for unit in UNITS {
        println!("{}", time_unit(&envoy, &module, unit)?);
    }
    Ok(())
}

fn time_unit(envoy: &Path, module: &Path, unit: &str) -> anyhow::Result<String> {
    let mut child = Command::new(envoy)
        .args(["--disable-hot-restart", "--concurrency", "1"])
        .args(["--log-level", "warning"])
        .arg("--config-yaml")
        .arg(bootstrap(module, unit))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start Envoy")?;
    let log = child.stderr.take().context("Envoy has no log")?;
    let mut log_lines = Vec::new();
    let mut result = None;
    for line in BufReader::new(log).lines() {
        let line = line?;
        result = parse(&line);
        if result.is_some() {
            break;
        }
        log_lines.push(line);
    }
    let _ = child.kill();
    let _ = child.wait();
    result.with_context(|| format!("Envoy ended without a result:\n{}", log_lines.join("\n")))
}

/// A line for people from `... isotherm-bench UNIT BYTES NANOSECONDS`; a unit that reads no bytes reports 0.
fn parse(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(MARK)?;
    let mut words = rest.split_whitespace();
    let unit = words.next()?;
    let bytes: f64 = words.next()?.parse().ok()?;
    let nanoseconds: f64 = words.next()?.parse().ok()?;
    let rate = bytes / nanoseconds;
    Some(format!("{unit}: {nanoseconds:.0} ns, {rate:.2} GB/s"))
}

fn bootstrap(module: &Path, unit: &str) -> String {
    let config = serde_json::json!({
        "bootstrap_extensions": [{
            "name": "envoy.bootstrap.wasm",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.wasm.v3.WasmService",
                "singleton": true,
                "config": {
                    "name": "isotherm.bench",
                    "root_id": "isotherm",
                    "vm_config": {
                        "vm_id": "isotherm.bench",
                        "runtime": "envoy.wasm.runtime.v8",
                        "code": { "local": { "filename": module } },
                    },
                    "configuration": {
                        "@type": "type.googleapis.com/google.protobuf.StringValue",
                        "value": format!("time {unit}"),
                    },
                },
            },
        }],
    });
    config.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_found_behind_the_prefix_of_envoys_log() {
        let line = "[2026-01-01][1][warning][wasm] [source] wasm log: isotherm-bench extract-4-kb 4096 2048";
        let expected = "extract-4-kb: 2048 ns, 2.00 GB/s";
        assert_eq!(parse(line).as_deref(), Some(expected));
        assert_eq!(parse("[info] starting"), None);
    }
}
