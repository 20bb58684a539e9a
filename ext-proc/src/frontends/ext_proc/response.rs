//! The messages of the service to Envoy.

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

use crate::frontends::request::reply::{
    ForwardReply, ImmediateReply, PassThroughReply, Reply, RouteReply,
};

/// Namespace in which Envoy's load balancers look for the endpoint, besides the header (Gateway API Inference Extension).
const LB_NAMESPACE: &str = "envoy.lb";

pub(super) fn encode(reply: Reply) -> ProcessingResponse {
    match reply {
        Reply::Route(reply) => route(reply),
        Reply::Forward(reply) => forward(reply),
        Reply::PassThrough(reply) => pass_through(reply),
        Reply::Immediate(reply) => immediate(&reply),
    }
}

fn route(reply: RouteReply) -> ProcessingResponse {
    let mut set = vec![set_header(names::DESTINATION, &reply.endpoints)];
    set.extend(reply.cluster.map(|name| set_header(names::CLUSTER, &name)));
    set.extend(
        reply
            .decision
            .map(|text| set_header(names::DECISION, &text)),
    );
    ProcessingResponse {
        dynamic_metadata: Some(lb_metadata(reply.endpoints)),
        ..continue_request(set, reply.removed.names())
    }
}

fn forward(reply: ForwardReply) -> ProcessingResponse {
    let mut set = vec![
        set_header(names::CLUSTER, &reply.route.peer.cluster),
        set_header(names::ORIGIN, reply.route.peer_table.own()),
        set_header(names::TRIED, &reply.tried),
    ];
    let model = reply.model.map(|model| session::encode(model.as_bytes()));
    set.extend(model.map(|model| set_header(names::MODEL, &model)));
    set.extend(
        reply
            .decision
            .map(|text| set_header(names::DECISION, &text)),
    );
    continue_request(set, std::iter::once(names::DESTINATION))
}

fn pass_through(reply: PassThroughReply) -> ProcessingResponse {
    let set = reply.cluster.map(|name| set_header(names::CLUSTER, &name));
    continue_request(set.into_iter().collect(), reply.removed.names())
}

/// Extends the time that Envoy waits for the reply.
pub(super) fn wait(timeout: Duration) -> ProcessingResponse {
    ProcessingResponse {
        override_message_timeout: Some(PbDuration {
            seconds: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(timeout.subsec_nanos()).unwrap_or(0),
        }),
        ..ProcessingResponse::default()
    }
}

fn immediate(reply: &ImmediateReply) -> ProcessingResponse {
    let headers = reply.headers();
    response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus {
            code: i32::from(reply.status),
        }),
        headers: Some(HeaderMutation {
            set_headers: headers
                .map(|(key, value)| set_header(key, &value))
                .collect(),
            remove_headers: Vec::new(),
        }),
        body: reply.body.to_string().into_bytes(),
        grpc_status: None,
        details: format!("isotherm_{}", reply.details),
    }))
}

pub(super) fn response_headers() -> ProcessingResponse {
    response(Response::ResponseHeaders(HeadersResponse::default()))
}

/// Lets a piece of a body pass. In Envoy's full-duplex mode, the service has to send each piece back.
pub(super) fn body(body: HttpBody, full_duplex: bool, of_request: bool) -> ProcessingResponse {
    let mutation = full_duplex.then_some(BodyMutation {
        mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
            body: body.body,
            end_of_stream: body.end_of_stream,
            end_of_stream_without_message: body.end_of_stream_without_message,
            grpc_message_compressed: body.grpc_message_compressed,
            drain_complete: false,
        })),
    });
    let body = BodyResponse {
        response: Some(CommonResponse {
            body_mutation: mutation,
            ..CommonResponse::default()
        }),
    };
    response(if of_request {
        Response::RequestBody(body)
    } else {
        Response::ResponseBody(body)
    })
}

pub(super) fn request_trailers() -> ProcessingResponse {
    response(Response::RequestTrailers(TrailersResponse::default()))
}

/// Lets response trailers pass. The filter sees them next, and removes the trailer that was for the service.
pub(super) fn response_trailers() -> ProcessingResponse {
    response(Response::ResponseTrailers(TrailersResponse::default()))
}

/// Lets the request continue; Envoy selects its route again.
fn continue_request(
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
