//! Where a request comes from: a client of this region, a region that forwards it, or back from one that would not take
//! it.
//!
//! | stream | origin | the request |
//! | --- | --- | --- |
//! | of the clients' listener | (whatever it says) | is a client's; an origin in it is forged or stale, and is counted |
//! | of a regions' listener | none | is a client's |
//! | of a regions' listener | this region | came back: it is decided anew, and goes to none of the regions that were tried |
//! | of a regions' listener | another | is a guest: it stays here, or is refused |
//!
//! Which listener a stream serves is said by Envoy's configuration, in the metadata of the gRPC call, where no client
//! can write. A request that Envoy could not send twice (its body is too large) or whose replicas the gateway restricts
//! may not leave this region either.

use isotherm_router::Scope;

use crate::pool::PeerTable;

/// The longest body that Envoy keeps for a second try, in bytes; `envoy/region.yaml` sets the same limit a little higher.
const BODY_BYTES_MAX: u64 = 3 * 1024 * 1024;

/// The most names in a list of tried regions that are looked at.
const TRIED_MAX: usize = 64;

/// Whether a stream comes from a listener that only regions reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Listener {
    /// Clients reach it: what it says of regions is not believed.
    #[default]
    Clients,
    /// Only regions, and this Envoy itself, reach it.
    Regions,
}

/// What the headers of a request say of its way, where they may be believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The region that a client reached first.
    pub(crate) region: Option<String>,
    /// The regions that were tried, in order.
    pub(crate) tried: Option<String>,
    /// The length of the body in bytes, where it is known.
    pub(crate) body_bytes: Option<u64>,
}

impl Origin {
    /// Whether another region sent the request here.
    pub(crate) fn is_guest(&self, peer_table: Option<&PeerTable>) -> bool {
        let own = peer_table.map(PeerTable::own);
        own.is_some_and(|own| {
            self.region
                .as_deref()
                .is_some_and(|region| *region != **own)
        })
    }

    /// Where the request may go. `stays` is whether anything else keeps it here.
    pub(crate) fn scope(&self, peer_table: Option<&PeerTable>, stays: bool) -> Scope {
        let Some(peer_table) = peer_table else {
            return Scope::Local;
        };
        if self.is_guest(Some(peer_table)) {
            return Scope::Forwarded;
        }
        if stays || self.body_bytes.is_some_and(|bytes| bytes > BODY_BYTES_MAX) {
            return Scope::Local;
        }
        let tried = match (&self.region, &self.tried) {
            (None, _) => "",
            (Some(_), Some(tried)) => tried,
            // It came back from somewhere: it might go there again.
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

    fn scope(origin: &str, tried: &str, body_bytes: u64, stays: bool) -> Scope {
        let peer_table = PeerTable::new("us", [("eu", "e"), ("asia", "a")], None);
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let origin = Origin {
            region: some(origin),
            tried: some(tried),
            body_bytes: Some(body_bytes),
        };
        assert_eq!(
            origin.scope(None, stays),
            Scope::Local,
            "there is no region"
        );
        origin.scope(Some(&peer_table), stays)
    }

    fn regions(tried: &[u16]) -> Scope {
        Scope::Regions {
            tried: tried.iter().copied().map(PeerId).collect(),
        }
    }

    #[test]
    fn a_clients_request_may_go_anywhere_and_one_that_came_back_not_where_it_was() {
        assert_eq!(scope("", "", 100, false), regions(&[]));
        assert_eq!(scope("us", "eu", 100, false), regions(&[0]));
        assert_eq!(scope("us", "eu, asia,mars", 100, false), regions(&[0, 1]));
        assert_eq!(scope("us", "", 100, false), Scope::Local);
    }

    #[test]
    fn a_guest_is_a_guest_whatever_else_is_said_of_it() {
        for origin in ["eu", "mars"] {
            assert_eq!(scope(origin, "", 100, false), Scope::Forwarded);
            assert_eq!(scope(origin, "us", u64::MAX, true), Scope::Forwarded);
        }
    }

    #[test]
    fn what_envoy_cannot_send_twice_and_what_is_restricted_stays() {
        assert_eq!(scope("", "", BODY_BYTES_MAX, false), regions(&[]));
        assert_eq!(scope("", "", BODY_BYTES_MAX + 1, false), Scope::Local);
        assert_eq!(scope("us", "eu", 100, true), Scope::Local);
    }
}
