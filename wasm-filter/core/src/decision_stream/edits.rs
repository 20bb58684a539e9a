//! The headers of a request that is let go.

use isotherm_decision_proto::Route;
use isotherm_fingerprint::names;

use crate::headers::Edit;
use crate::response::orca;

/// The headers of a request that nobody is to be asked about any more: what only the service reads is not even written.
pub(super) fn undecided(id: u32, mut edits: Vec<Edit>) -> Vec<Edit> {
    edits.retain(|edit| match edit {
        Edit::Remove(_) => true,
        Edit::Set(name, _) => [names::SESSION, names::CLUSTER].contains(name),
    });
    edits.push(Edit::set(names::DECIDED, id.to_string()));
    edits
}

/// The same, with where it goes, and with whether the engine is asked for its load.
pub(super) fn decided(
    id: u32,
    edits: Vec<Edit>,
    routed: Route,
    asks_for_report: bool,
) -> Vec<Edit> {
    let Route {
        destination,
        cluster,
        decision: _,
    } = routed;
    let mut kept = undecided(id, edits);
    kept.push(Edit::set(names::DESTINATION, destination));
    if !cluster.is_empty() {
        kept.retain(|edit| !matches!(edit, Edit::Set(names::CLUSTER, _)));
        kept.push(Edit::set(names::CLUSTER, cluster));
    }
    if asks_for_report {
        kept.push(Edit::set(orca::FORMAT_HEADER, orca::FORMAT));
    }
    kept
}
