//! Origin of a request: a client of this region, a region that forwards the request, or a region that rejected it.
//!
//! | listener of the stream | origin | request |
//! | --- | --- | --- |
//! | clients | any | a client's; an origin in it is forged or stale, and is counted |
//! | regions | none | a client's |
//! | regions | this region | a request that came back; the service decides again, and excludes the regions that were tried |
//! | regions | another region | a forwarded request; it stays in this region or is rejected |
//!
//! Envoy's configuration names the listener in the metadata of the gRPC call, of external processing as of a decision stream,
//! where no client can write. A request also
//! stays in this region when Envoy could not send it twice (its body is too large), and when the gateway restricts its
//! replicas.

use isotherm_fingerprint::names;
use isotherm_router::Scope;
use tonic::metadata::MetadataMap;

use crate::pool::PeerTable;

/// Longest body that Envoy keeps for a second try, in bytes; `envoy/region.yaml` sets its limit a little higher.
const BODY_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// Limit of names that are read from a list of tried regions.
const TRIED_MAX: usize = 64;

/// The kind of listener that a stream belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// Clients reach the listener: headers about regions are not trusted.
    #[default]
    Clients,
    /// Only other regions and this Envoy itself reach the listener.
    Regions,
}

impl ListenerKind {
    /// Reads the metadata of a gRPC call.
    pub(crate) fn of_call(metadata: &MetadataMap) -> Self {
        match metadata.get(names::LISTENER) {
            Some(value) if value.as_bytes() == names::LISTENER_REGIONS.as_bytes() => Self::Regions,
            Some(_) | None => Self::Clients,
        }
    }
}

/// The trusted headers of a request about its way through the regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Region that a client reached first.
    pub(crate) region: Option<String>,
    /// Regions that were tried, in order.
    pub(crate) tried: Option<String>,
    /// Body length in bytes, if known.
    pub(crate) body_bytes: Option<u64>,
}

impl Origin {
    /// Whether another region forwarded the request here.
    pub(crate) fn is_other_region(&self, peer_table: Option<&PeerTable>) -> bool {
        match (peer_table, &self.region) {
            (Some(peer_table), Some(region)) => **region != **peer_table.own(),
            _ => false,
        }
    }

    /// Returns the regions that the request may go to. `must_stay` keeps it in this region.
    pub(crate) fn scope(&self, peer_table: Option<&PeerTable>, must_stay: bool) -> Scope {
        let Some(peer_table) = peer_table else {
            return Scope::Local;
        };
        if self.is_other_region(Some(peer_table)) {
            return Scope::Forwarded;
        }
        if must_stay || self.body_bytes.is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
            return Scope::Local;
        }
        let tried = match (&self.region, &self.tried) {
            (None, _) => "",
            (Some(_), Some(tried)) => tried,
            // The request came back from an unknown region, and might go there again.
            (Some(_), None) => return Scope::Local,
        };
        let names = tried.split(',').map(str::trim).take(TRIED_MAX);
        let tried = names.filter_map(|name| Some(peer_table.named(name)?.id));
        Scope::Regions {
            tried: tried.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_router::PeerId;

    use super::*;

    fn scope(origin: &str, tried: &str, body_bytes: u64, must_stay: bool) -> Scope {
        let peer_table = PeerTable::new("us", ["eu", "asia"], None);
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let origin = Origin {
            region: some(origin),
            tried: some(tried),
            body_bytes: Some(body_bytes),
        };
        assert_eq!(
            origin.scope(None, must_stay),
            Scope::Local,
            "there are no regions"
        );
        origin.scope(Some(&peer_table), must_stay)
    }

    fn regions(tried: &[u16]) -> Scope {
        Scope::Regions {
            tried: tried.iter().copied().map(PeerId).collect(),
        }
    }

    #[test]
    fn a_clients_request_may_go_to_any_region_but_not_to_one_that_was_tried() {
        assert_eq!(scope("", "", 100, false), regions(&[]));
        assert_eq!(scope("us", "eu", 100, false), regions(&[0]));
        assert_eq!(scope("us", "eu, asia,mars", 100, false), regions(&[0, 1]));
        assert_eq!(scope("us", "", 100, false), Scope::Local);
    }

    #[test]
    fn a_forwarded_request_stays_in_this_region() {
        for origin in ["eu", "mars"] {
            assert_eq!(scope(origin, "", 100, false), Scope::Forwarded);
            assert_eq!(scope(origin, "us", u64::MAX, true), Scope::Forwarded);
        }
    }

    #[test]
    fn a_large_body_and_a_restricted_subset_stay_in_this_region() {
        assert_eq!(scope("", "", BODY_BYTES_MAX, false), regions(&[]));
        assert_eq!(scope("", "", BODY_BYTES_MAX + 1, false), Scope::Local);
        assert_eq!(scope("us", "eu", 100, true), Scope::Local);
    }
}
