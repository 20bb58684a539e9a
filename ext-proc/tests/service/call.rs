//! Envoy's side of a request.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HeadersResponse, HttpHeaders, HttpTrailers, ImmediateResponse, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration, TrailersResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use super::PATIENCE;

/// A request of Envoy. Envoy drops it when the client disconnects.
pub(crate) struct Call {
    to_service: mpsc::Sender<ProcessingRequest>,
    from_service: Streaming<ProcessingResponse>,
}

/// The service's answer to the headers of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The request goes on.
    GoOn(GoOn),
    /// The client gets this.
    Immediate {
        status: i32,
        retry_after: Option<String>,
        refused: Option<String>,
        body: serde_json::Value,
    },
}

/// How a request goes on.
#[derive(Debug)]
pub(crate) struct GoOn {
    pub(crate) set: Vec<(String, String)>,
    pub(crate) removed: Vec<String>,
    pub(crate) clear_route_cache: bool,
    pub(crate) lb_endpoint: Option<String>,
}

impl GoOn {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.set.iter().find(|(key, _)| key == name);
        header.map(|(_, value)| value.as_str())
    }

    pub(crate) fn destination(&self) -> Option<&str> {
        self.header("x-gateway-destination-endpoint")
    }
}

impl Call {
    /// Opens one as a listener does that says this of itself.
    pub(crate) async fn open(channel: Channel, listener: Option<&str>) -> Self {
        let (to_service, messages) = mpsc::channel(16);
        let mut stream = tonic::Request::new(ReceiverStream::new(messages));
        if let Some(listener) = listener {
            let value = listener.parse().unwrap();
            stream.metadata_mut().insert("x-isotherm-listener", value);
        }
        let from_service = ExternalProcessorClient::new(channel)
            .process(stream)
            .await
            .unwrap()
            .into_inner();
        Self {
            to_service,
            from_service,
        }
    }

    pub(crate) async fn send(&self, message: ProcessingRequest) {
        self.to_service.send(message).await.unwrap();
    }

    pub(crate) async fn headers(&mut self, headers: &[(&str, &str)]) {
        self.headers_with(headers, None).await;
    }

    pub(crate) async fn headers_with(
        &mut self,
        headers: &[(&str, &str)],
        metadata_context: Option<Metadata>,
    ) {
        let headers = HttpHeaders {
            headers: Some(map(headers)),
            ..HttpHeaders::default()
        };
        self.send(ProcessingRequest {
            metadata_context,
            request: Some(Request::RequestHeaders(headers)),
            // Envoy with the filter in front announces that it sends no bodies.
            protocol_config: Some(ProtocolConfiguration::default()),
            ..ProcessingRequest::default()
        })
        .await;
    }

    /// Sends messages while the replies are read.
    pub(crate) fn send_each(&self, messages: Vec<ProcessingRequest>) {
        let to_service = self.to_service.clone();
        tokio::spawn(async move {
            for message in messages {
                if to_service.send(message).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Closes the gateway's side of the stream.
    pub(crate) fn close(&mut self) {
        let (closed, _) = mpsc::channel(1);
        self.to_service = closed;
    }

    /// The next message, whatever it is; `None` at the end of the stream.
    pub(crate) async fn message(&mut self) -> Option<ProcessingResponse> {
        tokio::time::timeout(PATIENCE, self.from_service.message())
            .await
            .expect("an answer in time")
            .unwrap()
    }

    /// Whether nothing comes for a moment.
    pub(crate) async fn is_quiet(&mut self) -> bool {
        let moment = Duration::from_millis(50);
        tokio::time::timeout(moment, self.from_service.message())
            .await
            .is_err()
    }

    /// The answer to the headers, which must not be a request for more time.
    pub(crate) async fn answer(&mut self) -> Answer {
        let message = self.message().await.unwrap();
        assert_eq!(message.override_message_timeout, None, "it waits");
        Self::read(message)
    }

    /// The answer to the headers, at once or after it has waited.
    pub(crate) async fn answer_at_last(&mut self) -> Answer {
        let first = self.message().await.unwrap();
        match first.override_message_timeout {
            None => Self::read(first),
            Some(_) => self.answer().await,
        }
    }

    /// A message that must be a refusal: its status, its code, and what the region that forwarded it hears.
    pub(crate) fn refusal(message: ProcessingResponse) -> (i32, String, Option<String>) {
        match Self::read(message) {
            Answer::Immediate {
                status,
                body,
                refused,
                ..
            } => {
                let code = body["error"]["code"].as_str().unwrap_or_default();
                (status, code.to_owned(), refused)
            }
            Answer::GoOn(other) => panic!("{other:?}"),
        }
    }

    fn read(message: ProcessingResponse) -> Answer {
        let metadata = message.dynamic_metadata;
        match message.response.unwrap() {
            Response::RequestHeaders(answer) => Answer::GoOn(go_on(answer, metadata)),
            Response::ImmediateResponse(answer) => immediate(answer),
            other => panic!("not an answer to request headers: {other:?}"),
        }
    }

    pub(crate) async fn goes_on(&mut self) -> GoOn {
        match self.answer().await {
            Answer::GoOn(go_on) => go_on,
            other => panic!("{other:?}"),
        }
    }

    /// The request for more time that a waiting request begins with.
    pub(crate) async fn waits(&mut self) -> Duration {
        let message = self.message().await.unwrap();
        assert_eq!(message.response, None);
        let more = message.override_message_timeout.expect("it waits");
        Duration::new(
            more.seconds.try_into().unwrap(),
            more.nanos.try_into().unwrap(),
        )
    }

    /// Tells how the response ended, and returns the answer to that.
    pub(crate) async fn outcome(&mut self, outcome: &str) -> TrailersResponse {
        let trailers = HttpTrailers {
            trailers: Some(map(&[("x-isotherm-outcome", outcome)])),
        };
        self.send(ProcessingRequest {
            request: Some(Request::ResponseTrailers(trailers)),
            ..ProcessingRequest::default()
        })
        .await;
        match self.message().await.unwrap().response.unwrap() {
            Response::ResponseTrailers(answer) => answer,
            other => panic!("not an answer to trailers: {other:?}"),
        }
    }
}

fn map(headers: &[(&str, &str)]) -> HeaderMap {
    let headers = headers.iter().map(|(key, value)| HeaderValue {
        key: (*key).into(),
        raw_value: value.as_bytes().into(),
        ..HeaderValue::default()
    });
    HeaderMap {
        headers: headers.collect(),
    }
}

fn go_on(
    answer: HeadersResponse,
    metadata: Option<envoy_types::pb::google::protobuf::Struct>,
) -> GoOn {
    let common = answer.response.unwrap();
    let mutation = common.header_mutation.unwrap();
    let set = mutation.set_headers.into_iter().map(|option| {
        let header = option.header.unwrap();
        (header.key, String::from_utf8(header.raw_value).unwrap())
    });
    let lb = metadata.and_then(|metadata| serde_of(metadata.fields.get("envoy.lb")?));
    GoOn {
        set: set.collect(),
        removed: mutation.remove_headers,
        clear_route_cache: common.clear_route_cache,
        lb_endpoint: lb,
    }
}

fn serde_of(lb: &envoy_types::pb::google::protobuf::Value) -> Option<String> {
    use envoy_types::pb::google::protobuf::value::Kind;
    let Some(Kind::StructValue(lb)) = &lb.kind else {
        return None;
    };
    match &lb.fields.get("x-gateway-destination-endpoint")?.kind {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    }
}

fn immediate(answer: ImmediateResponse) -> Answer {
    let headers = answer.headers.unwrap().set_headers;
    let header = |name: &str| {
        let mut headers = headers.iter().filter_map(|option| option.header.as_ref());
        let header = headers.find(|header| header.key == name)?;
        Some(String::from_utf8(header.raw_value.clone()).unwrap())
    };
    Answer::Immediate {
        status: answer.status.unwrap().code,
        retry_after: header("retry-after"),
        refused: header("x-isotherm-refused"),
        body: serde_json::from_slice(&answer.body).unwrap(),
    }
}
