//! Follows a warm cache, unless its replica has many more requests than another one.

use isotherm_router::{Policy, Reason, ReplicaIndex, Request, Selection, View};

/// Requests that a warm replica may have beyond those of the least loaded one.
const EXTRA_MAX: u32 = 4;

#[derive(Debug)]
pub(crate) struct WarmUnlessBusy;

impl Policy for WarmUnlessBusy {
    fn select_replica(&self, request: &Request, view: &View<'_>) -> Option<Selection> {
        let idle = view.least_loaded(&[])?;
        let load_max = view.rank(idle).requests() + EXTRA_MAX;
        let matched = view.longest_match(request, view.candidates());
        let warm = view.least_loaded_holder(&matched);
        let warm = warm.filter(|warm| view.rank(*warm).requests() <= load_max);
        Some(match warm {
            Some(warm) => Selection::to(warm, Reason::Prefix, Some(matched)),
            None => Selection::to(idle, Reason::LeastLoaded, None),
        })
    }

    fn score(&self, request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        request
            .fingerprint
            .share_at(view.match_on(request, replica).depth)
    }
}
