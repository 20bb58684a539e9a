//! Two services of one region, and what they tell each other.

use isotherm_router::{Event, Placement, RouterConfig};

use super::script::Script;

pub fn pair(config: &RouterConfig, replicas: u32) -> [Script; 2] {
    [(); 2].map(|()| Script::new(config.clone(), replicas))
}

pub fn placements(script: &mut Script) -> Vec<Placement> {
    std::iter::from_fn(|| script.router.poll_placement()).collect()
}

/// Passes the placements of one service to the other.
pub fn share(from: &mut Script, to: &mut Script) {
    for placement in placements(from) {
        to.event(Event::Shared(placement));
    }
}
