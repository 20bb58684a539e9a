use std::collections::HashMap;
use std::time::Duration;

use futures_util::stream::BoxStream;
use isotherm_fingerprint::names;
use isotherm_router::{Availability, Load, Role};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;

use envoy_types::pb::envoy::config::core::v3::{HeaderValue, Metadata};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HeaderMutation, HttpBody, HttpHeaders, HttpTrailers, ProtocolConfiguration,
    StreamedBodyResponse,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};

use super::*;
use crate::clock::Clock;
use crate::config;
use crate::metrics::Metrics;
use crate::pool::{Pool, PoolRegistry};

type Answers = BoxStream<'static, Result<ProcessingResponse, Status>>;

/// A service with one pool `m`, whose replicas are `127.0.0.1:1`, `127.0.0.1:2`, ...
struct Service {
    context: Arc<RequestContext>,
    settings: Arc<Settings>,
    pool: Arc<Pool>,
}

/// An open stream of a gateway.
struct Gateway {
    messages: mpsc::UnboundedSender<ProcessingRequest>,
    replies: Answers,
}

impl Service {
    fn new(replicas: u16, ext_proc: &str) -> Self {
        Self::with_pool(replicas, ext_proc, "aliases: []")
    }

    /// A service with further options of its pool.
    fn with_pool(replicas: u16, ext_proc: &str, pool: &str) -> Self {
        Self::with_options("paths: ['*']", replicas, ext_proc, pool)
    }

    /// A service with an option of its own.
    fn with_options(option: &str, replicas: u16, ext_proc: &str, pool: &str) -> Self {
        let config = format!(
            "{option}\npools: [{{ model: m, queue: {{ length_max: 0 }}, {pool} }}]\next_proc: {{ {ext_proc} }}"
        );
        let config = config::parse(&config).unwrap();
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let pool_registry = PoolRegistry::new(&config, Arc::clone(&metrics), Clock::start());
        let pool = pool_registry.pool_for("m").unwrap();
        for port in 1..=replicas {
            let replica = pool.add_replica(([127, 0, 0, 1], port).into()).unwrap();
            pool.probed(replica, Load::default(), pool.clock().now());
        }
        let context = Arc::new(RequestContext {
            pool_registry: Arc::new(pool_registry),
            metrics,
            spans: None,
            started_unix_s: 0,
        });
        Self {
            context,
            settings: Arc::new(Settings::new(config.ext_proc, config.allowed_paths)),
            pool,
        }
    }

    /// Adds a prefill replica at this port.
    fn add_prefiller(&self, port: u16) {
        let address = ([127, 0, 0, 1], port).into();
        let replica = self.pool.add_replica_as(address, Role::Prefill).unwrap();
        let now = self.pool.clock().now();
        self.pool.probed(replica, Load::default(), now);
    }

    /// Unfinished requests and prompts of each replica.
    fn outstanding(&self) -> Vec<u32> {
        let replicas = self.pool.replicas().into_iter();
        replicas.map(|replica| replica.outstanding).collect()
    }

    fn open(&self) -> Gateway {
        let (messages, inbound) = mpsc::unbounded_channel();
        let inbound = UnboundedReceiverStream::new(inbound).map(Ok);
        let (context, settings) = (Arc::clone(&self.context), Arc::clone(&self.settings));
        let replies = RequestStream::replies(context, settings, ListenerKind::Clients, inbound);
        Gateway {
            messages,
            replies: replies.boxed(),
        }
    }

    fn held_bytes(&self) -> i64 {
        self.context.metrics.held_bytes.get()
    }
}

impl Gateway {
    fn send(&self, request: Request) {
        self.messages.send(message(request)).unwrap();
    }

    /// Sends the headers of a chat, as the first message of a stream with these modes.
    fn send_headers(&self, modes: Option<(BodySendMode, BodySendMode)>, more: &[(&str, &str)]) {
        let protocol_config = modes.map(|(request, response)| ProtocolConfiguration {
            request_body_mode: request.into(),
            response_body_mode: response.into(),
            ..ProtocolConfiguration::default()
        });
        let headers = Request::RequestHeaders(headers(more));
        let first = ProcessingRequest {
            protocol_config,
            ..message(headers)
        };
        self.messages.send(first).unwrap();
    }

    /// Sends the headers of a chat that only these replicas may serve.
    fn send_subset(&self, replicas: &str) {
        let value = Value {
            kind: Some(Kind::StringValue(replicas.to_owned())),
        };
        let hint = Struct {
            fields: [("x-gateway-destination-endpoint-subset".to_owned(), value)].into(),
        };
        let first = ProcessingRequest {
            protocol_config: FULL_DUPLEX.map(|(request, response)| ProtocolConfiguration {
                request_body_mode: request.into(),
                response_body_mode: response.into(),
                ..ProtocolConfiguration::default()
            }),
            metadata_context: Some(Metadata {
                filter_metadata: [("envoy.lb.subset_hint".to_owned(), hint)].into(),
                ..Metadata::default()
            }),
            ..message(Request::RequestHeaders(headers(&CHAT)))
        };
        self.messages.send(first).unwrap();
    }

    fn send_body(&self, body: &[u8], end_of_stream: bool) {
        self.send(Request::RequestBody(piece(body, end_of_stream)));
    }

    async fn reply(&mut self) -> ProcessingResponse {
        let reply = timeout(Duration::from_secs(10), self.replies.next());
        reply.await.unwrap().unwrap().unwrap()
    }

    fn has_no_reply(&mut self) -> bool {
        self.replies.next().now_or_never().is_none()
    }
}

fn headers(pairs: &[(&str, &str)]) -> HttpHeaders {
    let headers = pairs.iter().map(|(name, value)| HeaderValue {
        key: (*name).into(),
        raw_value: (*value).into(),
        ..HeaderValue::default()
    });
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.collect(),
        }),
        ..HttpHeaders::default()
    }
}

fn piece(body: &[u8], end_of_stream: bool) -> HttpBody {
    HttpBody {
        body: body.to_vec(),
        end_of_stream,
        ..HttpBody::default()
    }
}

const CHAT: [(&str, &str); 2] = [(":method", "POST"), (":path", "/v1/chat/completions")];
const BODY: &[u8] =
    br#"{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;
/// A chat of so many questions. A hundred are long enough for a block of the fingerprint.
fn long_chat(questions: usize) -> Vec<u8> {
    let content = "Why is the sky blue? ".repeat(questions);
    let chat = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{content}"}}]}}"#);
    chat.into_bytes()
}

const FULL_DUPLEX: Option<(BodySendMode, BodySendMode)> = Some((
    BodySendMode::FullDuplexStreamed,
    BodySendMode::FullDuplexStreamed,
));

/// The changes of a reply to the headers or to a buffered body.
fn changes(reply: &ProcessingResponse) -> HeaderMutation {
    let changes = match reply.response.clone().unwrap() {
        Response::RequestHeaders(headers) => headers.response,
        Response::RequestBody(body) => body.response,
        other => panic!("{other:?}"),
    };
    changes.unwrap().header_mutation.unwrap()
}

fn destination(reply: &ProcessingResponse) -> Option<String> {
    header_of(reply, names::DESTINATION)
}

/// The value that a reply gives a header.
fn header_of(reply: &ProcessingResponse, name: &str) -> Option<String> {
    let set = changes(reply).set_headers;
    let header = set.into_iter().filter_map(|set| set.header);
    let mut found = header.filter(|header| header.key == name);
    found
        .next()
        .map(|header| String::from_utf8(header.raw_value).unwrap())
}

fn streamed(reply: ProcessingResponse) -> StreamedBodyResponse {
    let body = match reply.response.unwrap() {
        Response::RequestBody(body) | Response::ResponseBody(body) => body,
        other => panic!("{other:?}"),
    };
    match body.response.unwrap().body_mutation.unwrap().mutation {
        Some(Mutation::StreamedResponse(piece)) => piece,
        other => panic!("{other:?}"),
    }
}

fn status(reply: ProcessingResponse) -> i32 {
    match reply.response.unwrap() {
        Response::ImmediateResponse(reply) => reply.status.unwrap().code,
        other => panic!("{other:?}"),
    }
}

/// A request that was sent to the only replica, and how Envoy goes on about it.
async fn sent() -> (Arc<Pool>, mpsc::UnboundedSender<ProcessingRequest>, Answers) {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &[]);
    gateway.reply().await;
    assert_eq!(service.pool.stats().in_flight, 1);
    (service.pool, gateway.messages, gateway.replies)
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(request),
        ..ProcessingRequest::default()
    }
}

fn trailers(value: &str) -> ProcessingRequest {
    let outcome = HeaderValue {
        key: names::OUTCOME.into(),
        raw_value: value.into(),
        ..HeaderValue::default()
    };
    message(Request::ResponseTrailers(HttpTrailers {
        trailers: Some(HeaderMap {
            headers: vec![outcome],
        }),
    }))
}

#[tokio::test]
async fn an_outcome_that_arrives_right_before_the_reset_counts() {
    let (pool, envoy, answers) = sent().await;
    envoy.send(trailers("v=1;status=200")).unwrap();
    drop(answers);
    let counters = pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.aborted_in_flight), (1, 0));
}

#[tokio::test]
async fn a_stream_that_ends_without_an_outcome_aborts_its_request() {
    let (pool, _envoy, answers) = sent().await;
    drop(answers);
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);

    let (pool, envoy, mut answers) = sent().await;
    drop(envoy);
    assert!(answers.next().await.is_none());
    drop(answers);
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);
}

#[tokio::test]
async fn a_malformed_outcome_ends_the_response() {
    let (pool, envoy, mut answers) = sent().await;
    envoy.send(trailers("?")).unwrap();
    assert!(answers.next().await.is_some());
    drop(answers);
    assert_eq!(pool.stats().counters.finished_ok, 1);
}

#[tokio::test]
async fn a_full_duplex_body_is_read_and_sent_back_behind_the_decision() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    let body = long_chat(100);
    let (first, second) = body.split_at(20);
    gateway.send_body(first, false);
    assert!(gateway.has_no_reply());
    assert_eq!(service.held_bytes(), 20);
    gateway.send_body(second, true);
    let reply = gateway.reply().await;
    assert_eq!(destination(&reply).as_deref(), Some("127.0.0.1:1"));
    assert!(
        reply
            .dynamic_metadata
            .unwrap()
            .fields
            .contains_key("envoy.lb")
    );
    for (part, is_end) in [(first, false), (second, true)] {
        let piece = streamed(gateway.reply().await);
        assert_eq!((&*piece.body, piece.end_of_stream), (part, is_end));
    }
    let metrics = &service.context.metrics;
    assert_eq!(metrics.request_body_bytes.get(), body.len() as u64);
    assert_eq!(metrics.response_body_bytes.get(), 0);
    assert!(gateway.has_no_reply());
    assert_eq!(service.held_bytes(), 0);
    assert!(
        service.pool.stats().index.entries > 0,
        "the prompt was read"
    );
}

#[tokio::test]
async fn a_request_of_another_application_is_released_at_once_and_unchanged() {
    let service = Service::new(1, "mode_override: true");
    for path in ["/files/a", "/demo.Echo/Bidi", "/metrics"] {
        let mut gateway = service.open();
        let headers = [
            (":method", "POST"),
            (":path", path),
            ("x-prefiller-host-port", "theirs"),
        ];
        gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &headers);
        let reply = gateway.reply().await;
        assert_eq!(changes(&reply), HeaderMutation::default(), "{path}");
        let Some(Response::RequestHeaders(headers)) = reply.response else {
            panic!("{path}");
        };
        assert!(!headers.response.unwrap().clear_route_cache, "{path}");
        assert!(gateway.replies.next().await.is_none(), "{path}");
    }
    assert_eq!(service.outstanding(), [0]);
    assert_eq!(service.held_bytes(), 0);
}

#[tokio::test]
async fn a_request_that_passes_loses_every_header_of_isotherm() {
    let service = Service::with_options("unknown_models: pass", 1, "", "aliases: []");
    let set = [
        ("x-isotherm-model", "gpt-x"),
        ("x-isotherm-session", "0011223344556677"),
        ("x-isotherm-cluster", "m"),
        ("x-isotherm-tokens", "9"),
    ];
    let mut gateway = service.open();
    let headers = [&CHAT[..], &set].concat();
    gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &headers);
    let reply = gateway.reply().await;
    let changes = changes(&reply);
    assert!(changes.set_headers.is_empty());
    for (name, _) in set {
        assert!(changes.remove_headers.iter().any(|it| it == name), "{name}");
    }
    let Some(Response::RequestHeaders(headers)) = reply.response else {
        panic!("the request continues");
    };
    assert!(headers.response.unwrap().clear_route_cache);
    assert!(gateway.replies.next().await.is_none());
    assert_eq!(service.outstanding(), [0]);
}

#[tokio::test]
async fn a_body_with_trailers_ends_with_their_reply() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    gateway.send_body(BODY, false);
    gateway.send(Request::RequestTrailers(HttpTrailers::default()));
    assert!(destination(&gateway.reply().await).is_some());
    assert!(!streamed(gateway.reply().await).end_of_stream);
    let last = gateway.reply().await.response.unwrap();
    assert!(matches!(last, Response::RequestTrailers(_)), "{last:?}");
}

#[tokio::test]
async fn a_long_piece_is_sent_back_in_short_ones() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    let body = [BODY, &[b' '; 150_000]].concat();
    gateway.send_body(&body, true);
    gateway.reply().await;
    let mut back = Vec::new();
    for number in 1..=3 {
        let piece = streamed(gateway.reply().await);
        assert!(piece.body.len() <= 62_000);
        assert_eq!(piece.end_of_stream, number == 3);
        back.extend(piece.body);
    }
    assert!(back == body);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_decided_on_its_beginning() {
    for (limit, length) in [("", 4 << 20), ("held_bytes_max: 1048576", 1 << 20)] {
        let service = Service::new(1, limit);
        let mut gateway = service.open();
        gateway.send_headers(FULL_DUPLEX, &CHAT);
        let beginning = [&BODY[..40], &vec![b'x'; length]].concat();
        gateway.send_body(&beginning, false);
        assert!(destination(&gateway.reply().await).is_some(), "{limit}");
        for _ in 0..beginning.len().div_ceil(62_000) {
            assert!(!streamed(gateway.reply().await).end_of_stream);
        }
        gateway.send_body(b"rest", true);
        assert_eq!(streamed(gateway.reply().await).body, b"rest");
    }
}

#[tokio::test]
async fn the_decision_on_a_buffered_body_is_in_its_reply() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    let buffered = Some((BodySendMode::Buffered, BodySendMode::Buffered));
    let forged = ("x-isotherm-session", "forged");
    gateway.send_headers(buffered, &[CHAT[0], CHAT[1], forged]);
    let reply = gateway.reply().await;
    assert_eq!(destination(&reply), None);
    assert_eq!(changes(&reply).remove_headers, ["x-isotherm-session"]);
    let modes = reply.mode_override.unwrap();
    assert_eq!(modes.request_body_mode(), BodySendMode::Buffered);
    assert_eq!(modes.response_body_mode(), BodySendMode::Streamed);
    gateway.send_body(BODY, true);
    assert!(destination(&gateway.reply().await).is_some());
}

#[tokio::test]
async fn a_gateway_without_modes_gets_its_reply_after_it_has_closed() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    let plain = HeaderValue {
        key: "content-type".into(),
        value: "application/json".into(),
        ..HeaderValue::default()
    };
    gateway.send(Request::RequestHeaders(HttpHeaders {
        headers: Some(HeaderMap {
            headers: vec![plain],
        }),
        ..HttpHeaders::default()
    }));
    gateway.send_body(&long_chat(100), true);
    drop(gateway.messages);
    let reply = gateway.replies.next().await.unwrap().unwrap();
    assert!(destination(&reply).is_some());
    assert!(
        gateway.replies.next().await.is_some(),
        "the reply to the body"
    );
    assert!(gateway.replies.next().await.is_none());
    assert!(service.pool.stats().index.entries > 0);
}

#[tokio::test]
async fn a_fingerprint_of_the_filter_needs_no_body() {
    let fingerprint = ("x-isotherm-fingerprint", "AgEAAAAAAAAAAAA");
    let service = Service::new(1, "trusted_headers: always");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &[CHAT[0], CHAT[1], fingerprint]);
    assert!(destination(&gateway.reply().await).is_some());
    gateway.send_body(BODY, true);
    assert_eq!(streamed(gateway.reply().await).body, BODY);
}

#[tokio::test]
async fn a_gateway_that_sends_bodies_gets_one_endpoint_though_the_filter_is_in_front() {
    let fingerprint = ("x-isotherm-fingerprint", "AgEAAAAAAAAAAAA");
    let buffered = Some((BodySendMode::Buffered, BodySendMode::Buffered));
    let service = Service::new(3, "trusted_headers: always");
    let mut gateway = service.open();
    gateway.send_headers(buffered, &[CHAT[0], CHAT[1], fingerprint]);
    let reply = gateway.reply().await;
    let endpoint = destination(&reply).unwrap();
    assert!(!endpoint.contains(','), "{endpoint}");
    let set = changes(&reply).set_headers.into_iter();
    let mut keys = set.filter_map(|set| Some(set.header?.key));
    assert!(!keys.any(|key| key.starts_with(names::PREFIX)));
}

#[tokio::test]
async fn a_fingerprint_of_the_client_is_removed_and_the_body_read() {
    let fingerprint = ("x-isotherm-fingerprint", "AgEAAAAAAAAAAAA");
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &[CHAT[0], CHAT[1], fingerprint]);
    assert!(gateway.has_no_reply());
    gateway.send_body(BODY, true);
    let reply = gateway.reply().await;
    assert_eq!(changes(&reply).remove_headers, ["x-isotherm-fingerprint"]);
}

#[tokio::test]
async fn without_a_fingerprint_the_service_asks_for_the_body_where_it_may() {
    let service = Service::new(1, "mode_override: true");
    let none = Some((BodySendMode::None, BodySendMode::None));
    let mut gateway = service.open();
    gateway.send_headers(none, &CHAT);
    let asked = gateway.reply().await;
    assert_eq!(asked.response, None);
    let mode = asked.mode_override.unwrap().request_body_mode();
    assert_eq!(mode, BodySendMode::FullDuplexStreamed);
    gateway.send_body(BODY, true);
    assert!(destination(&gateway.reply().await).is_some());
    assert_eq!(streamed(gateway.reply().await).body, BODY);

    let mut gateway = service.open();
    let fingerprint = ("x-isotherm-fingerprint", "AgEAAAAAAAAAAAA");
    gateway.send_headers(none, &[CHAT[0], CHAT[1], fingerprint]);
    assert!(destination(&gateway.reply().await).is_some());
}

#[tokio::test]
async fn a_body_that_the_service_cannot_read_is_held_to_its_end() {
    let encoded = ("content-encoding", "gzip");
    let text = ("content-type", "text/plain");
    let unannounced = None;
    let buffered = Some((BodySendMode::Buffered, BodySendMode::Buffered));
    for modes in [FULL_DUPLEX, buffered, unannounced] {
        for more in [encoded, text] {
            let service = Service::new(1, "");
            let mut gateway = service.open();
            gateway.send_headers(modes, &[CHAT[0], CHAT[1], more]);
            if modes == buffered {
                assert_eq!(destination(&gateway.reply().await), None);
            } else {
                assert!(gateway.has_no_reply(), "{modes:?}");
                gateway.send_body(b"bytes", false);
                assert!(gateway.has_no_reply(), "{modes:?}");
            }
            assert_eq!(service.outstanding(), [0]);
            gateway.send_body(b"bytes", true);
            assert!(destination(&gateway.reply().await).is_some(), "{modes:?}");
            assert_eq!(service.outstanding(), [1]);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_late_gets_a_408_and_reaches_no_replica() {
    let buffered = Some((BodySendMode::Buffered, BodySendMode::None));
    for modes in [FULL_DUPLEX, buffered] {
        for more in [("content-encoding", "gzip"), ("x-none", "")] {
            let service = Service::new(1, "body_timeout_ms: 20");
            let mut gateway = service.open();
            gateway.send_headers(modes, &[CHAT[0], CHAT[1], more]);
            if modes == FULL_DUPLEX {
                gateway.send_body(b"{", false);
            } else {
                gateway.reply().await;
            }
            assert_eq!(status(gateway.reply().await), 408, "{modes:?}");
            assert!(gateway.replies.next().await.is_none());
            assert_eq!(service.pool.stats().counters.arrived, 0);
            assert_eq!(service.held_bytes(), 0);
        }
    }
}

#[tokio::test]
async fn a_body_whose_bytes_arrive_at_the_least_rate_is_not_late() {
    let service = Service::new(1, "body_timeout_ms: 20");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    let body = long_chat(50_000);
    let (beginning, rest) = body.split_at(1 << 20);
    gateway.send_body(beginning, false);
    let pause = Duration::from_millis(100);
    let late = timeout(pause, gateway.replies.next()).await;
    assert!(late.is_err(), "a mebibyte may take 64 seconds");
    gateway.send_body(rest, true);
    assert!(destination(&gateway.reply().await).is_some());
}

#[tokio::test]
async fn the_usage_of_a_response_is_read_while_it_passes() {
    let service = Service::new(1, "");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    gateway.send_body(BODY, true);
    gateway.reply().await;
    gateway.reply().await;
    let ok = [(":status", "200"), ("content-type", "application/json")];
    gateway.send(Request::ResponseHeaders(headers(&ok)));
    gateway.reply().await;
    let usage = br#"{"usage":{"prompt_tokens":70,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}"#;
    gateway.send(Request::ResponseBody(piece(usage, true)));
    assert_eq!(streamed(gateway.reply().await).body, usage);
    assert!(gateway.replies.next().await.is_none());
    let counters = service.pool.stats().counters;
    assert_eq!(
        (counters.finished_ok, counters.measured_prompt_tokens),
        (1, 70)
    );
}

/// Envoy's attributes at the headers of a response.
fn attributes(upstream: &str, details: &str) -> HashMap<String, Struct> {
    let text = |text: &str| Value {
        kind: Some(Kind::StringValue(text.to_owned())),
    };
    let named = [
        ("upstream.address", upstream),
        ("response.code_details", details),
    ];
    let named = named.into_iter().filter(|(_, value)| !value.is_empty());
    let fields = named.map(|(name, value)| (name.to_owned(), text(value)));
    let fields = fields.collect();
    HashMap::from([("envoy.filters.http.ext_proc".to_owned(), Struct { fields })])
}

#[tokio::test]
async fn what_envoy_did_itself_is_no_failure_of_the_replica() {
    let service = Service::new(1, "");
    for (upstream, status, details) in [
        ("127.0.0.1:1", "504", "upstream_response_timeout"),
        ("127.0.0.1:1", "504", "upstream_per_try_timeout"),
        ("", "429", "request_rate_limited"),
        ("", "503", "cluster_not_found"),
    ]
    .repeat(6)
    {
        let mut gateway = service.open();
        gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &CHAT);
        gateway.reply().await;
        let response = Request::ResponseHeaders(headers(&[(":status", status)]));
        let response = ProcessingRequest {
            attributes: attributes(upstream, details),
            ..message(response)
        };
        gateway.messages.send(response).unwrap();
        gateway.reply().await;
        drop(gateway.messages);
        assert!(gateway.replies.next().await.is_none());
    }
    let counters = service.pool.stats().counters;
    assert_eq!((counters.timed_out, counters.finished_failed), (12, 24));
    let availability = service.pool.replicas()[0].availability;
    assert_eq!(availability, Availability::Available);
}

#[tokio::test]
async fn a_stream_stays_open_for_a_request_that_outlasts_its_response() {
    let service = Service::new(1, "held_bytes_max: 1048576");
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    let beginning = vec![b'x'; (1 << 20) + 1];
    gateway.send_body(&beginning, false);
    gateway.reply().await;
    for _ in 0..beginning.len().div_ceil(62_000) {
        gateway.reply().await;
    }
    gateway.send(Request::ResponseHeaders(headers(&[(":status", "400")])));
    gateway.reply().await;
    gateway.send(Request::ResponseBody(piece(b"", true)));
    gateway.reply().await;
    gateway.send_body(b"rest", true);
    assert_eq!(streamed(gateway.reply().await).body, b"rest");
}

#[tokio::test]
async fn rejections_have_the_status_of_the_endpoint_picker_protocol() {
    let unknown = br#"{"model":"other","messages":[]}"#;
    for (replicas, body, expected) in [(0, BODY, 503), (1, unknown, 404)] {
        let mut gateway = Service::new(replicas, "").open();
        gateway.send_headers(FULL_DUPLEX, &CHAT);
        gateway.send_body(body, true);
        assert_eq!(status(gateway.reply().await), expected);
        assert!(gateway.replies.next().await.is_none());
    }
}

#[tokio::test]
async fn a_subset_by_address_names_every_rank_of_a_pod() {
    let service = Service::new(2, "");
    for (selected, expected) in [("127.0.0.1", 1), ("127.0.0.1:2", 1), ("10.0.0.1", 0)] {
        let mut gateway = service.open();
        gateway.send_subset(selected);
        gateway.send_body(BODY, true);
        let reply = gateway.reply().await;
        match expected {
            0 => assert_eq!(status(reply), 503),
            _ => assert!(!destination(&reply).unwrap().contains(','), "{reply:?}"),
        }
    }
}

#[tokio::test]
async fn a_long_prompt_names_its_prefill_replica_until_the_response_begins() {
    let service = Service::new(1, "");
    service.add_prefiller(2);
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    gateway.send_body(&long_chat(1_000), true);
    let reply = gateway.reply().await;
    assert_eq!(destination(&reply).as_deref(), Some("127.0.0.1:1"));
    let prefiller = header_of(&reply, names::PREFILLER);
    assert_eq!(prefiller.as_deref(), Some("127.0.0.1:2"));
    assert_eq!(service.outstanding(), [1, 1]);
    while !gateway.has_no_reply() {}
    let stream = [(":status", "200"), ("content-type", "text/event-stream")];
    gateway.send(Request::ResponseHeaders(headers(&stream)));
    gateway.reply().await;
    assert_eq!(service.outstanding(), [1, 1], "no token yet");
    gateway.send(Request::ResponseBody(piece(b"data: {}\n\n", false)));
    gateway.reply().await;
    assert_eq!(service.outstanding(), [1, 0], "the prompt is computed");
    gateway.send(Request::ResponseBody(piece(b"data: [DONE]\n\n", true)));
    gateway.reply().await;
    drop(gateway);
    assert_eq!(service.outstanding(), [0, 0]);
}

#[tokio::test]
async fn a_client_that_leaves_releases_both_replicas() {
    let service = Service::new(1, "");
    service.add_prefiller(2);
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    gateway.send_body(&long_chat(1_000), true);
    gateway.reply().await;
    assert_eq!(service.outstanding(), [1, 1]);
    drop(gateway);
    assert_eq!(service.outstanding(), [0, 0]);
}

#[tokio::test]
async fn a_short_prompt_names_no_prefill_replica() {
    let service = Service::new(1, "");
    service.add_prefiller(2);
    let mut gateway = service.open();
    gateway.send_headers(FULL_DUPLEX, &CHAT);
    gateway.send_body(BODY, true);
    let reply = gateway.reply().await;
    assert!(destination(&reply).is_some());
    assert_eq!(header_of(&reply, names::PREFILLER), None);
}

#[tokio::test]
async fn a_clients_headers_for_the_sidecar_are_removed_in_every_pool() {
    let forged = names::SIDECAR.map(|name| (name, "10.9.9.9:80"));
    let pairs: Vec<_> = CHAT.into_iter().chain(forged).collect();
    let headers_only = Some((BodySendMode::None, BodySendMode::None));
    for (trusted, modes) in [
        ("auto", FULL_DUPLEX),
        ("auto", headers_only),
        ("always", FULL_DUPLEX),
        ("never", headers_only),
    ] {
        for has_prefiller in [false, true] {
            let service = Service::new(1, &format!("trusted_headers: {trusted}"));
            if has_prefiller {
                service.add_prefiller(2);
            }
            let mut gateway = service.open();
            gateway.send_headers(modes, &pairs);
            if modes == FULL_DUPLEX {
                gateway.send_body(&long_chat(1_000), true);
            }
            let reply = gateway.reply().await;
            let removed = changes(&reply).remove_headers;
            let set = header_of(&reply, names::PREFILLER);
            assert_ne!(set.as_deref(), Some("10.9.9.9:80"));
            for name in names::SIDECAR {
                let is_set = name == names::PREFILLER && set.is_some();
                let is_removed = removed.iter().any(|removed| removed == name);
                assert!(is_set != is_removed, "{trusted} {modes:?}: {name}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_passes_through_loses_the_headers_for_the_sidecar() {
    let service = Service::with_options("paths: [/version]", 1, "", "aliases: []");
    let mut gateway = service.open();
    let pairs = [
        (":method", "GET"),
        (":path", "/version"),
        (names::PREFILLER, "10.9.9.9:80"),
    ];
    gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &pairs);
    let removed = changes(&gateway.reply().await).remove_headers;
    assert_eq!(removed, [names::PREFILLER]);
}

#[tokio::test]
async fn an_engine_learns_the_class_of_a_request_from_the_service_alone() {
    let forged = [
        (names::VLLM_PRIORITY, "-100"),
        (names::SGLANG_PRIORITY, "100"),
    ];
    let pairs: Vec<_> = CHAT.into_iter().chain(forged).collect();
    for (engine, expected) in [
        ("off", None),
        ("vllm", Some(names::VLLM_PRIORITY)),
        ("sglang", Some(names::SGLANG_PRIORITY)),
    ] {
        let service = Service::with_pool(1, "", &format!("engine_priority: {engine}"));
        let mut gateway = service.open();
        gateway.send_headers(FULL_DUPLEX, &pairs);
        gateway.send_body(BODY, true);
        let reply = gateway.reply().await;
        let removed = changes(&reply).remove_headers;
        for (name, _) in forged {
            let is_set = expected == Some(name);
            let value = is_set.then_some("0");
            assert_eq!(header_of(&reply, name).as_deref(), value, "{engine}");
            assert_ne!(removed.iter().any(|removed| removed == name), is_set);
        }
    }
}

#[tokio::test]
async fn the_tier_of_a_request_that_no_filter_has_read_is_read() {
    let headers_only = Some((BodySendMode::None, BodySendMode::None));
    for (modes, trusted, tier, expected) in [
        (FULL_DUPLEX, "auto", "interactive-fast", "interactive-fast"),
        (FULL_DUPLEX, "auto", "urgent", "interactive-normal"),
        (headers_only, "never", "priority", "interactive-fast"),
        // The filter in front says what counts.
        (headers_only, "auto", "priority", "interactive-normal"),
    ] {
        let options = format!("trusted_headers: {trusted}");
        let service = Service::with_pool(1, &options, "tiers: {}");
        let log = service.context.pool_registry.decision_log();
        log.look();
        let mut gateway = service.open();
        let pairs: Vec<_> = CHAT.into_iter().chain([("x-tier", tier)]).collect();
        gateway.send_headers(modes, &pairs);
        if modes == FULL_DUPLEX {
            gateway.send_body(BODY, true);
        }
        gateway.reply().await;
        let tiers = log.look().into_iter().map(|decision| decision.tier);
        assert_eq!(
            Vec::from_iter(tiers),
            [Some(expected.to_owned())],
            "{trusted}"
        );
    }
}

#[tokio::test]
async fn an_error_has_the_shape_of_its_api() {
    let service = Service::new(0, "");
    for (path, pointer, kind) in [
        ("/v1/messages", "/error/type", "overloaded_error"),
        ("/v1/chat/completions", "/error/code", "no_replica"),
    ] {
        let mut gateway = service.open();
        let pairs = [(":method", "POST"), (":path", path), (names::MODEL, "m")];
        gateway.send_headers(Some((BodySendMode::None, BodySendMode::None)), &pairs);
        let Some(Response::ImmediateResponse(reply)) = gateway.reply().await.response else {
            panic!("no response");
        };
        let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(body.pointer(pointer).unwrap(), kind, "{body}");
        assert_eq!(body.get("type").is_some(), path == "/v1/messages", "{body}");
    }
}
