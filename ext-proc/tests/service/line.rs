//! Requests that ask by a line, over real sockets.

use isotherm_decision_proto::{Answer, Ask, End, FromFilter, FromService, Header, PATH, What};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;

use super::{ONE_AT_A_TIME, PATIENCE, Service, eventually};

/// One worker's line. Dropping it is what the end of its Envoy is.
struct Line {
    to_service: mpsc::Sender<FromFilter>,
    from_service: Streaming<FromService>,
}

impl Line {
    /// Opens one, which has not said yet that it is good.
    async fn try_open(service: &Service) -> Result<Self, Status> {
        let (to_service, messages) = mpsc::channel(16);
        let mut client = tonic::client::Grpc::new(service.channel.clone());
        client.ready().await.unwrap();
        let messages = tonic::Request::new(ReceiverStream::new(messages));
        let codec = ProstCodec::<FromFilter, FromService>::default();
        let from_service = client
            .streaming(messages, PathAndQuery::from_static(PATH), codec)
            .await?
            .into_inner();
        Ok(Self {
            to_service,
            from_service,
        })
    }

    async fn open(service: &Service) -> Self {
        let mut line = Self::try_open(service).await.unwrap();
        assert_eq!(line.message().await, Some(FromService::default()));
        line
    }

    async fn message(&mut self) -> Option<FromService> {
        tokio::time::timeout(PATIENCE, self.from_service.message())
            .await
            .expect("a message in time")
            .unwrap()
    }

    async fn say(&self, asks: &[u32], ends: &[(u32, &str)]) {
        let asks = asks.iter().copied().map(chat).collect();
        let ends = ends.iter().map(|(id, outcome)| End {
            id: *id,
            outcome: (*outcome).into(),
        });
        let ends = ends.collect();
        self.to_service
            .send(FromFilter { asks, ends })
            .await
            .unwrap();
    }

    /// The only answer of the next message.
    async fn answer(&mut self) -> (u32, What) {
        let said = self.message().await.unwrap();
        assert!(!said.leaving);
        assert_eq!(said.answers.len(), 1, "{said:?}");
        read(said.answers).remove(0)
    }

    /// A request that must go to a replica: which.
    async fn routed(&mut self, id: u32) -> String {
        match self.answer().await {
            (found, What::Routed(routed)) if found == id => routed.destination,
            other => panic!("{other:?}"),
        }
    }
}

fn read(answers: Vec<Answer>) -> Vec<(u32, What)> {
    let answers = answers.into_iter();
    answers.map(|said| (said.id, said.what.unwrap())).collect()
}

fn chat(id: u32) -> Ask {
    let header = |name: &str, value: &str| Header {
        name: name.into(),
        value: value.into(),
    };
    Ask {
        id,
        headers: vec![
            header(":method", "POST"),
            header(":path", "/v1/chat/completions"),
            header("x-isotherm-model", "llama"),
            header("x-isotherm-cluster", "l"),
        ],
    }
}

#[tokio::test]
async fn requests_are_routed_wait_and_end_on_one_stream() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let pool = service.pool();
    let mut line = Line::open(&service).await;
    line.say(&[1], &[]).await;
    assert_eq!(line.routed(1).await, service.engines[0].addr.to_string());
    line.say(&[2, 3], &[]).await;
    let answers = read(line.message().await.unwrap().answers);
    for (answer, id) in answers.iter().zip([2, 3]) {
        assert!(
            matches!(answer, (found, What::Waits(waits))
                if *found == id && waits.milliseconds > 30_000),
            "{answer:?}"
        );
    }
    assert_eq!(answers.len(), 2, "both in one message");
    service.page_with("isotherm_lines 1").await;
    service.page_with("isotherm_ext_proc_streams 3").await;

    line.say(&[], &[(2, "")]).await;
    eventually("its place is free", || pool.stats().queue_length == 1).await;
    line.say(&[], &[(1, "v=1;status=200")]).await;
    line.routed(3).await;
    let counters = pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.aborted_waiting), (1, 1));

    // A request by external processing waits for one of the line's, and goes with the line.
    let mut call = service.chat("llama").await;
    call.waits().await;
    drop(line);
    call.goes_on().await;
    assert_eq!(pool.stats().counters.aborted_in_flight, 1);
    service.page_with("isotherm_lines 0").await;
    service.page_with("isotherm_ext_proc_streams 1").await;
}

#[tokio::test]
async fn a_stop_lets_the_queue_of_a_line_go_and_the_line_ends_with_its_last_request() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut line = Line::open(&service).await;
    let mut idle = Line::open(&service).await;
    line.say(&[1], &[]).await;
    line.routed(1).await;
    line.say(&[2], &[]).await;
    assert!(matches!(line.answer().await, (2, What::Waits(_))));
    service.stop();
    assert!(idle.message().await.unwrap().leaving);
    assert_eq!(idle.message().await, None, "nothing is open on it");

    let (mut leaving, mut answers) = (0, Vec::new());
    while leaving == 0 || answers.is_empty() {
        let said = line.message().await.unwrap();
        leaving += u32::from(said.leaving);
        answers.extend(read(said.answers));
    }
    assert_eq!(leaving, 1);
    assert!(matches!(&*answers, [(2, What::Passed(_))]), "{answers:?}");
    assert!(!service.ended.is_finished(), "one is still in flight");
    let pool = service.pool();
    line.say(&[], &[(1, "v=1;status=200")]).await;
    assert_eq!(line.message().await, None);
    assert_eq!(pool.stats().counters.finished_ok, 1);
    drop((line, idle));
    service.ended().await;
}

#[tokio::test]
async fn a_service_among_regions_has_no_lines() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    service
        .pool_registry
        .set_regions("us", [("eu", "region-eu")]);
    let refused = Line::try_open(&service).await.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "regions need external processing");
    let mut call = service.chat("llama").await;
    call.goes_on().await;
}

#[tokio::test]
async fn a_thousand_requests_that_come_and_go_on_a_line_leave_nothing_behind() {
    let options = ONE_AT_A_TIME.replace("outstanding_max: 1", "outstanding_max: 1000");
    let service = Service::start(&options, 3).await;
    let mut line = Line::open(&service).await;
    let asked: Vec<u32> = (0..1000).collect();
    for asks in asked.chunks(100) {
        line.say(asks, &[]).await;
    }
    let mut routed = Vec::new();
    while routed.len() < asked.len() {
        for (id, what) in read(line.message().await.unwrap().answers) {
            match what {
                What::Routed(_) => routed.push(id),
                other => panic!("{other:?}"),
            }
        }
    }
    routed.sort_unstable();
    assert_eq!(routed, asked);
    let ends: Vec<_> = asked.iter().map(|id| (*id, "v=1;status=200")).collect();
    line.say(&[], &ends).await;
    let pool = service.pool();
    eventually("all have ended", || pool.stats().in_flight == 0).await;
    let counters = pool.stats().counters;
    assert_eq!(counters.arrived, 1000);
    assert_eq!(counters.finished_ok, 1000);
    service.page_with("isotherm_ext_proc_streams 0").await;
}
