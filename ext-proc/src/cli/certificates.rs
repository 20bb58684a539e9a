//! `isotherm certificates`: certificates for regions and siblings, by a private authority.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use isotherm_certificates::Authority;

use super::output;
use crate::config::is_region_name;

#[derive(Debug, Args)]
pub(super) struct Certificates {
    /// Folder of the authority and of the regions: `authority/ca.pem`, `authority/ca.key`, and `REGION/tls` for each region.
    #[arg(long, value_name = "FOLDER", default_value = "certificates")]
    folder: PathBuf,
    /// Names of the regions.
    #[arg(value_name = "REGION", required = true)]
    regions: Vec<String>,
}

pub(super) fn run(args: &Certificates) -> anyhow::Result<ExitCode> {
    for region in &args.regions {
        ensure!(
            is_region_name(region),
            "`{region}` is not the name of a region, such as eu or us-east-1: use lower-case letters, digits and hyphens"
        );
    }
    let authority = Authority::in_folder(&args.folder.join("authority"))?;
    for region in &args.regions {
        let folder = args.folder.join(region).join("tls");
        authority.issue(region, &folder)?;
        output::print(&summary(region, &folder))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(region: &str, folder: &Path) -> String {
    format!(
        "{}: region.pem, region.key and ca.pem for {region}.isotherm\n",
        folder.display()
    )
}
