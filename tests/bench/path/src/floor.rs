//! `isotherm-bench-floor`: a minimal external processor for `cargo xtask bench path`.
//!
//! The floor passes every request and response, and uses its libraries as their documentation shows: generated types, the usual
//! runtime, the usual buffers. Any cost of Isotherm's service beyond it is the cost of a decision.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as ProcessingKind;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeadersResponse, HttpBody, ProcessingRequest,
    ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// An external processor that passes every request and response
#[derive(Parser)]
struct Arguments {
    /// Where Envoy connects
    listen: SocketAddr,
}

#[tokio::main]
async fn main() -> ExitCode {
    let served = Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(100_000)
        .add_service(ExternalProcessorServer::new(Floor))
        .serve(Arguments::parse().listen)
        .await;
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Floor;

#[tonic::async_trait]
impl ExternalProcessor for Floor {
    type ProcessStream = BoxStream<'static, Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let mut full_duplex = false;
        let answers = request.into_inner().map(move |message| {
            let message = message?;
            if let Some(config) = &message.protocol_config {
                full_duplex = config.request_body_mode() == BodySendMode::FullDuplexStreamed;
            }
            Ok(pass(message, full_duplex))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

/// An empty response of the requested kind; in full-duplex mode, a body goes back.
fn pass(message: ProcessingRequest, full_duplex: bool) -> ProcessingResponse {
    let body = |body: HttpBody| BodyResponse {
        response: full_duplex.then(|| CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
                    body: body.body,
                    end_of_stream: body.end_of_stream,
                    ..StreamedBodyResponse::default()
                })),
            }),
            ..CommonResponse::default()
        }),
    };
    let response = message.request.map(|kind| match kind {
        ProcessingKind::RequestHeaders(_) => Answer::RequestHeaders(HeadersResponse::default()),
        ProcessingKind::ResponseHeaders(_) => Answer::ResponseHeaders(HeadersResponse::default()),
        ProcessingKind::RequestBody(piece) => Answer::RequestBody(body(piece)),
        ProcessingKind::ResponseBody(piece) => Answer::ResponseBody(body(piece)),
        ProcessingKind::RequestTrailers(_) => Answer::RequestTrailers(TrailersResponse::default()),
        ProcessingKind::ResponseTrailers(_) => {
            Answer::ResponseTrailers(TrailersResponse::default())
        }
    });
    ProcessingResponse {
        response,
        ..ProcessingResponse::default()
    }
}
