//! Workloads, the load generator, and the report of the demo.
