//! Starts Envoy, the service and simulated engines on free loopback ports, and stops them.
