//! Forwarding between regions (SkyLB 3.1 and 3.3): the peers of a pool, the selection of one, and the requests at peers.
//!
//! There are tens of peers, so a walk over all of them is the most that an event costs.
//!
//! The module is part of the router and not of `ext-proc/regions`: the peer table consists of the router's own index, ring, breakers and
//! sets, and the router asks it on the decision path.

mod forwarded;
mod peer;
mod peer_table;
mod pushes;
mod target;
mod window;

pub(crate) use forwarded::{ChosenRegion, ForwardTarget};
pub(crate) use peer_table::PeerTable;
