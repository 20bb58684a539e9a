//! Filters of other people, as JSON of Envoy's, and the programs that some of them need.

use std::fs;
use std::net::SocketAddr;

use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Part;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Reply;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeadersResponse, HttpBody, ProcessingRequest,
    ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use isotherm_harness::Tools;
use isotherm_harness::envoy::socket_address;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

const TYPES: &str = "type.googleapis.com/envoy.extensions";
/// Envoy's cluster of the processor.
const CLUSTER: &str = "processor";

/// A filter of other people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignFilter {
    /// Lua that reads the whole response.
    Lua,
    /// An external processor of whole response bodies.
    Buffered,
    /// An external processor of streamed response bodies.
    Streamed,
    /// An external processor that sends response bodies back.
    FullDuplex,
    Compressor,
    Decompressor,
    Buffer,
    Cache,
    GrpcWeb,
    /// Another wasm filter, which holds bodies to their end.
    Wasm,
}

impl ForeignFilter {
    pub(crate) const ALL: [Self; 10] = [
        Self::Lua,
        Self::Buffered,
        Self::Streamed,
        Self::FullDuplex,
        Self::Compressor,
        Self::Decompressor,
        Self::Buffer,
        Self::Cache,
        Self::GrpcWeb,
        Self::Wasm,
    ];

    /// The filter, as an element of `http_filters`.
    pub(crate) fn config(self) -> anyhow::Result<Value> {
        let (name, fields) = match self {
            Self::Lua => {
                let code = "function envoy_on_response(handle) handle:body() end";
                let code = json!({ "default_source_code": { "inline_string": code } });
                ("filters.http.lua.v3.Lua", code)
            }
            Self::Buffered => (EXT_PROC, processor("BUFFERED")),
            Self::Streamed => (EXT_PROC, processor("STREAMED")),
            Self::FullDuplex => (EXT_PROC, processor("FULL_DUPLEX_STREAMED")),
            Self::Compressor => (
                "filters.http.compressor.v3.Compressor",
                library("compressor.v3.Gzip", "compressor_library"),
            ),
            Self::Decompressor => (
                "filters.http.decompressor.v3.Decompressor",
                library("decompressor.v3.Gzip", "decompressor_library"),
            ),
            Self::Buffer => {
                let fields = json!({ "max_request_bytes": 10 << 20 });
                ("filters.http.buffer.v3.Buffer", fields)
            }
            Self::Cache => {
                let store = "http.cache.simple_http_cache.v3.SimpleHttpCacheConfig";
                let store = json!({ "typed_config": { "@type": format!("{TYPES}.{store}") } });
                ("filters.http.cache.v3.CacheConfig", store)
            }
            Self::GrpcWeb => ("filters.http.grpc_web.v3.GrpcWeb", json!({})),
            Self::Wasm => ("filters.http.wasm.v3.Wasm", holding_module()?),
        };
        let mut typed = fields;
        typed["@type"] = format!("{TYPES}.{name}").into();
        Ok(json!({ "name": format!("foreign.{self:?}"), "typed_config": typed }))
    }
}

const EXT_PROC: &str = "filters.http.ext_proc.v3.ExternalProcessor";

fn processor(mode: &str) -> Value {
    json!({
        "grpc_service": { "envoy_grpc": { "cluster_name": CLUSTER } },
        "message_timeout": "30s",
        "processing_mode": {
            "request_header_mode": "SKIP", "response_header_mode": "SEND",
            "response_body_mode": mode, "response_trailer_mode": "SEND"
        }
    })
}

fn library(name: &str, field: &str) -> Value {
    let name = format!("{TYPES}.compression.gzip.{name}");
    json!({ field: { "name": "gzip", "typed_config": { "@type": name } } })
}

/// A wasm filter that holds each body to its end, written out: five exports and three functions.
fn holding_module() -> anyhow::Result<Value> {
    const HEAD: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x10\x03\x60\0\0\x60\x01\x7f\x01\x7f\x60\x03\x7f\x7f\x7f\x01\x7f\
        \x03\x04\x03\0\x01\x02\x05\x03\x01\0\x01";
    /// Returns; returns an address; returns whether the last parameter, the end of the stream, is 0 (`StopIteration`).
    const CODE: &[u8] = b"\x0a\x10\x03\x02\0\x0b\x05\0\x41\x80\x08\x0b\x05\0\x20\x02\x45\x0b";
    let exports = [
        ("memory", 2, 0),
        ("proxy_abi_version_0_2_1", 0, 0),
        ("malloc", 0, 1),
        ("proxy_on_request_body", 0, 2),
        ("proxy_on_response_body", 0, 2),
    ];
    let mut section = vec![u8::try_from(exports.len())?];
    for (name, kind, index) in exports {
        section.push(u8::try_from(name.len())?);
        section.extend(name.as_bytes());
        section.extend([kind, index]);
    }
    let length = u8::try_from(section.len())?;
    let module = [HEAD, &[7, length], &section, CODE].concat();
    let path = Tools::find()?.output.join("holding.wasm");
    fs::write(&path, module)?;
    let code = json!({ "local": { "filename": path.to_string_lossy() } });
    let runtime = "envoy.wasm.runtime.v8";
    let vm = json!({ "vm_id": "foreign", "runtime": runtime, "code": code });
    Ok(json!({ "config": { "name": "foreign", "vm_config": vm } }))
}

/// An external processor that passes every response. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Processor {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Processor {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tonic::transport::Server::builder()
            .add_service(ExternalProcessorServer::new(EchoProcessor))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { drop(server.await) });
        Ok(Self { address, server })
    }

    /// Envoy's cluster of the processor.
    pub(crate) fn cluster(&self) -> Value {
        let http = format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions");
        json!({
            "name": CLUSTER,
            "type": "STATIC",
            "load_assignment": { "cluster_name": CLUSTER, "endpoints": [{
                "lb_endpoints": [{ "endpoint": { "address": socket_address(&self.address) } }]
            }]},
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": http, "explicit_http_config": { "http2_protocol_options": {} }
                }
            }
        })
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct EchoProcessor;

#[tonic::async_trait]
impl ExternalProcessor for EchoProcessor {
    type ProcessStream = BoxStream<'static, Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let mut full_duplex = false;
        let replies = request.into_inner().map(move |message| {
            let message = message?;
            if let Some(config) = &message.protocol_config {
                full_duplex = config.response_body_mode() == BodySendMode::FullDuplexStreamed;
            }
            Ok(pass(message, full_duplex))
        });
        Ok(Response::new(replies.boxed()))
    }
}

fn pass(message: ProcessingRequest, full_duplex: bool) -> ProcessingResponse {
    let body = |piece: HttpBody| BodyResponse {
        response: full_duplex.then(|| CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
                    body: piece.body,
                    end_of_stream: piece.end_of_stream,
                    ..StreamedBodyResponse::default()
                })),
            }),
            ..CommonResponse::default()
        }),
    };
    let response = message.request.map(|part| match part {
        Part::RequestHeaders(_) => Reply::RequestHeaders(HeadersResponse::default()),
        Part::ResponseHeaders(_) => Reply::ResponseHeaders(HeadersResponse::default()),
        Part::RequestBody(piece) => Reply::RequestBody(body(piece)),
        Part::ResponseBody(piece) => Reply::ResponseBody(body(piece)),
        Part::RequestTrailers(_) => Reply::RequestTrailers(TrailersResponse::default()),
        Part::ResponseTrailers(_) => Reply::ResponseTrailers(TrailersResponse::default()),
    });
    ProcessingResponse {
        response,
        ..ProcessingResponse::default()
    }
}
