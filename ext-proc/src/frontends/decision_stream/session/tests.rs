use isotherm_decision_proto::{GoAway, Header, ImmediateResponse, Route, StoredResponse};
use isotherm_fingerprint::names;
use isotherm_router::{Load, Role, TenantId};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::*;
use crate::clock::Clock;
use crate::config;
use crate::metrics::Metrics;
use crate::pool::{Pool, PoolRegistry, response_key};

type DecisionStream =
    DecisionSession<Box<dyn Stream<Item = Result<ClientMessage, Status>> + Send + Unpin>>;

/// A decision stream to a service with one pool, whose replicas take one request each.
struct World {
    context: Arc<RequestContext>,
    registry: Registry,
    pool: Arc<Pool>,
    filter: mpsc::UnboundedSender<ClientMessage>,
    stop: watch::Sender<bool>,
    decision_stream: DecisionStream,
}

impl World {
    async fn with_replicas(replicas: u16) -> Self {
        let config =
            config::parse("paths: ['*']\npools: [{ model: m, cluster: c, push: outstanding:1 }]");
        let config = config.unwrap();
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
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
        let (filter, messages) = mpsc::unbounded_channel();
        let inbound = UnboundedReceiverStream::new(messages).map(Ok);
        let (stop, stopping) = watch::channel(false);
        let mut decision_stream: DecisionStream = DecisionSession::new(
            Arc::clone(&context),
            ListenerKind::Clients,
            stopping,
            Box::new(inbound),
        );
        let first = decision_stream.next().await.unwrap().unwrap();
        assert_eq!(
            first,
            ServerMessage::default(),
            "the decision stream is open"
        );
        Self {
            context,
            registry,
            pool,
            filter,
            stop,
            decision_stream,
        }
    }

    fn say(
        &self,
        requests: impl IntoIterator<Item = u32>,
        ends: impl IntoIterator<Item = RequestEnd>,
    ) {
        let requests = requests.into_iter().map(ask).collect();
        let ends = ends.into_iter().collect();
        let message = ClientMessage {
            requests,
            ends,
            ..ClientMessage::default()
        };
        self.filter.send(message).unwrap();
    }

    async fn hears(&mut self) -> ServerMessage {
        self.decision_stream.next().await.unwrap().unwrap()
    }

    /// The answers of the next message.
    async fn responses(&mut self) -> Vec<(u32, Action)> {
        let said = self.hears().await;
        assert!(said.go_away.is_none());
        let answers = said.responses.into_iter();
        answers
            .map(|said| (said.request_id, without_wait(said.action.unwrap())))
            .collect()
    }

    /// Whether there is nothing to hear, once everything that was said has been taken in.
    fn is_quiet(&mut self) -> bool {
        self.decision_stream.next().now_or_never().is_none()
    }

    fn page(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        page
    }

    fn has(&self, line: &str) -> bool {
        self.page().lines().any(|found| found == line)
    }
}

/// The action without the time in the queue, which differs from run to run.
fn without_wait(mut action: Action) -> Action {
    if let Action::Route(route) = &mut action {
        route.queued_ms = 0;
    }
    action
}

fn ask(id: u32) -> DecisionRequest {
    let header = |name: &str, value: &str| Header {
        name: name.into(),
        value: value.into(),
    };
    DecisionRequest {
        request_id: id,
        headers: vec![
            header(":method", "POST"),
            header(":path", "/v1/chat/completions"),
            header(names::MODEL, "m"),
            header(names::CLUSTER, "c"),
        ],
    }
}

fn end(id: u32, outcome: &str) -> RequestEnd {
    RequestEnd {
        request_id: id,
        outcome: outcome.into(),
    }
}

fn to(destination: &str) -> Action {
    Action::Route(Route {
        destination: destination.into(),
        reason: "spread".into(),
        ..Route::default()
    })
}

fn refused(action: &Action) -> &ImmediateResponse {
    match action {
        Action::ImmediateResponse(immediate) => immediate,
        other => panic!("{other:?}"),
    }
}

const FIRST: &str = "127.0.0.1:1";

#[tokio::test]
async fn a_request_is_routed_and_ended() {
    let mut world = World::with_replicas(1).await;
    assert!(world.is_quiet());
    world.say([7], []);
    assert_eq!(world.responses().await, [(7, to(FIRST))]);
    assert_eq!(world.pool.stats().in_flight, 1);
    assert!(world.has("open_requests 1"), "{}", world.page());
    assert!(world.has("decision_streams 1"));
    assert!(world.has("requests_total{result=\"routed\"} 1"));
    world.say([], [end(7, "v=1;status=200")]);
    assert!(world.is_quiet(), "an end wants no answer");
    let stats = world.pool.stats();
    assert_eq!((stats.in_flight, stats.counters.finished_ok), (0, 1));
    assert!(world.has("open_requests 0"));
    drop(world.decision_stream);
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &world.registry).unwrap();
    assert!(
        page.lines().any(|line| line == "decision_streams 0"),
        "{page}"
    );
}

#[tokio::test]
async fn a_route_names_a_different_cluster_and_describes_the_decision_if_enabled() {
    let mut world = World::with_replicas(1).await;
    let config = "decision_header: true\npools: [{ model: m, cluster: d }]";
    world
        .context
        .pool_registry
        .apply(&config::parse(config).unwrap());
    world.say([1], []);
    let responses = world.responses().await;
    let [(1, Action::Route(routed))] = &*responses else {
        panic!("{responses:?}");
    };
    assert_eq!((&*routed.destination, &*routed.cluster), (FIRST, "d"));
    assert!(routed.decision.starts_with("replica=127.0.0.1:1;"));
}

#[tokio::test]
async fn a_route_names_the_prefill_replica_which_is_released_when_the_response_begins() {
    let mut world = World::with_replicas(1).await;
    let address = ([127, 0, 0, 1], 9).into();
    let replica = world.pool.add_replica_as(address, Role::Prefill).unwrap();
    let now = world.pool.clock().now();
    world.pool.probed(replica, Load::default(), now);
    let outstanding = |world: &World| -> Vec<u32> {
        let replicas = world.pool.replicas().into_iter();
        replicas.map(|replica| replica.outstanding).collect()
    };
    let mut request = ask(7);
    request.headers.push(Header {
        name: names::TOKENS.into(),
        value: "4000".into(),
    });
    let message = ClientMessage {
        requests: vec![request],
        ..ClientMessage::default()
    };
    world.filter.send(message).unwrap();
    let route = Route {
        destination: FIRST.into(),
        prefiller: "127.0.0.1:9".into(),
        reason: "spread".into(),
        ..Route::default()
    };
    assert_eq!(world.responses().await, [(7, Action::Route(route))]);
    assert_eq!(outstanding(&world), [1, 1]);
    let message = ClientMessage {
        starts: vec![7, 8],
        ..ClientMessage::default()
    };
    world.filter.send(message).unwrap();
    assert!(world.is_quiet(), "a start wants no answer");
    assert_eq!(outstanding(&world), [1, 0]);
    world.say([], [end(7, "v=1;status=200")]);
    assert!(world.is_quiet());
    assert_eq!(outstanding(&world), [0, 0]);
}

#[tokio::test]
async fn the_replica_of_a_stored_response_gets_the_requests_that_name_it() {
    let mut world = World::with_replicas(2).await;
    world.say([1], []);
    let [(1, Action::Route(first))] = &*world.responses().await else {
        panic!("no route");
    };
    let stored = |request_id, response_id: &str| StoredResponse {
        request_id,
        response_id: response_id.into(),
    };
    let message = ClientMessage {
        stored: vec![stored(1, "resp_a"), stored(1, "no id"), stored(9, "resp_b")],
        ends: vec![end(1, "v=1;status=200")],
        ..ClientMessage::default()
    };
    world.filter.send(message).unwrap();
    assert!(world.is_quiet());
    for id in 2..6 {
        let mut request = ask(id);
        request.headers.push(Header {
            name: names::PREVIOUS_RESPONSE.into(),
            value: "resp_a".into(),
        });
        let message = ClientMessage {
            requests: vec![request],
            ..ClientMessage::default()
        };
        world.filter.send(message).unwrap();
        let responses = world.responses().await;
        let [(_, Action::Route(route))] = &*responses else {
            panic!("{responses:?}");
        };
        // Without a fallback: no other replica has the response.
        assert_eq!(
            Some(&*route.destination),
            first.destination.split(',').next()
        );
        world.say([], [end(id, "v=1;status=200")]);
        assert!(world.is_quiet());
    }
    let tenant = TenantId::default();
    let holder = |id| world.pool.endpoint_of_response(tenant, response_key(id));
    assert!(holder("resp_a").is_some() && holder("no id").is_none() && holder("resp_b").is_none());
}

#[tokio::test]
async fn requests_that_arrive_together_share_a_response() {
    let mut world = World::with_replicas(3).await;
    world.say([1, 2], []);
    world.say([3], []);
    let responses = world.responses().await;
    let mut ids: Vec<_> = responses.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    assert!(
        responses
            .iter()
            .all(|(_, action)| matches!(action, Action::Route(_)))
    );
    assert_eq!(world.pool.stats().in_flight, 3);
}

#[tokio::test]
async fn a_queued_request_gets_a_wait_and_then_a_route() {
    let mut world = World::with_replicas(1).await;
    world.say([1, 2], []);
    let responses = world.responses().await;
    assert_eq!(responses.first(), Some(&(1, to(FIRST))));
    let Some((2, Action::Wait(waits))) = responses.get(1) else {
        panic!("{responses:?}");
    };
    let queue_ms = u32::try_from(world.pool.wait_max().as_millis()).unwrap();
    assert_eq!(waits.timeout_ms, queue_ms + 5_000);
    assert!(world.is_quiet());
    world.say([], [end(1, "v=1;status=200")]);
    assert_eq!(world.responses().await, [(2, to(FIRST))]);
    assert!(world.is_quiet());
    world.say([], [end(2, "v=1;status=200")]);
    assert!(world.is_quiet());
    assert_eq!(world.pool.stats().counters.finished_ok, 2);
}

#[tokio::test]
async fn an_end_makes_room_for_a_request_of_the_same_message() {
    let mut world = World::with_replicas(1).await;
    world.say([7], []);
    assert_eq!(world.responses().await, [(7, to(FIRST))]);
    world.say([8], [end(7, "v=1;status=200")]);
    assert_eq!(
        world.responses().await,
        [(8, to(FIRST))],
        "it need not wait"
    );
}

#[tokio::test]
async fn a_queued_request_whose_client_disconnects_leaves_the_queue_without_a_response() {
    let mut world = World::with_replicas(1).await;
    world.say([1, 2, 3], []);
    assert_eq!(world.responses().await.len(), 3);
    world.say([], [end(2, "")]);
    assert!(world.is_quiet());
    let stats = world.pool.stats();
    assert_eq!((stats.queue_length, stats.counters.aborted_waiting), (1, 1));
    assert!(world.has("requests_total{result=\"aborted\"} 1"));
    // And what it held while it was in flight.
    world.say([], [end(1, "")]);
    assert_eq!(world.responses().await, [(3, to(FIRST))]);
    assert_eq!(world.pool.stats().counters.aborted_in_flight, 1);
}

#[tokio::test]
async fn a_malformed_outcome_ends_the_response() {
    let mut world = World::with_replicas(1).await;
    world.say([1], []);
    assert_eq!(world.responses().await.len(), 1);
    world.say([], [end(1, "?"), end(9, "v=1;status=200")]);
    assert!(world.is_quiet());
    assert_eq!(world.pool.stats().counters.finished_ok, 1);
    let counted = format!("bad_headers_total{{header=\"{}\"}} 1", names::OUTCOME);
    assert!(world.has(&counted), "{}", world.page());
}

#[tokio::test]
async fn the_end_of_a_decision_stream_ends_all_its_requests() {
    for filter_says_so in [false, true] {
        let mut world = World::with_replicas(1).await;
        world.say([1, 2], []);
        assert_eq!(world.responses().await.len(), 2);
        if filter_says_so {
            drop(world.filter);
            assert!(world.decision_stream.next().await.is_none());
        }
        drop(world.decision_stream);
        let stats = world.pool.stats();
        assert_eq!((stats.in_flight, stats.queue_length), (0, 0));
        assert_eq!(stats.counters.aborted_in_flight, 1);
        assert_eq!(stats.counters.aborted_waiting, 1);
    }
}

#[tokio::test]
async fn ends_that_arrive_right_before_the_stream_breaks_count() {
    let mut world = World::with_replicas(2).await;
    world.say([1, 2], []);
    assert_eq!(world.responses().await.len(), 2);
    world.say([3], [end(1, "v=1;status=200")]);
    drop(world.decision_stream);
    let counters = world.pool.stats().counters;
    assert_eq!((counters.finished_ok, counters.aborted_in_flight), (1, 1));
    assert_eq!(counters.arrived, 2, "the stream has ended");
}

#[tokio::test]
async fn a_request_id_in_use_falls_back_to_external_processing() {
    let mut world = World::with_replicas(2).await;
    world.say([1], []);
    assert!(matches!(&*world.responses().await, [(1, Action::Route(_))]));
    world.say([1], []);
    assert_eq!(
        world.responses().await,
        [(1, response::ext_proc_fallback())]
    );
    assert_eq!(world.pool.stats().in_flight, 1);
}

#[tokio::test]
async fn a_reused_request_id_gets_no_decision_of_the_earlier_request() {
    let mut world = World::with_replicas(1).await;
    world.say([1, 2], []);
    assert_eq!(world.responses().await.len(), 2);
    world.say([], [end(2, "")]);
    world.say([2], []);
    let responses = world.responses().await;
    assert!(
        matches!(&*responses, [(2, Action::Wait(_))]),
        "{responses:?}"
    );
    assert!(world.is_quiet());
    world.say([], [end(1, "")]);
    assert_eq!(world.responses().await, [(2, to(FIRST))]);
}

#[tokio::test]
async fn requests_without_a_pool_fall_back_or_get_an_immediate_response() {
    let mut world = World::with_replicas(1).await;
    let mut other = ask(1);
    other.headers[0].value = "GET".into();
    other.headers[1].value = "/version".into();
    other.headers.truncate(2);
    let mut models = other.clone();
    models.request_id = 2;
    models.headers[1].value = "/v1/models".into();
    let mut unknown = ask(3);
    unknown.headers[2].value = "n".into();
    let requests = vec![other, models, unknown];
    world
        .filter
        .send(ClientMessage {
            requests,
            ..ClientMessage::default()
        })
        .unwrap();
    let responses = world.responses().await;
    let [(1, passed), (2, models), (3, unknown)] = &*responses else {
        panic!("{responses:?}");
    };
    assert_eq!(*passed, response::ext_proc_fallback());
    assert_eq!(refused(models).status, 200);
    let unknown = refused(unknown);
    assert_eq!(unknown.status, 404);
    let json = Header {
        name: "content-type".into(),
        value: "application/json".into(),
    };
    assert_eq!(unknown.headers, [json]);
    assert!(String::from_utf8_lossy(&unknown.body).contains("model_not_found"));
    assert!(world.has("requests_total{result=\"models\"} 1"));
    assert!(world.has("requests_total{result=\"not_found\"} 1"));
    assert!(
        !world.page().contains("answer=\"passed\""),
        "external processing counts it"
    );
    assert!(world.has("open_requests 0"));
}

#[tokio::test]
async fn a_stop_sends_one_go_away_and_the_stream_ends_with_its_last_request() {
    let mut world = World::with_replicas(1).await;
    world.say([1, 2], []);
    assert_eq!(world.responses().await.len(), 2);
    world.stop.send_replace(true);
    let leaving = ServerMessage {
        responses: Vec::new(),
        go_away: Some(GoAway {}),
    };
    assert_eq!(world.hears().await, leaving);
    world.say([3], []);
    assert_eq!(
        world.responses().await,
        [(3, response::ext_proc_fallback())]
    );
    world.context.pool_registry.shut_down();
    assert_eq!(
        world.responses().await,
        [(2, response::ext_proc_fallback())]
    );
    assert!(world.has("requests_total{result=\"passed\"} 1"));
    assert!(world.is_quiet(), "the response of the first goes on");
    world.say([], [end(1, "v=1;status=200")]);
    assert!(world.decision_stream.next().await.is_none());
    assert_eq!(world.pool.stats().counters.finished_ok, 1);
}

#[tokio::test]
async fn a_stream_without_open_requests_ends_when_the_service_stops() {
    let mut world = World::with_replicas(1).await;
    world.stop.send_replace(true);
    assert!(world.hears().await.go_away.is_some());
    assert!(world.decision_stream.next().await.is_none());
}

#[tokio::test]
async fn after_a_reload_adds_regions_a_stream_goes_on() {
    let mut world = World::with_replicas(2).await;
    world.say([1], []);
    assert!(matches!(&*world.responses().await, [(1, Action::Route(_))]));
    world.context.pool_registry.set_regions("us", ["eu"]);
    world.say([2], []);
    assert!(matches!(&*world.responses().await, [(2, Action::Route(_))]));
    world.say([], [end(1, "v=1;status=200"), end(2, "v=1;status=200")]);
    assert!(world.is_quiet());
    assert_eq!(world.pool.stats().counters.finished_ok, 2);
}

#[tokio::test]
async fn messages_beyond_the_limit_of_one_poll_are_read_later() {
    let mut world = World::with_replicas(1).await;
    world.say([0], []);
    assert_eq!(world.responses().await.len(), 1);
    let many = u32::try_from(3 * MESSAGES_MAX).unwrap();
    for id in 1..=many {
        world.say([], [end(id, "")]);
    }
    world.say([], [end(0, "v=1;status=200")]);
    let pool = Arc::clone(&world.pool);
    let decision_stream = tokio::spawn(async move { world.decision_stream.next().await.is_none() });
    for _ in 0..1000 {
        if pool.stats().counters.finished_ok == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(pool.stats().counters.finished_ok, 1);
    decision_stream.abort();
}
