//! The bill of materials: every crate of the programs, as CycloneDX 1.5.

use anyhow::{Context as _, ensure};
use cargo_metadata::Package;
use cyclonedx_bom::external_models::uri::Purl;
use cyclonedx_bom::models::component::{Classification, Component, Components};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::metadata::Metadata;
use cyclonedx_bom::prelude::{Bom, DateTime, SpecVersion, Validate as _};

use crate::release::Release;

/// The bill as JSON. A bill that CycloneDX does not accept is an error.
pub(crate) fn json(release: &Release, crates: &[Package]) -> anyhow::Result<Vec<u8>> {
    let mut isotherm = Component::new(
        Classification::Application,
        "isotherm",
        &release.identity.version,
        Some(format!("isotherm@{}", release.identity.version)),
    );
    isotherm.licenses = Some(licence("Apache-2.0"));
    let time = DateTime::try_from(release.identity.created()?).context("the time of the commit")?;
    let third_parties = crates.iter().filter(|package| package.source.is_some());
    let components: anyhow::Result<Vec<Component>> = third_parties.map(component).collect();
    let bill = Bom {
        serial_number: None,
        spec_version: SpecVersion::V1_5,
        metadata: Some(Metadata {
            timestamp: Some(time),
            component: Some(isotherm),
            ..Metadata::default()
        }),
        components: Some(Components(components?)),
        ..Bom::default()
    };
    let validation = bill.validate_version(SpecVersion::V1_5);
    ensure!(
        validation.passed(),
        "the bill of materials is not valid: {validation:?}"
    );
    let mut json = Vec::new();
    bill.output_as_json_v1_5(&mut json)?;
    json.push(b'\n');
    Ok(json)
}

fn component(package: &Package) -> anyhow::Result<Component> {
    let version = package.version.to_string();
    let purl = Purl::new("cargo", package.name.as_str(), &version)
        .with_context(|| format!("no address of {} {version}", package.name))?;
    let reference = Some(purl.to_string());
    let mut component = Component::new(
        Classification::Library,
        package.name.as_str(),
        &version,
        reference,
    );
    component.purl = Some(purl);
    // Manifests of earlier times separate alternatives by a slash.
    let expression = package
        .license
        .as_deref()
        .map(|text| text.replace('/', " OR "));
    component.licenses = expression.as_deref().map(licence);
    Ok(component)
}

fn licence(expression: &str) -> Licenses {
    Licenses(vec![LicenseChoice::expression(expression)])
}
