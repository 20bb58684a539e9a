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

use super::super::request::reply::{
    ForwardReply, ImmediateReply, PassThroughReply, Reply, RouteReply,
};

/// Where Envoy's load balancers look for the endpoint, beside the header (Gateway API Inference Extension).
const LB_NAMESPACE: &str = "envoy.lb";

/// What becomes of a request.
pub(crate) fn reply(reply: Reply) -> ProcessingResponse {
    match reply {
        Reply::Route(routed) => self::routed(routed),
        Reply::Forward(forwarded) => self::forwarded(forwarded),
        Reply::PassThrough(passed) => self::passed(passed),
        Reply::Immediate(immediate) => self::immediate(&immediate),
    }
}

/// Sends the request to a replica.
fn routed(routed: RouteReply) -> ProcessingResponse {
    let mut set = vec![set_header(names::DESTINATION, &routed.endpoints)];
    set.extend(routed.cluster.map(|to| set_header(names::CLUSTER, &to)));
    set.extend(routed.decision.map(|why| set_header(names::DECISION, &why)));
    ProcessingResponse {
        dynamic_metadata: Some(lb_metadata(routed.endpoints)),
        ..go_on(set, routed.removed.names())
    }
}

/// Sends the request to another region.
fn forwarded(forwarded: ForwardReply) -> ProcessingResponse {
    let forward = &forwarded.forward;
    let mut set = vec![
        set_header(names::CLUSTER, &forward.peer.cluster),
        set_header(names::ORIGIN, forward.peer_table.own()),
        set_header(names::TRIED, &forwarded.tried),
    ];
    let model = forwarded.model;
    set.extend(model.map(|model| set_header(names::MODEL, &session::encode(model.as_bytes()))));
    let decision = forwarded.decision;
    set.extend(decision.map(|why| set_header(names::DECISION, &why)));
    go_on(set, std::iter::once(names::DESTINATION))
}

/// Lets the request go as if this service were not there.
fn passed(passed: PassThroughReply) -> ProcessingResponse {
    let set = passed.cluster.map(|to| set_header(names::CLUSTER, &to));
    go_on(set.into_iter().collect(), passed.removed.names())
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

/// Answers the client from here.
fn immediate(answer: &ImmediateReply) -> ProcessingResponse {
    let headers = answer.headers();
    response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(answer.status),
        }),
        headers: Some(HeaderMutation {
            set_headers: headers
                .map(|(key, value)| set_header(key, &value))
                .collect(),
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
