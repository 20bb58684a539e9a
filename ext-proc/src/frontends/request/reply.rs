//! What becomes of a request, in nobody's protocol yet: external processing and the decision stream each say it in their own.

use std::borrow::Cow;
use std::time::Duration;

use isotherm_fingerprint::names;

use crate::metrics::RequestResult;
use crate::pool::{ForwardRoute, Pool, Route};

/// What must not be there when Envoy picks the route anew: it sends what has an origin to another region. All else that
/// only services read is the route's to take away, which costs Envoy less than a change that it is asked for.
const NOT_FOR_REPLICAS: [&str; 2] = [names::ORIGIN, names::TRIED];

/// The headers of those that replicas must not get that are there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemovedHeaders([bool; NOT_FOR_REPLICAS.len()]);

impl RemovedHeaders {
    /// Their names.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = NOT_FOR_REPLICAS.into_iter().zip(self.0);
        all.filter_map(|(name, seen)| seen.then_some(name))
    }
}

/// What a request carried that its answer takes away, or need not say again: every change that an answer asks for costs
/// Envoy a look at what the service may change, and another at the headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHeaders {
    not_for_replicas: RemovedHeaders,
    cluster: Option<String>,
}

impl RequestHeaders {
    /// Takes note of a header.
    pub(crate) fn note(&mut self, name: &str, value: &[u8]) {
        if name == names::CLUSTER {
            self.cluster = str::from_utf8(value).ok().map(str::to_owned);
        }
        for (known, seen) in NOT_FOR_REPLICAS.iter().zip(&mut self.not_for_replicas.0) {
            *seen |= name == *known;
        }
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It goes to a replica.
    Route(RouteReply),
    /// It goes to another region.
    Forward(ForwardReply),
    /// It goes as if this service were not there.
    PassThrough(PassThroughReply),
    /// Its client has its answer from here.
    Immediate(ImmediateReply),
}

impl Reply {
    /// What counts it.
    pub(crate) fn kind(&self) -> RequestResult {
        match self {
            Self::Route(_) => RequestResult::Routed,
            Self::Forward(_) => RequestResult::Forwarded,
            Self::PassThrough(_) => RequestResult::Passed,
            Self::Immediate(immediate) => immediate.kind,
        }
    }
}

/// A request goes to a replica.
#[derive(Debug)]
pub(crate) struct RouteReply {
    /// `ip:port[,ip:port...]`: the replica and its fallbacks.
    pub(crate) endpoints: String,
    /// Envoy's cluster, unless the filter has written the same one.
    pub(crate) cluster: Option<String>,
    /// Why, for the client.
    pub(crate) decision: Option<String>,
    /// What goes.
    pub(crate) removed: RemovedHeaders,
}

impl RouteReply {
    /// To where `route` says, in a pool.
    pub(crate) fn to(
        route: &Route,
        pool: &Pool,
        decision: Option<String>,
        headers: &RequestHeaders,
    ) -> Self {
        let all = std::iter::once(&route.chosen).chain(&route.fallbacks);
        let length = all.map(|endpoint| endpoint.as_str().len() + 1).sum();
        let mut endpoints = String::with_capacity(length);
        endpoints.push_str(route.chosen.as_str());
        for fallback in &route.fallbacks {
            endpoints.push(',');
            endpoints.push_str(fallback.as_str());
        }
        Self {
            endpoints,
            cluster: pool.cluster_unless(headers.cluster.as_deref()),
            decision,
            removed: headers.not_for_replicas,
        }
    }
}

/// A request goes to another region, which gets to know what this one knows of it.
#[derive(Debug)]
pub(crate) struct ForwardReply {
    /// Where.
    pub(crate) forward: ForwardRoute,
    /// The regions that have had it, with the one that it goes to now; comma-separated.
    pub(crate) tried: String,
    /// The name under which every region knows the pool, where it has one.
    pub(crate) model: Option<String>,
    /// Why, for the client.
    pub(crate) decision: Option<String>,
}

impl ForwardReply {
    /// To where `forward` says. `tried` are the regions that have had it already.
    pub(crate) fn to(
        forward: ForwardRoute,
        tried: &str,
        model: Option<&str>,
        decision: Option<String>,
    ) -> Self {
        let mut tried = tried.to_owned();
        if !tried.is_empty() {
            tried.push(',');
        }
        tried.push_str(&forward.peer.name);
        Self {
            forward,
            tried,
            model: model.map(str::to_owned),
            decision,
        }
    }
}

/// A request goes as if this service were not there.
#[derive(Debug)]
pub(crate) struct PassThroughReply {
    /// Envoy's cluster, where one is named and the filter has not written the same one.
    pub(crate) cluster: Option<String>,
    /// What goes.
    pub(crate) removed: RemovedHeaders,
}

impl PassThroughReply {
    /// To `cluster` where one is named.
    pub(crate) fn to(cluster: Option<String>, headers: &RequestHeaders) -> Self {
        Self {
            cluster: cluster.filter(|cluster| headers.cluster.as_ref() != Some(cluster)),
            removed: headers.not_for_replicas,
        }
    }
}

/// An answer that comes from here.
#[derive(Debug)]
pub(crate) struct ImmediateReply {
    /// What counts it.
    pub(crate) kind: RequestResult,
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: serde_json::Value,
    /// When another try is worth while.
    pub(crate) retry_after: Option<Duration>,
    /// The region that forwarded this request hears why it was refused.
    pub(crate) refused: Option<&'static str>,
    /// What Envoy's log says of it.
    pub(crate) details: &'static str,
}

impl ImmediateReply {
    /// Its headers.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        let retry_after = self.retry_after.map(whole_seconds);
        [
            Some(("content-type", "application/json".into())),
            retry_after.map(|after| ("retry-after", after.into())),
            self.refused.map(|why| (names::REFUSED, why.into())),
        ]
        .into_iter()
        .flatten()
    }
}

/// `Retry-After` knows whole seconds only; none at all would invite everybody back at once.
fn whole_seconds(after: Duration) -> String {
    let rounded_up = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    rounded_up.max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), "1");
        assert_eq!(whole_seconds(Duration::from_millis(1)), "1");
        assert_eq!(whole_seconds(Duration::from_millis(2_001)), "3");
    }
}
