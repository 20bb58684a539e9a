//! `isotherm-bench-path`: the program behind `cargo xtask bench path`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use isotherm_bench_path::{Options, measure};
use isotherm_harness::Tools;
use isotherm_harness::shutdown::run_until_stopped;
use isotherm_report::Format;

/// Measures what a request costs between client and replica: plain Envoy, the filter, a minimal external processor, Isotherm,
/// and the Shepherd model gateway
#[derive(Parser)]
#[command(name = "cargo xtask bench path", bin_name = "cargo xtask bench path")]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Also writes the report as a page of Markdown with its tables as CSV files beside it, for docs/results
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(run(Arguments::parse())).await
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let output = Tools::find()?.output.join("bench");
    let report = measure(&arguments.options).await?.report()?;
    println!("{}", report.text());
    let files = [("path.json", Format::Json), ("path.html", Format::Html)];
    for path in report.write(&output, files)? {
        println!("{}", path.display());
    }
    let page = arguments.markdown.map(|path| report.write_page(&path));
    for path in page.transpose()?.into_iter().flatten() {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    #[test]
    fn xtask_knows_the_command_line() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../xtask/interfaces");
        let file = folder.join("bench-path.json");
        check_current(&file, "cargo xtask bench path", &Arguments::command()).unwrap();
    }
}
