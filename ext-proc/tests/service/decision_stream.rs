//! Requests on a decision stream, over real sockets.

use isotherm_decision_proto::{
    Action, ClientMessage, DecisionRequest, DecisionResponse, Header, METHOD, RequestEnd, SERVICE,
    ServerMessage,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic_prost::ProstCodec;

use super::{ONE_AT_A_TIME, PATIENCE, Service, wait_until};

/// The decision stream of an Envoy worker. Dropping it ends the worker.
pub(crate) struct DecisionStream {
    to_service: mpsc::Sender<ClientMessage>,
    from_service: Streaming<ServerMessage>,
}

impl DecisionStream {
    async fn open(service: &Service) -> Self {
        Self::open_for(service, None).await
    }

    /// Opens one as a listener does that says this of itself.
    pub(crate) async fn open_for(service: &Service, listener: Option<&str>) -> Self {
        let (to_service, messages) = mpsc::channel(16);
        let mut client = tonic::client::Grpc::new(service.channel.clone());
        client.ready().await.unwrap();
        let mut messages = tonic::Request::new(ReceiverStream::new(messages));
        if let Some(listener) = listener {
            let value = listener.parse().unwrap();
            messages.metadata_mut().insert("x-isotherm-listener", value);
        }
        let path = format!("/{SERVICE}/{METHOD}").parse().unwrap();
        let codec = ProstCodec::<ClientMessage, ServerMessage>::default();
        let call = client.streaming(messages, path, codec).await;
        let mut stream = Self {
            to_service,
            from_service: call.unwrap().into_inner(),
        };
        assert_eq!(stream.message().await, Some(ServerMessage::default()));
        stream
    }

    async fn message(&mut self) -> Option<ServerMessage> {
        tokio::time::timeout(PATIENCE, self.from_service.message())
            .await
            .expect("a message in time")
            .unwrap()
    }

    async fn say(&self, requests: &[u32], ends: &[(u32, &str)]) {
        let requests = requests.iter().map(|id| chat(*id, &[])).collect();
        self.send(requests, ends).await;
    }

    /// Sends one chat request with further headers.
    pub(crate) async fn ask(&self, id: u32, headers: &[(&str, &str)]) {
        self.send(vec![chat(id, headers)], &[]).await;
    }

    pub(crate) async fn send(&self, requests: Vec<DecisionRequest>, ends: &[(u32, &str)]) {
        let ends = ends.iter().map(|(id, outcome)| RequestEnd {
            request_id: *id,
            outcome: (*outcome).into(),
        });
        let ends = ends.collect();
        self.to_service
            .send(ClientMessage {
                requests,
                ends,
                ..ClientMessage::default()
            })
            .await
            .unwrap();
    }

    /// The only answer of the next message.
    pub(crate) async fn answer(&mut self) -> (u32, Action) {
        let said = self.message().await.unwrap();
        assert!(said.go_away.is_none());
        assert_eq!(said.responses.len(), 1, "{said:?}");
        read(said.responses).remove(0)
    }

    /// A request that must go to a replica: which.
    async fn routed(&mut self, id: u32) -> String {
        match self.answer().await {
            (found, Action::Route(routed)) if found == id => routed.destination,
            other => panic!("{other:?}"),
        }
    }
}

fn read(responses: Vec<DecisionResponse>) -> Vec<(u32, Action)> {
    let responses = responses.into_iter();
    responses
        .map(|said| (said.request_id, said.action.unwrap()))
        .collect()
}

fn chat(id: u32, headers: &[(&str, &str)]) -> DecisionRequest {
    let all = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-cluster", "l"),
    ];
    let headers = all.iter().chain(headers).map(|(name, value)| Header {
        name: (*name).into(),
        value: (*value).into(),
    });
    DecisionRequest {
        request_id: id,
        headers: headers.collect(),
    }
}

#[tokio::test]
async fn requests_are_routed_queued_and_ended_on_one_stream() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let pool = service.pool();
    let mut stream = DecisionStream::open(&service).await;
    stream.say(&[1], &[]).await;
    assert_eq!(stream.routed(1).await, service.engines[0].addr.to_string());
    stream.say(&[2, 3], &[]).await;
    let responses = read(stream.message().await.unwrap().responses);
    for (answer, id) in responses.iter().zip([2, 3]) {
        assert!(
            matches!(answer, (found, Action::Wait(waits))
                if *found == id && waits.timeout_ms > 30_000),
            "{answer:?}"
        );
    }
    assert_eq!(responses.len(), 2, "both in one message");
    service.page_with("isotherm_decision_streams 1").await;
    service.page_with("isotherm_open_requests 3").await;

    stream.say(&[], &[(2, "")]).await;
    wait_until("its place is free", || pool.stats().queue_length == 1).await;
    stream.say(&[], &[(1, "v=1;status=200")]).await;
    stream.routed(3).await;
    let counters = pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.aborted_waiting), (1, 1));

    // A request by external processing waits for one of the decision stream's, and goes with the decision stream.
    let mut call = service.chat("llama").await;
    call.waits().await;
    drop(stream);
    call.goes_on().await;
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);
    service.page_with("isotherm_decision_streams 0").await;
    service.page_with("isotherm_open_requests 1").await;
}

#[tokio::test]
async fn a_stop_empties_the_queue_of_a_decision_stream_which_ends_with_its_last_request() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut stream = DecisionStream::open(&service).await;
    let mut idle = DecisionStream::open(&service).await;
    stream.say(&[1], &[]).await;
    stream.routed(1).await;
    stream.say(&[2], &[]).await;
    assert!(matches!(stream.answer().await, (2, Action::Wait(_))));
    service.stop();
    assert!(idle.message().await.unwrap().go_away.is_some());
    assert_eq!(idle.message().await, None, "nothing is open on it");

    let (mut leaving, mut responses) = (0, Vec::new());
    while leaving == 0 || responses.is_empty() {
        let said = stream.message().await.unwrap();
        leaving += u32::from(said.go_away.is_some());
        responses.extend(read(said.responses));
    }
    assert_eq!(leaving, 1);
    assert!(
        matches!(&*responses, [(2, Action::ExtProcFallback(_))]),
        "{responses:?}"
    );
    assert!(!service.ended.is_finished(), "one is still in flight");
    let pool = service.pool();
    stream.say(&[], &[(1, "v=1;status=200")]).await;
    assert_eq!(stream.message().await, None);
    assert_eq!(pool.stats().counters.finished_ok, 1);
    drop((stream, idle));
    service.ended().await;
}

#[tokio::test]
async fn a_thousand_requests_on_a_decision_stream_leave_no_state() {
    let options = ONE_AT_A_TIME.replace("outstanding:1", "outstanding:1000");
    let service = Service::start(&options, 3).await;
    let mut stream = DecisionStream::open(&service).await;
    let asked: Vec<u32> = (0..1000).collect();
    for requests in asked.chunks(100) {
        stream.say(requests, &[]).await;
    }
    let mut routed = Vec::new();
    while routed.len() < asked.len() {
        for (id, action) in read(stream.message().await.unwrap().responses) {
            match action {
                Action::Route(_) => routed.push(id),
                other => panic!("{other:?}"),
            }
        }
    }
    routed.sort_unstable();
    assert_eq!(routed, asked);
    let ends: Vec<_> = asked.iter().map(|id| (*id, "v=1;status=200")).collect();
    stream.say(&[], &ends).await;
    let pool = service.pool();
    wait_until("all have ended", || pool.stats().in_flight == 0).await;
    let counters = pool.stats().counters;
    assert_eq!(counters.arrived, 1000);
    assert_eq!(counters.finished_ok, 1000);
    service.page_with("isotherm_open_requests 0").await;
}
