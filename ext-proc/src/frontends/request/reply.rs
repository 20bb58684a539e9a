//! Replies to a request, in no protocol: each frontend encodes them in its own.

use std::borrow::Cow;
use std::time::Duration;

use isotherm_fingerprint::names;
use isotherm_router::Reason;
use serde_json::Value;

use crate::config::PriorityHeader;
use crate::metrics::RequestResult;
use crate::pool::{Endpoint, ForwardRoute, Pool, Route};

/// Headers that must be gone when Envoy selects the route again: its routes send a request with an origin to another region.
/// Envoy's route removes all other headers for services, which costs less than a mutation by the service.
const NOT_FOR_REPLICAS: [&str; 2] = [names::ORIGIN, names::TRIED];

/// Headers to remove, each if the request has it. A header of llm-d's sidecar is for replicas, but only from the service.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemovedHeaders {
    /// Whether no header of Isotherm may stay.
    own: bool,
    internal: [bool; NOT_FOR_REPLICAS.len()],
    sidecar: [bool; names::SIDECAR.len()],
}

impl RemovedHeaders {
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let internal = NOT_FOR_REPLICAS.into_iter().zip(self.internal);
        let all = internal.chain(names::SIDECAR.into_iter().zip(self.sidecar));
        let own = names::own().filter(move |_| self.own);
        all.filter_map(|(name, is_present)| is_present.then_some(name))
            .chain(own)
    }
}

/// Headers of a request that decide which mutations its reply needs. Each mutation costs Envoy a check of the mutation rules
/// and a search of the headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestHeaders {
    to_remove: RemovedHeaders,
    /// Envoy cluster that the filter chose.
    pub(crate) cluster: Option<String>,
}

impl RequestHeaders {
    pub(crate) fn note(&mut self, name: &str) {
        if !name.starts_with("x-") {
            return;
        }
        let RemovedHeaders {
            internal, sidecar, ..
        } = &mut self.to_remove;
        let internal = NOT_FOR_REPLICAS.iter().zip(internal);
        for (known, is_present) in internal.chain(names::SIDECAR.iter().zip(sidecar)) {
            *is_present |= name == *known;
        }
    }
}

#[derive(Debug)]
pub(crate) enum Reply {
    /// The request goes to a replica.
    Route(RouteReply),
    /// The request goes to another region.
    Forward(ForwardReply),
    /// Envoy handles the request as if the service were not there.
    PassThrough(PassThroughReply),
    /// The service replies to the client.
    Immediate(ImmediateReply),
}

impl Reply {
    /// Result under which the metrics count the reply.
    pub(crate) fn kind(&self) -> RequestResult {
        match self {
            Self::Route(_) => RequestResult::Routed,
            Self::Forward(_) => RequestResult::Forwarded,
            Self::PassThrough(_) => RequestResult::Passed,
            Self::Immediate(reply) => reply.kind,
        }
    }
}

/// Sends the request to a replica.
#[derive(Debug)]
pub(crate) struct RouteReply {
    /// The replica and its fallbacks: `ip:port[,ip:port...]`.
    pub(crate) endpoints: String,
    /// The prefill replica that computes the prompt, as `ip:port`, if one does.
    pub(crate) prefiller: Option<String>,
    /// Envoy's cluster, unless the filter has set the same one.
    pub(crate) cluster: Option<String>,
    /// Description of the decision, for the client.
    pub(crate) decision: Option<String>,
    /// Decision, for the access log.
    pub(crate) record: DecisionRecord,
    /// `traceparent` for the replica, if the request is traced.
    pub(crate) traceparent: Option<String>,
    /// Priority of the request in the engine's own queue, where the pool's engine takes one.
    pub(crate) priority: Option<PriorityHeader>,
    pub(crate) removed: RemovedHeaders,
}

impl RouteReply {
    /// Builds the reply for a route of a pool.
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
            prefiller: route.prefiller.as_ref().map(Endpoint::to_string),
            cluster: pool.cluster_unless(headers.cluster.as_deref()),
            decision,
            record: DecisionRecord::new(route.decision.reason, route.decision.queued_for),
            traceparent: None,
            priority: pool.engine_priority(route.decision.class),
            removed: headers.to_remove,
        }
    }
}

/// The part of a decision that Envoy's access log shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionRecord {
    pub(crate) reason: &'static str,
    pub(crate) queued_ms: u32,
}

impl DecisionRecord {
    fn new(reason: Reason, queued_for: Duration) -> Self {
        Self {
            reason: reason.into(),
            queued_ms: u32::try_from(queued_for.as_millis()).unwrap_or(u32::MAX),
        }
    }
}

/// Sends the request to another region, with what this region knows of it.
#[derive(Debug)]
pub(crate) struct ForwardReply {
    pub(crate) route: ForwardRoute,
    /// Regions that were tried, including the one of this reply; comma-separated.
    pub(crate) tried: String,
    /// Name under which every region knows the pool, if there is one.
    pub(crate) model: Option<String>,
    /// Description of the decision, for the client.
    pub(crate) decision: Option<String>,
    /// Decision, for the access log.
    pub(crate) record: DecisionRecord,
    /// `traceparent` for the other region, if the request is traced.
    pub(crate) traceparent: Option<String>,
    /// Rest of the request's objectives.
    pub(crate) objectives: ObjectivesLeft,
}

/// The part of a request's objectives that is left when it goes to another region, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectivesLeft {
    /// Budget for the first token. At least 1: a request without one would get the tier's.
    pub(crate) ttft_ms: Option<u32>,
    /// Time until the deadline.
    pub(crate) deadline_ms: Option<u32>,
}

impl ObjectivesLeft {
    /// Computes the rest of a budget and of the time until a deadline, after a wait.
    pub(crate) fn after(
        wait: Duration,
        ttft_slo: Option<Duration>,
        time_left: Option<Duration>,
    ) -> Self {
        let left = |time: Duration| {
            let left = time.saturating_sub(wait).as_millis();
            u32::try_from(left).unwrap_or(u32::MAX)
        };
        Self {
            ttft_ms: ttft_slo.map(|budget| left(budget).max(1)),
            deadline_ms: time_left.map(left),
        }
    }

    /// The headers for the other region.
    pub(crate) fn headers(self) -> impl Iterator<Item = (&'static str, String)> {
        let ttft = self.ttft_ms.map(|ms| (names::TTFT_MS, ms));
        let deadline = self.deadline_ms.map(|ms| (names::DEADLINE, ms));
        let all = ttft.into_iter().chain(deadline);
        all.map(|(name, ms)| (name, ms.to_string()))
    }
}

impl ForwardReply {
    /// Builds the reply for a route. `tried` names the regions before it.
    pub(crate) fn to(
        route: ForwardRoute,
        tried: &str,
        model: Option<&str>,
        decision: Option<String>,
    ) -> Self {
        let separator = if tried.is_empty() { "" } else { "," };
        Self {
            traceparent: None,
            objectives: ObjectivesLeft::default(),
            record: DecisionRecord::new(route.forwarding.reason, route.forwarding.queued_for),
            tried: format!("{tried}{separator}{}", route.peer.name),
            route,
            model: model.map(str::to_owned),
            decision,
        }
    }
}

/// Leaves the request to Envoy.
#[derive(Debug)]
pub(crate) struct PassThroughReply {
    /// Envoy's cluster, if there is one and the filter has not set the same one.
    pub(crate) cluster: Option<String>,
    /// The only replica for the request, as `ip:port`, if there is one.
    pub(crate) endpoint: Option<String>,
    /// Whether the request belongs to another application, and Isotherm has no use for its response.
    pub(crate) is_of_other_application: bool,
    pub(crate) removed: RemovedHeaders,
}

impl PassThroughReply {
    /// Builds the reply for `cluster`, if there is one.
    pub(crate) fn to(cluster: Option<String>, headers: &RequestHeaders) -> Self {
        Self {
            cluster: cluster.filter(|cluster| headers.cluster.as_ref() != Some(cluster)),
            endpoint: None,
            is_of_other_application: false,
            removed: headers.to_remove,
        }
    }

    /// Builds the reply for a request that only one replica of a pool can answer, and that takes no capacity of it.
    pub(crate) fn to_replica(pool: &Pool, replica: &Endpoint, headers: &RequestHeaders) -> Self {
        Self {
            cluster: pool.cluster_unless(headers.cluster.as_deref()),
            endpoint: Some(replica.to_string()),
            is_of_other_application: false,
            removed: headers.to_remove,
        }
    }

    /// Builds the reply for a request of another application, to which the headers of llm-d's sidecar mean something else.
    /// `has_own` says that the request carries headers of Isotherm.
    pub(crate) fn untouched(has_own: bool) -> Self {
        Self {
            cluster: None,
            endpoint: None,
            is_of_other_application: true,
            removed: RemovedHeaders {
                own: has_own,
                ..RemovedHeaders::default()
            },
        }
    }
}

/// A response of the service to the client.
#[derive(Debug)]
pub(crate) struct ImmediateReply {
    /// Result under which the metrics count the reply.
    pub(crate) kind: RequestResult,
    pub(crate) status: u16,
    pub(crate) body: Value,
    /// Delay after which the client may try again.
    pub(crate) retry_after: Option<Duration>,
    /// Methods that the path takes.
    pub(crate) allow: Option<&'static str>,
    /// Reason for the rejection, for the region that forwarded the request.
    pub(crate) refused: Option<&'static str>,
    /// Details for Envoy's log.
    pub(crate) details: &'static str,
}

impl ImmediateReply {
    /// Builds a response to a client.
    pub(crate) fn new(
        kind: RequestResult,
        status: u16,
        body: Value,
        details: &'static str,
    ) -> Self {
        Self {
            kind,
            status,
            body,
            retry_after: None,
            allow: None,
            refused: None,
            details,
        }
    }

    /// Rejects a forwarded request, so that the region it came from decides again.
    pub(crate) fn to_region(
        reason: &'static str,
        body: Value,
        retry_after: Option<Duration>,
    ) -> Self {
        Self {
            retry_after,
            refused: Some(reason),
            ..Self::new(RequestResult::Rejected, 503, body, reason)
        }
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        let retry_after = self.retry_after.map(whole_seconds);
        [
            Some(("content-type", "application/json".into())),
            retry_after.map(|after| ("retry-after", after.into())),
            self.allow.map(|methods| ("allow", methods.into())),
            self.refused.map(|reason| (names::REFUSED, reason.into())),
        ]
        .into_iter()
        .flatten()
    }
}

/// Rounds up to the whole seconds of `Retry-After`; zero would invite every client back at once.
fn whole_seconds(after: Duration) -> String {
    let rounded_up = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    rounded_up.max(1).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_request_carries_what_is_left() {
        let seconds = |n| Some(Duration::from_secs(n));
        let left = ObjectivesLeft::after(Duration::from_secs(2), seconds(5), seconds(60));
        let headers = Vec::from_iter(left.headers());
        let expected = [(names::TTFT_MS, "3000"), (names::DEADLINE, "58000")];
        assert_eq!(headers, expected.map(|(name, ms)| (name, ms.to_owned())));
        let late = ObjectivesLeft::after(Duration::from_secs(90), seconds(5), seconds(60));
        assert_eq!((late.ttft_ms, late.deadline_ms), (Some(1), Some(0)));
        let none = ObjectivesLeft::after(Duration::from_secs(2), None, None);
        assert_eq!(none.headers().count(), 0);
    }

    #[test]
    fn retry_after_is_in_whole_seconds_and_never_zero() {
        assert_eq!(whole_seconds(Duration::ZERO), "1");
        assert_eq!(whole_seconds(Duration::from_millis(1)), "1");
        assert_eq!(whole_seconds(Duration::from_millis(2_001)), "3");
    }
}
