//! A fault of an installation.

use std::fmt;

use isotherm_envoy_config::check::Severity;
use serde::Serialize;

/// A fault of an installation, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    /// Name of the fault.
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// Description of the problem.
    pub(super) problem: String,
    /// Instruction for the operator.
    pub(super) remedy: String,
}

impl Fault {
    pub(super) fn error(
        name: &'static str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            name,
            severity: Severity::Error,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    pub(super) fn warning(
        name: &'static str,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(name, problem, remedy)
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            severity,
            problem,
            remedy,
        } = self;
        write!(f, "{severity}: {name}: {problem} -> {remedy}")
    }
}
