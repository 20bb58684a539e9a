//! The names of what is compared.

use clap::ValueEnum;
use serde::Serialize;

/// A path from a client to the same replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Envoy and nothing else
    Envoy,
    /// Envoy with both instances of Isotherm's filter, without the service
    Filter,
    /// A filter that copies the body, and an external processor that lets all pass: request headers only
    FloorHeaders,
    /// The floor with request headers and one response trailer: the two messages that Isotherm gets
    Floor,
    /// Isotherm as delivered
    Isotherm,
    /// Isotherm without the filter's decision stream: every request is asked about by external processing
    IsothermExtProc,
    /// Isotherm, its service over a Unix socket
    IsothermUnix,
    /// SGLang's router, policy `cache_aware`
    SglangRouter,
}

impl Variant {
    /// Name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Envoy => "Envoy",
            Self::Filter => "Envoy + filter",
            Self::FloorHeaders => "floor, headers only",
            Self::Floor => "floor",
            Self::Isotherm => "Isotherm",
            Self::IsothermExtProc => "Isotherm, ext_proc",
            Self::IsothermUnix => "Isotherm, Unix socket",
            Self::SglangRouter => "sglang-router",
        }
    }

    /// Whether it keeps something of each prompt.
    #[must_use]
    pub fn remembers(self) -> bool {
        matches!(
            self,
            Self::Isotherm | Self::IsothermExtProc | Self::IsothermUnix | Self::SglangRouter
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_remember_are_those_with_a_prefix_index() {
        let remember: Vec<&str> = Variant::value_variants()
            .iter()
            .filter(|row| row.remembers())
            .map(|row| row.name())
            .collect();
        assert_eq!(
            remember,
            [
                "Isotherm",
                "Isotherm, ext_proc",
                "Isotherm, Unix socket",
                "sglang-router"
            ]
        );
    }
}
