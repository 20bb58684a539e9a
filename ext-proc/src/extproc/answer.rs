//! The messages that go back to Envoy.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpBody,
    ImmediateResponse, ProcessingResponse, StreamedBodyResponse, TrailersResponse,
    body_mutation::Mutation,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Duration as PbDuration, Struct, Value};
use isotherm_fingerprint::{names, session};

use crate::driver::{Forward, Route};

/// Where Envoy's load balancers look for the endpoint, beside the header (Gateway API Inference Extension).
const LB_NAMESPACE: &str = "envoy.lb";

/// What must not be there when Envoy picks the route anew: it sends what has an origin to another region. All else that
/// only services read is the route's to take away, which costs Envoy less than a change that it is asked for.
const NOT_FOR_REPLICAS: [&str; 2] = [names::ORIGIN, names::TRIED];

/// What a request carried that its answer takes away, or need not say again: every change that an answer asks for costs
/// Envoy a look at what the service may change, and another at the headers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    not_for_replicas: [bool; NOT_FOR_REPLICAS.len()],
    cluster: Option<String>,
}

impl Carried {
    /// Takes note of a header.
    pub(crate) fn note(&mut self, name: &str, value: &[u8]) {
        if name == names::CLUSTER {
            self.cluster = str::from_utf8(value).ok().map(str::to_owned);
        }
        for (known, seen) in NOT_FOR_REPLICAS.iter().zip(&mut self.not_for_replicas) {
            *seen |= name == *known;
        }
    }

    /// The header that leads to `cluster`, unless the filter has written the same one.
    fn leading_to(&self, cluster: &str) -> Option<HeaderValueOption> {
        let is_there = self.cluster.as_deref() == Some(cluster);
        (!is_there).then(|| set_header(names::CLUSTER, cluster))
    }

    /// The headers of those that replicas must not get that are there.
    fn not_for_replicas(&self) -> impl Iterator<Item = &'static str> {
        let all = NOT_FOR_REPLICAS.into_iter().zip(self.not_for_replicas);
        all.filter_map(|(name, seen)| seen.then_some(name))
    }
}

/// Sends the request to a replica.
pub(crate) fn routed(
    route: &Route,
    cluster: &str,
    decision: Option<String>,
    carried: &Carried,
) -> ProcessingResponse {
    let mut endpoints = route.chosen.as_str().to_owned();
    for fallback in &route.fallbacks {
        endpoints.push(',');
        endpoints.push_str(fallback.as_str());
    }
    let mut set = vec![set_header(names::DESTINATION, &endpoints)];
    set.extend(carried.leading_to(cluster));
    set.extend(decision.map(|decision| set_header(names::DECISION, &decision)));
    ProcessingResponse {
        dynamic_metadata: Some(lb_metadata(endpoints)),
        ..go_on(set, carried.not_for_replicas())
    }
}

/// Sends the request to another region, which gets to know what this one knows of it. `tried` are the regions that have
/// had it already; `model` is the name under which every region knows the pool, where it has one.
pub(crate) fn forwarded(
    forward: &Forward,
    tried: &str,
    model: Option<&str>,
    decision: Option<String>,
) -> ProcessingResponse {
    let peer = &forward.peer;
    let mut tried = tried.to_owned();
    if !tried.is_empty() {
        tried.push(',');
    }
    tried.push_str(&peer.name);
    let mut set = vec![
        set_header(names::CLUSTER, &peer.cluster),
        set_header(names::ORIGIN, forward.directory.own()),
        set_header(names::TRIED, &tried),
    ];
    set.extend(model.map(|model| set_header(names::MODEL, &session::encode(model.as_bytes()))));
    set.extend(decision.map(|decision| set_header(names::DECISION, &decision)));
    go_on(set, std::iter::once(names::DESTINATION))
}

/// Lets the request go as if this service were not there, to `cluster` where one is named.
pub(crate) fn passed(cluster: Option<&str>, carried: &Carried) -> ProcessingResponse {
    let set = cluster.and_then(|cluster| carried.leading_to(cluster));
    go_on(set.into_iter().collect(), carried.not_for_replicas())
}

/// Tells Envoy to wait for the answer for as long as `timeout`.
pub(crate) fn wait(timeout: Duration) -> ProcessingResponse {
    ProcessingResponse {
        override_message_timeout: Some(PbDuration {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(timeout.subsec_nanos()).unwrap_or(0),
        }),
        ..ProcessingResponse::default()
    }
}

/// An answer that comes from here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Immediate<'a> {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: &'a serde_json::Value,
    /// When another try is worth while.
    pub(crate) retry_after: Option<Duration>,
    /// The region that forwarded this request hears why it was refused.
    pub(crate) refused: Option<&'a str>,
    /// What Envoy's log says of it.
    pub(crate) details: &'a str,
}

/// Answers the client from here.
pub(crate) fn immediate(answer: Immediate<'_>) -> ProcessingResponse {
    let mut set = vec![set_header("content-type", "application/json")];
    let retry_after = answer.retry_after.map(whole_seconds);
    set.extend(retry_after.map(|after| set_header("retry-after", &after)));
    set.extend(answer.refused.map(|why| set_header(names::REFUSED, why)));
    response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(answer.status),
        }),
        headers: Some(HeaderMutation {
            set_headers: set,
            remove_headers: Vec::new(),
        }),
        body: answer.body.to_string().into_bytes(),
        grpc_status: None,
        details: format!("isotherm_{}", answer.details),
    }))
}

/// Lets response headers pass.
pub(crate) fn response_headers() -> ProcessingResponse {
    response(Response::ResponseHeaders(HeadersResponse::default()))
}

/// Lets a piece of a body pass. In Envoy's full-duplex mode nothing passes that is not sent back.
pub(crate) fn body(body: HttpBody, full_duplex: bool, of_request: bool) -> ProcessingResponse {
    let mutation = full_duplex.then_some(BodyMutation {
        mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
            body: body.body,
            end_of_stream: body.end_of_stream,
            end_of_stream_without_message: body.end_of_stream_without_message,
            grpc_message_compressed: body.grpc_message_compressed,
            drain_complete: false,
        })),
    });
    let answer = BodyResponse {
        response: Some(CommonResponse {
            body_mutation: mutation,
            ..CommonResponse::default()
        }),
    };
    response(if of_request {
        Response::RequestBody(answer)
    } else {
        Response::ResponseBody(answer)
    })
}

/// Lets request trailers pass.
pub(crate) fn request_trailers() -> ProcessingResponse {
    response(Response::RequestTrailers(TrailersResponse::default()))
}

/// Lets response trailers pass. The one that was for this service is the filter's to take away, which sees them next.
pub(crate) fn response_trailers() -> ProcessingResponse {
    response(Response::ResponseTrailers(TrailersResponse::default()))
}

/// The rest of the request goes on, by a route that is picked anew.
fn go_on(
    set_headers: Vec<HeaderValueOption>,
    remove: impl Iterator<Item = &'static str>,
) -> ProcessingResponse {
    response(Response::RequestHeaders(HeadersResponse {
        response: Some(CommonResponse {
            header_mutation: Some(HeaderMutation {
                set_headers,
                remove_headers: remove.map(str::to_owned).collect(),
            }),
            clear_route_cache: true,
            ..CommonResponse::default()
        }),
    }))
}

fn response(response: Response) -> ProcessingResponse {
    ProcessingResponse {
        response: Some(response),
        ..ProcessingResponse::default()
    }
}

fn set_header(key: &str, value: &str) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            raw_value: value.as_bytes().to_owned(),
            ..HeaderValue::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    }
}

fn lb_metadata(endpoints: String) -> Struct {
    let text = Value {
        kind: Some(Kind::StringValue(endpoints)),
    };
    let endpoint = Struct {
        fields: [(names::DESTINATION.to_owned(), text)].into(),
    };
    let lb = Value {
        kind: Some(Kind::StructValue(endpoint)),
    };
    Struct {
        fields: [(LB_NAMESPACE.to_owned(), lb)].into(),
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
