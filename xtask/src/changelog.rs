//! `CHANGELOG.md`: one section a version, from which the notes of a release are cut.

use anyhow::Context as _;

/// The heading of what no version has yet.
pub(crate) const UNRELEASED: &str = "Unreleased";

/// The text below the heading of a version, such as `## 0.2.0` or `## 0.2.0 - 2026-11-29`.
pub(crate) fn section<'a>(changelog: &'a str, version: &str) -> anyhow::Result<&'a str> {
    let start = headings(changelog)
        .find(|(_, title)| title.split(' ').next() == Some(version))
        .with_context(|| format!("CHANGELOG.md has no section `## {version}`"))?;
    let (start, title) = start;
    let text = changelog.get(start + title.len()..).unwrap_or_default();
    let end = headings(text).next().map_or(text.len(), |(end, _)| end);
    let text = text.get(..end).unwrap_or_default();
    Ok(text.trim_end().trim_end_matches("##").trim())
}

/// The titles of the sections, with the byte at which each begins.
fn headings(text: &str) -> impl Iterator<Item = (usize, &str)> {
    const MARK: &str = "\n## ";
    text.match_indices(MARK).map(move |(at, _)| {
        let start = at + MARK.len();
        let title = text.get(start..).unwrap_or_default();
        (start, title.lines().next().unwrap_or_default().trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str =
        "# Changelog\n\n## Unreleased\n\n### Added\n\n- new\n\n## 0.2.0 - 2026-11-29\n\n- old\n";

    #[test]
    fn a_section_ends_at_the_next_version() {
        let notes = section(CHANGELOG, UNRELEASED).unwrap();
        assert_eq!(notes, "### Added\n\n- new");
        assert_eq!(section(CHANGELOG, "0.2.0").unwrap(), "- old");
    }

    #[test]
    fn a_version_without_a_section_is_an_error_that_names_the_heading() {
        let error = section(CHANGELOG, "0.2").unwrap_err().to_string();
        assert_eq!(error, "CHANGELOG.md has no section `## 0.2`");
    }
}
