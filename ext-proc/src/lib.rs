//! The Isotherm external processor for Envoy.
