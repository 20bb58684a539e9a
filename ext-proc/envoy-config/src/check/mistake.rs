//! A mistake of a configuration.

use std::fmt;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// Requests fail, hang, go astray, or pass without their authentication.
    Error,
    /// Knowledge or privacy is lost.
    Warning,
}

/// A mistake of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mistake {
    /// File with the mistake.
    pub file: String,
    /// Line of the file, from 1.
    pub line: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Consequence of the mistake.
    pub hazard: String,
    /// Instruction for the operator.
    pub remedy: &'static str,
    /// Whether the line is one of a route, which may stand in another file than the filters.
    #[serde(skip)]
    pub(super) is_of_route: bool,
}

impl Mistake {
    pub(super) fn error(
        rule: &'static str,
        line: usize,
        hazard: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            file: String::new(),
            line,
            rule,
            severity: Severity::Error,
            hazard: hazard.into(),
            remedy,
            is_of_route: false,
        }
    }

    pub(super) fn warning(
        rule: &'static str,
        line: usize,
        hazard: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(rule, line, hazard, remedy)
        }
    }

    pub(super) fn of_route(self) -> Self {
        Self {
            is_of_route: true,
            ..self
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            rule,
            severity,
            hazard,
            remedy,
            ..
        } = self;
        let place = if file.is_empty() {
            "line ".to_owned()
        } else {
            format!("{file}:")
        };
        write!(
            f,
            "{place}{line}: {severity}: {rule}\n  {hazard}\n  -> {remedy}"
        )
    }
}
