//! The variants that the bench compares.

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
    /// A filter that copies the body, and an external processor that passes every request: request headers only
    FloorHeaders,
    /// The floor with request headers and one response trailer: the two messages that Isotherm gets
    Floor,
    /// Isotherm as delivered
    Isotherm,
    /// Isotherm without the filter's decision stream: the service decides in external processing
    IsothermExtProc,
    /// Isotherm, its service over a Unix socket
    IsothermUnix,
    /// Isotherm that exports spans of one request in a hundred
    IsothermTraced,
    /// An external processor that sends bodies back, full duplex, and picks nothing
    PickerEcho,
    /// Isotherm as an endpoint picker without the filter, full duplex
    Picker,
    /// The reference endpoint picker of the Gateway API Inference Extension, full duplex
    ReferencePicker,
    /// The Shepherd model gateway, SGLang's router by its former name, policy `cache_aware`
    Smg,
}

impl Variant {
    /// Endpoint pickers, with Envoy alone and with Isotherm's filter.
    pub const PICKERS: [Self; 5] = [
        Self::Envoy,
        Self::Isotherm,
        Self::PickerEcho,
        Self::Picker,
        Self::ReferencePicker,
    ];

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
            Self::IsothermTraced => "Isotherm, 1 % traced",
            Self::PickerEcho => "echo, full duplex",
            Self::Picker => "Isotherm, no filter",
            Self::ReferencePicker => "reference picker",
            Self::Smg => "smg",
        }
    }

    /// Whether the variant runs Isotherm's service.
    #[must_use]
    pub fn is_isotherm(self) -> bool {
        matches!(
            self,
            Self::Isotherm
                | Self::IsothermExtProc
                | Self::IsothermUnix
                | Self::IsothermTraced
                | Self::Picker
        )
    }

    /// Whether the variant keeps a part of each prompt.
    #[must_use]
    pub fn remembers(self) -> bool {
        self.is_isotherm() || matches!(self, Self::ReferencePicker | Self::Smg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_with_a_prefix_index_remember() {
        let mut remembering = Variant::value_variants().to_vec();
        remembering.retain(|variant| variant.remembers());
        let expected = [
            Variant::Isotherm,
            Variant::IsothermExtProc,
            Variant::IsothermUnix,
            Variant::IsothermTraced,
            Variant::Picker,
            Variant::ReferencePicker,
            Variant::Smg,
        ];
        assert_eq!(remembering, expected);
    }
}
