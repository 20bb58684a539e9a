//! Releases: manifests and documents name images by the version of the workspace, in the registry of the manifest.
#![expect(
    clippy::expect_used,
    reason = "a manifest that cannot be read fails the test"
)]

use isotherm_conventions::{files, report, text};
use regex::Regex;

/// What stands in front of the name of an image.
const MARKS: &str = r#"(?:oci://|docker://|image: "?|reference: "|url: "|--from=|FROM |RUST_IMAGE=|-t |docker push )"#;

/// An image: repository, tag and digest.
const IMAGE: &str = r"([a-z0-9][\w.-]*(?:/[\w.-]+)+)(?::([\w.-]+))?(?:@(sha256:[\w.]+))?";

/// The value of a key in `Cargo.toml`, at the beginning of a line.
fn value(key: &str) -> String {
    let manifest = text("Cargo.toml");
    let start = format!("{key} = \"");
    let line = manifest.lines().find_map(|line| line.strip_prefix(&start));
    line.expect("the key is there").trim_matches('"').to_owned()
}

/// The images that the files name: file and line, repository, tag, whether there is a digest.
fn images(paths: &[String]) -> Vec<(String, String, Option<String>, bool)> {
    let image = Regex::new(&format!("{MARKS}{IMAGE}")).expect("valid");
    let mut found = Vec::new();
    for path in paths {
        for (number, line) in text(path).lines().enumerate() {
            for capture in image.captures_iter(line) {
                found.push((
                    format!("{path}:{}", number + 1),
                    capture[1].to_owned(),
                    capture.get(2).map(|tag| tag.as_str().to_owned()),
                    capture.get(3).is_some(),
                ));
            }
        }
    }
    found
}

/// Files that name images for users.
fn manifests() -> Vec<String> {
    let all = files(&[".yaml", ".md", "Containerfile", ".tpl"]);
    let is_for_users = |path: &String| path.starts_with("deploy/") || path.starts_with("docs/");
    all.into_iter().filter(is_for_users).collect()
}

#[test]
fn an_image_of_isotherm_carries_the_version_of_the_workspace() {
    let (version, registry) = (value("version"), value("registry"));
    let mut count = 0;
    let mut violations = Vec::new();
    for (place, repository, tag, has_digest) in images(&manifests()) {
        let is_own = repository.contains("isotherm");
        if !is_own || repository.ends_with("/charts/isotherm") {
            continue;
        }
        count += 1;
        let is_of_version = has_digest || tag.as_deref() == Some(version.as_str());
        if !repository.starts_with(&format!("{registry}/")) || !is_of_version {
            violations.push(format!("{place}: {repository}:{}", tag.unwrap_or_default()));
        }
    }
    assert!(
        count >= 10,
        "{count} images found: the pattern finds too few"
    );
    report(
        "an image of Isotherm is in the registry of Cargo.toml, in its version",
        &violations,
    );
}

#[test]
fn no_file_below_deploy_names_an_image_without_its_version() {
    let below: Vec<String> = manifests();
    let below: Vec<String> = below
        .into_iter()
        .filter(|path| path.starts_with("deploy/"))
        .collect();
    let mut violations = Vec::new();
    for (place, repository, tag, has_digest) in images(&below) {
        let is_chart = ["gateway-helm", "charts/isotherm"]
            .iter()
            .any(|chart| repository.ends_with(chart));
        let is_versioned = tag.is_some_and(|tag| tag != "latest") || has_digest;
        if !is_chart && !is_versioned {
            violations.push(format!("{place}: {repository}"));
        }
    }
    report("an image has a version", &violations);
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let version = value("version");
    let chart = text("deploy/helm/isotherm/Chart.yaml");
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {version}");
        assert!(chart.lines().any(|found| found == line), "no `{line}`");
    }
}

#[test]
fn the_image_of_the_compiler_is_the_pinned_one() {
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = "));
    let channel = channel.expect("a channel").trim_matches('"');
    let containerfile = text("deploy/Containerfile");
    assert!(containerfile.contains(&format!("rust:{channel}-alpine")));
    assert!(containerfile.contains(&format!("RUSTUP_TOOLCHAIN={channel}")));
}
