//! Several regions, each with an Envoy and services of its own, and the network between them.

mod conversation;
mod crashing_prompts;
mod forwarding;
mod gateway;
mod in_flight;
mod leases;
mod misbehaving_peers;
mod partition;
mod schedules;
mod siblings;
