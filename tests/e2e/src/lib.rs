//! End-to-end tests on a real Envoy.
