//! This service among the regions: drives the core's `Regions` (`isotherm_router`) over the links of [`crate::peering`].
//!
//! `Handle` is what the admin interface and the metrics hold: `status()` tells how the regions are ([`Status`]), and
//! `declare_lost(name)` is an operator's word that a region is gone.

mod status;

pub use status::{LinkState, PeerState, SiblingState, Standing, Status};
