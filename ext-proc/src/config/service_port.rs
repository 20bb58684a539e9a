//! A port of a Service of Kubernetes.

use std::fmt;

/// A port of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServicePort {
    /// Number of the port at the pods.
    Number(u16),
    /// Name of the port.
    Name(String),
    /// Number of the port at the pods, which no EndpointSlice has to name.
    Unlisted(u16),
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) | Self::Unlisted(number) => number.fmt(f),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}
