//! `isotherm-bench-floor`: a minimal external processor for `cargo xtask bench path`.
//!
//! The floor passes every request and response, and uses its libraries as their documentation shows: generated types, the usual
//! runtime, the usual buffers. Any cost of Isotherm's service beyond it is the cost of a decision.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as ProcessingKind;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyResponse, HeadersResponse, ProcessingRequest, ProcessingResponse, TrailersResponse,
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
        let answers = request.into_inner().map(|message| Ok(pass(&message?)));
        Ok(Response::new(Box::pin(answers)))
    }
}

/// An empty response of the requested kind.
fn pass(message: &ProcessingRequest) -> ProcessingResponse {
    let response = message.request.as_ref().map(|kind| match kind {
        ProcessingKind::RequestHeaders(_) => Answer::RequestHeaders(HeadersResponse::default()),
        ProcessingKind::ResponseHeaders(_) => Answer::ResponseHeaders(HeadersResponse::default()),
        ProcessingKind::RequestBody(_) => Answer::RequestBody(BodyResponse::default()),
        ProcessingKind::ResponseBody(_) => Answer::ResponseBody(BodyResponse::default()),
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
