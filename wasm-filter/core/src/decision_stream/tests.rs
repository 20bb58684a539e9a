use isotherm_decision_proto::{ExtProcFallback, Forward, GoAway, Route, Wait};
use isotherm_fingerprint::names;

use super::*;
use crate::headers::from_pairs;

/// The time of every message of the service.
const NOW: Nanoseconds = 1_000_000;
/// The number of ticks after which a request without a response is released.
const TIMEOUT_TICKS: u64 = 6;

fn config(decision: bool) -> DecisionStreamConfig {
    DecisionStreamConfig {
        cluster: "isotherm".to_owned(),
        timeout_ms: 500,
        decision,
    }
}

fn closed() -> DecisionStream {
    DecisionStream::new(&config(false))
}

fn ready() -> DecisionStream {
    open(closed())
}

fn open(mut stream: DecisionStream) -> DecisionStream {
    assert_eq!(stream.tick(), [Effect::Open]);
    stream.on_open(true);
    assert_eq!(stream.on_message(&[], NOW), []);
    stream
}

/// The target of a request with these headers.
fn target(headers: &[(&str, &str)]) -> RequestTarget {
    RequestTarget::of(&crate::RequestConfig::default(), &from_pairs(headers))
}

fn edits() -> Vec<HeaderEdit> {
    vec![
        HeaderEdit::set(names::FINGERPRINT, "f"),
        HeaderEdit::set(names::SESSION, "s"),
        HeaderEdit::set(names::CLUSTER, "c"),
    ]
}

fn add(stream: &mut DecisionStream, id: u32) -> bool {
    stream.add_request(id, &target(&[]), edits()).is_ok()
}

fn respond(stream: &mut DecisionStream, id: u32, action: Action) -> Vec<Effect> {
    let action = Some(action);
    let message = ServerMessage {
        responses: vec![DecisionResponse {
            request_id: id,
            action,
        }],
        go_away: None,
    };
    stream.on_message(&message.encode_to_vec(), NOW)
}

fn route(cluster: &str, decision: &str) -> Action {
    Action::Route(Route {
        destination: "10.0.0.1:80".into(),
        cluster: cluster.into(),
        decision: decision.into(),
        ..Route::default()
    })
}

fn values(effects: &[Effect]) -> Vec<(&'static str, String)> {
    let ([Effect::Release(_, edits)] | [Effect::Dispatch(_, edits, _)]) = effects else {
        panic!("not released: {effects:?}");
    };
    let mut values: Vec<_> = edits
        .iter()
        .map(|edit| match edit {
            HeaderEdit::Set(name, value) => (*name, String::from_utf8(value.clone()).unwrap()),
            HeaderEdit::Remove(name) => panic!("{name} is removed"),
        })
        .collect();
    values.sort();
    values
}

/// The ends in a message.
fn ends_in(effect: &Option<Effect>) -> Vec<(u32, String)> {
    let Some(Effect::Send(message)) = effect else {
        panic!("nothing is sent: {effect:?}");
    };
    let ends = ClientMessage::decode(&**message).unwrap().ends;
    let parts = |end: RequestEnd| (end.request_id, String::from_utf8(end.outcome).unwrap());
    ends.into_iter().map(parts).collect()
}

fn tick(stream: &mut DecisionStream, count: u64) -> Vec<Effect> {
    (0..count).flat_map(|_| stream.tick()).collect()
}

#[test]
fn a_route_with_a_prefiller_sets_its_header() {
    let mut stream = ready();
    assert!(add(&mut stream, 1) && add(&mut stream, 2));
    let with_prefiller = Action::Route(Route {
        destination: "10.0.0.1:80".into(),
        prefiller: "10.0.0.9:80".into(),
        ..Route::default()
    });
    let effects = respond(&mut stream, 1, with_prefiller);
    let prefiller = (names::PREFILLER, "10.0.0.9:80".to_owned());
    assert!(values(&effects).contains(&prefiller));
    let effects = respond(&mut stream, 2, route("", ""));
    let names: Vec<_> = values(&effects).into_iter().map(|(name, _)| name).collect();
    assert!(!names.contains(&names::PREFILLER), "{names:?}");
}

#[test]
fn a_route_with_a_priority_sets_the_header_of_its_engine() {
    let mut stream = ready();
    for (id, vllm_priority, sglang_priority, expected) in [
        (1, Some(1), None, Some((names::VLLM_PRIORITY, "1"))),
        (2, Some(0), None, Some((names::VLLM_PRIORITY, "0"))),
        (3, None, Some(-1), Some((names::SGLANG_PRIORITY, "-1"))),
        (4, None, None, None),
    ] {
        assert!(add(&mut stream, id));
        let with_priority = Action::Route(Route {
            destination: "10.0.0.1:80".into(),
            vllm_priority,
            sglang_priority,
            ..Route::default()
        });
        let values = values(&respond(&mut stream, id, with_priority));
        let known = [names::VLLM_PRIORITY, names::SGLANG_PRIORITY];
        let mut priorities = values.iter().filter(|(name, _)| known.contains(name));
        let found = priorities.next().map(|(name, value)| (*name, &**value));
        assert_eq!((found, priorities.next()), (expected, None), "{id}");
    }
}

#[test]
fn the_service_learns_the_name_of_a_request_in_the_logs() {
    let mut stream = ready();
    let long = "a".repeat(names::REQUEST_ID_BYTES_MAX + 1);
    for (id, sent) in [("0d3f", Some("0d3f")), (&long, None)] {
        let target = target(&[("x-request-id", id)]);
        let message = stream.add_request(1, &target, edits()).unwrap();
        let message = ClientMessage::decode(&*message).unwrap();
        let mut headers = message.requests[0].headers.iter();
        let header = headers.find(|header| header.name == "x-request-id");
        let value = header.map(|header| str::from_utf8(&header.value).unwrap());
        assert_eq!(value, sent);
    }
}

#[test]
fn the_start_of_a_response_goes_to_the_service() {
    let mut stream = ready();
    assert!(add(&mut stream, 1) && add(&mut stream, 2));
    respond(&mut stream, 1, route("", ""));
    assert_eq!(stream.start_response(2), None, "no one has decided on it");
    assert_eq!(stream.start_response(1), Some(Effect::ScheduleFlush));
    let Some(Effect::Send(message)) = stream.flush_ends() else {
        panic!("nothing is sent");
    };
    assert_eq!(ClientMessage::decode(&*message).unwrap().starts, [1]);
    assert_eq!(stream.flush_ends(), None);
}

#[test]
fn the_id_of_a_response_goes_to_the_service_at_once() {
    let mut stream = ready();
    assert!(add(&mut stream, 1) && add(&mut stream, 2));
    respond(&mut stream, 1, route("", ""));
    let id = || "resp_1".to_owned();
    assert_eq!(stream.store_response(2, id()), None, "it has no replica");
    stream.start_response(1);
    let Some(Effect::Send(message)) = stream.store_response(1, id()) else {
        panic!("nothing is sent");
    };
    let message = ClientMessage::decode(&*message).unwrap();
    let stored = StoredResponse {
        request_id: 1,
        response_id: id(),
    };
    assert_eq!((message.stored, message.starts), (vec![stored], vec![1]));
    assert_eq!(stream.flush_ends(), None);
    stream.on_close();
    assert_eq!(
        stream.store_response(1, id()),
        None,
        "the stream has closed"
    );
}

/// The response to a request whose replica hangs.
fn instead() -> ImmediateResponse {
    ImmediateResponse {
        status: 504,
        replica: "10.0.0.1:8000".to_owned(),
        ..ImmediateResponse::default()
    }
}

#[test]
fn a_request_whose_replica_hangs_gets_a_response_and_its_end_is_sent() {
    let mut stream = ready();
    add(&mut stream, 7);
    respond(&mut stream, 7, route("", ""));
    let effects = respond(&mut stream, 7, Action::ImmediateResponse(instead()));
    assert_eq!(effects, [Effect::RespondInstead(7, instead())]);
    assert!(stream.take_response_flow(7).is_some(), "it reads that one");
    stream.end_request(7, None);
    let ends = ends_in(&stream.flush_ends());
    assert_eq!(ends, [(7, String::new())]);
}

#[test]
fn a_request_whose_response_has_begun_keeps_it() {
    let mut stream = ready();
    add(&mut stream, 7);
    respond(&mut stream, 7, route("", ""));
    stream.take_response_flow(7);
    stream.start_response(7);
    let effects = respond(&mut stream, 7, Action::ImmediateResponse(instead()));
    assert_eq!(effects, []);
    stream.end_request(7, Some("o".to_owned()));
    let ends = ends_in(&stream.flush_ends());
    assert_eq!(ends, [(7, "o".to_owned())]);
}

#[test]
fn a_request_at_another_replica_or_with_a_response_is_answered() {
    let (there, elsewhere) = (Some("10.0.0.1:8000"), Some("10.0.0.2:8000"));
    assert!(is_unanswered(&instead(), there, None));
    assert!(
        is_unanswered(&instead(), None, None),
        "it awaits a connection"
    );
    assert!(!is_unanswered(&instead(), elsewhere, None), "a retry");
    assert!(!is_unanswered(&instead(), there, Some("application/json")));
    let opened = Some("text/event-stream; charset=utf-8");
    assert!(is_unanswered(&instead(), there, opened), "no token yet");
}

#[test]
fn a_request_that_ends_before_its_response_reports_no_start() {
    let mut stream = ready();
    add(&mut stream, 1);
    let with_prefiller = Action::Route(Route {
        prefiller: "10.0.0.9:80".into(),
        ..Route::default()
    });
    respond(&mut stream, 1, with_prefiller.clone());
    stream.end_request(1, None);
    assert_eq!(stream.start_response(1), None);
    add(&mut stream, 2);
    respond(&mut stream, 2, with_prefiller);
    stream.on_close();
    assert_eq!(stream.start_response(2), None, "the stream has closed");
}

#[test]
fn no_request_is_sent_before_the_first_message_of_the_service() {
    let mut stream = closed();
    assert!(!add(&mut stream, 1));
    assert_eq!(stream.tick(), [Effect::Open]);
    stream.on_open(true);
    assert!(!add(&mut stream, 1));
    stream.on_message(&[], NOW);
    assert!(add(&mut stream, 1));
}

#[test]
fn a_decision_request_has_the_method_the_path_and_the_headers_of_the_filter() {
    let target = target(&[(":method", "POST"), (":path", "/v1/chat/completions")]);
    let message = ready().add_request(7, &target, edits()).unwrap();
    let message = ClientMessage::decode(&*message).unwrap();
    let [
        DecisionRequest {
            request_id: 7,
            headers,
        },
    ] = &*message.requests
    else {
        panic!("{message:?}");
    };
    let names: Vec<_> = headers.iter().map(|header| &*header.name).collect();
    assert_eq!(
        names,
        [
            ":method",
            ":path",
            names::FINGERPRINT,
            names::SESSION,
            names::CLUSTER
        ]
    );
}

#[test]
fn a_routed_request_gets_its_destination_and_no_header_that_only_the_service_reads() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    let effects = respond(&mut stream, 7, route("", ""));
    assert_eq!(
        values(&effects),
        [
            ("endpoint-load-metrics-format", "TEXT".to_owned()),
            (names::DESTINATION, "10.0.0.1:80".to_owned()),
            (names::CLUSTER, "c".to_owned()),
            (names::DECIDED, "7".to_owned()),
            (names::SESSION, "s".to_owned()),
        ]
    );
    assert!(add(&mut stream, 8));
    let values = values(&respond(&mut stream, 8, route("other", "why")));
    assert!(values.contains(&(names::CLUSTER, "other".to_owned())));
    assert_eq!(
        values.len(),
        5,
        "the decision is for the client only: {values:?}"
    );
}

#[test]
fn the_response_flow_of_a_decided_request_starts_at_the_decision_and_is_taken_once() {
    let mut stream = ready();
    assert!(stream.take_response_flow(7).is_none());
    assert!(add(&mut stream, 7));
    assert!(stream.take_response_flow(7).is_none(), "no decision yet");
    respond(&mut stream, 7, route("", "why"));
    let mut flow = stream.take_response_flow(7).unwrap();
    assert!(stream.take_response_flow(7).is_none());
    let answer = from_pairs(&[(":status", "200"), ("content-type", "application/json")]);
    assert_eq!(
        flow.headers(&answer),
        [],
        "the decision is hidden by default"
    );
    let _ = flow.body(1, || NOW + 3_000_000);
    assert_eq!(flow.outcome(None).unwrap().ttft_us, Some(3_000));
}

#[test]
fn clients_see_a_decision_where_the_configuration_exposes_it() {
    let mut stream = open(DecisionStream::new(&config(true)));
    let answer = from_pairs(&[(":status", "200")]);
    for (id, decision, told) in [
        (7, "why", vec![HeaderEdit::set(names::DECISION, "why")]),
        (8, "", vec![]),
    ] {
        assert!(add(&mut stream, id));
        respond(&mut stream, id, route("", decision));
        assert_eq!(
            stream.take_response_flow(id).unwrap().headers(&answer),
            told
        );
    }
}

#[test]
fn a_client_that_asks_for_the_load_report_gets_it() {
    let mut stream = ready();
    let asks_itself = target(&[("endpoint-load-metrics-format", "JSON")]);
    let report = (
        "endpoint-load-metrics",
        "TEXT named_metrics.num_requests_waiting=2",
    );
    let answer = from_pairs(&[(":status", "200"), report]);
    assert!(add(&mut stream, 7) && stream.add_request(8, &asks_itself, edits()).is_ok());
    respond(&mut stream, 7, route("", ""));
    let edits = stream.take_response_flow(7).unwrap().headers(&answer);
    assert_eq!(
        edits,
        [HeaderEdit::Remove("endpoint-load-metrics".to_owned())]
    );
    let sent = values(&respond(&mut stream, 8, route("", "")));
    assert!(
        sent.iter()
            .all(|(name, _)| *name != "endpoint-load-metrics-format")
    );
    assert_eq!(stream.take_response_flow(8).unwrap().headers(&answer), []);
}

#[test]
fn the_end_of_a_request_is_sent_once() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    respond(&mut stream, 7, route("", ""));
    assert_eq!(
        stream.end_request(7, Some("v=1".into())),
        Some(Effect::ScheduleFlush)
    );
    assert_eq!(stream.end_request(7, None), None);
    assert_eq!(ends_in(&stream.flush_ends()), [(7, "v=1".to_owned())]);
    assert_eq!(stream.flush_ends(), None);
}

#[test]
fn an_end_is_sent_with_the_next_request() {
    let mut stream = ready();
    assert!(add(&mut stream, 7) && add(&mut stream, 8));
    for id in [7, 8] {
        respond(&mut stream, id, route("", ""));
    }
    assert_eq!(stream.end_request(7, None), Some(Effect::ScheduleFlush));
    assert_eq!(
        stream.end_request(8, None),
        None,
        "a flush is scheduled already"
    );
    let message = stream.add_request(9, &target(&[]), edits()).unwrap();
    let message = ClientMessage::decode(&*message).unwrap();
    assert_eq!(
        message
            .ends
            .iter()
            .map(|end| end.request_id)
            .collect::<Vec<_>>(),
        [7, 8]
    );
    assert_eq!(stream.flush_ends(), None);
}

#[test]
fn a_response_after_its_stream_closed_is_edited_and_not_reported() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    respond(&mut stream, 7, route("", ""));
    assert_eq!(stream.on_close(), []);
    assert_eq!(stream.on_close(), [], "and again");
    let report = ("endpoint-load-metrics", "TEXT");
    let answer = from_pairs(&[(":status", "200"), report]);
    let edits = stream.take_response_flow(7).unwrap().headers(&answer);
    assert_eq!(
        edits,
        [HeaderEdit::Remove("endpoint-load-metrics".to_owned())]
    );
    assert_eq!(stream.end_request(7, Some("v=1".into())), None);
    assert_eq!(stream.flush_ends(), None);
    assert!(stream.requests.is_empty());
}

#[test]
fn many_ends_are_sent_at_once() {
    let mut stream = ready();
    let ids = 0..u32::try_from(ENDS_MAX).unwrap();
    for id in ids.clone() {
        assert!(add(&mut stream, id));
        respond(&mut stream, id, route("", ""));
    }
    let effects: Vec<_> = ids.filter_map(|id| stream.end_request(id, None)).collect();
    let [Effect::ScheduleFlush, send] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!(ends_in(&Some(send.clone())).len(), ENDS_MAX);
}

#[test]
fn a_request_without_a_response_is_released_and_the_stream_stalls_until_the_next_message() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    assert_eq!(tick(&mut stream, TIMEOUT_TICKS - 1), []);
    let effects = stream.tick();
    assert_eq!(
        values(&effects[..1]),
        [
            (names::CLUSTER, "c".to_owned()),
            (names::DECIDED, "7".to_owned()),
            (names::SESSION, "s".to_owned()),
        ],
        "external processing would wait as long again"
    );
    let forgotten = ends_in(&effects.get(1).cloned());
    assert_eq!(forgotten, [(7, String::new())], "the service forgets it");
    assert_eq!(stream.take_fallbacks(), 1);
    assert!(!add(&mut stream, 8));
    assert_eq!(respond(&mut stream, 7, route("", "")), [], "too late");
    assert!(add(&mut stream, 8));
}

#[test]
fn a_queued_request_is_held_for_the_timeout_of_the_service() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    let waits = Action::Wait(Wait { timeout_ms: 1_000 });
    assert_eq!(respond(&mut stream, 7, waits), []);
    assert_eq!(tick(&mut stream, 10), []);
    assert!(matches!(stream.tick()[0], Effect::Release(7, _)));
}

/// The target of a request from another region with these headers.
fn target_of_peer(headers: &[(&str, &str)]) -> RequestTarget {
    let json = br#"{"trusted_origin":true}"#;
    let Ok(crate::PluginConfig::Request(config)) = crate::PluginConfig::parse(json) else {
        panic!("a configuration");
    };
    RequestTarget::of(&config, &from_pairs(headers))
}

#[test]
fn a_request_to_another_region_keeps_all_headers_and_gets_its_way() {
    let mut stream = DecisionStream::new(&config(true));
    stream = open(stream);
    assert!(add(&mut stream, 7));
    let forward = Action::Forward(Forward {
        cluster: "region-eu".into(),
        origin: "us".into(),
        tried: "eu".into(),
        ttft_ms: Some(700),
        decision: "region=eu".into(),
        reason: "soonest".into(),
        ..Forward::default()
    });
    let effects = respond(&mut stream, 7, forward);
    let [Effect::Dispatch(7, edits, record)] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!(record.reason, "soonest");
    let value = |name: &str| {
        let mut all = edits.iter().map(HeaderEdit::parts);
        let last = all.rfind(|(known, _)| *known == name)?;
        last.1.map(|value| str::from_utf8(value).unwrap())
    };
    for (name, expected) in [
        (names::FINGERPRINT, Some("f")),
        (names::SESSION, Some("s")),
        (names::CLUSTER, Some("region-eu")),
        (names::ORIGIN, Some("us")),
        (names::TRIED, Some("eu")),
        (names::TTFT_MS, Some("700")),
        (names::DECIDED, Some("7")),
        (names::DEADLINE, None),
        (names::DESTINATION, None),
        ("endpoint-load-metrics-format", None),
    ] {
        assert_eq!(value(name), expected, "{name}");
    }
    let mut flow = stream.take_response_flow(7).unwrap();
    let edits = flow.headers(&from_pairs(&[(":status", "200")]));
    let shown = HeaderEdit::set(names::DECISION, "region=eu");
    assert_eq!(edits, [shown]);
}

#[test]
fn the_service_learns_what_another_region_knows_and_the_replica_does_not() {
    let mut stream = ready();
    let headers = [
        (names::ORIGIN, "eu"),
        (names::TRIED, "us"),
        (names::FINGERPRINT, "old"),
        ("content-length", "17"),
    ];
    let target_of_peer = target_of_peer(&headers);
    let message = stream.add_request(7, &target_of_peer, edits()).unwrap();
    let message = ClientMessage::decode(&*message).unwrap();
    let sent = message.requests[0].headers.iter();
    let sent = sent.map(|header| (&*header.name, str::from_utf8(&header.value).unwrap()));
    let sent: std::collections::HashMap<_, _> = sent.collect();
    assert_eq!((sent[names::ORIGIN], sent[names::TRIED]), ("eu", "us"));
    assert_eq!(sent[names::FINGERPRINT], "f", "the last one counts");
    assert_eq!(sent["content-length"], "17");
    let effects = respond(&mut stream, 7, route("", ""));
    let [Effect::Dispatch(7, edits, _)] = &*effects else {
        panic!("{effects:?}");
    };
    for name in [names::ORIGIN, names::TRIED] {
        assert!(
            edits.contains(&HeaderEdit::Remove(name.to_owned())),
            "{name}"
        );
    }
}

#[test]
fn the_headers_of_another_region_mean_nothing_without_trust() {
    let mut stream = ready();
    let target = target(&[(names::ORIGIN, "eu"), (names::SESSION, "forged")]);
    let message = stream.add_request(7, &target, Vec::new()).unwrap();
    let message = ClientMessage::decode(&*message).unwrap();
    let names: Vec<_> = message.requests[0]
        .headers
        .iter()
        .map(|h| &*h.name)
        .collect();
    assert_eq!(names, [":method", ":path"]);
}

#[test]
fn a_request_with_an_immediate_response_is_forgotten() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    let answer = ImmediateResponse {
        replica: String::new(),
        status: 503,
        ..ImmediateResponse::default()
    };
    let effects = respond(&mut stream, 7, Action::ImmediateResponse(answer.clone()));
    assert_eq!(effects, [Effect::Respond(7, answer)]);
    assert_eq!(stream.end_request(7, None), None);
}

#[test]
fn a_fallback_leaves_the_request_to_external_processing() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    let effects = respond(&mut stream, 7, Action::ExtProcFallback(ExtProcFallback {}));
    assert_eq!(effects, [Effect::Release(7, edits())]);
    assert_eq!(stream.end_request(7, None), None);
    assert_eq!(stream.take_fallbacks(), 0);
}

#[test]
fn a_closed_stream_releases_its_requests_and_reopens_with_backoff() {
    let mut stream = ready();
    assert!(add(&mut stream, 7) && add(&mut stream, 8));
    respond(&mut stream, 8, route("", ""));
    assert_eq!(stream.on_close(), [Effect::Release(7, edits())]);
    assert_eq!(stream.end_request(8, None), None, "the stream is closed");
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let start = stream.now;
        while stream.tick() != [Effect::Open] {}
        pauses.push(stream.now - start);
        stream.on_open(false);
    }
    assert_eq!(pauses, [10, 20, 40, 50, 50, 50, 50]);
}

#[test]
fn after_go_away_ends_are_sent_and_no_requests() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    respond(&mut stream, 7, route("", ""));
    let leaving = ServerMessage {
        responses: Vec::new(),
        go_away: Some(GoAway {}),
    };
    assert_eq!(stream.on_message(&leaving.encode_to_vec(), NOW), []);
    assert!(!add(&mut stream, 8));
    stream.on_message(&[], NOW);
    assert!(!add(&mut stream, 8), "it does not come back by itself");
    assert!(stream.end_request(7, None).is_some());
}

#[test]
fn a_malformed_message_closes_the_stream() {
    let mut stream = ready();
    assert!(add(&mut stream, 7));
    let effects = stream.on_message(&[0xff], NOW);
    assert_eq!(effects, [Effect::Release(7, edits()), Effect::Close]);
    assert!(!add(&mut stream, 8));
}

#[test]
fn the_number_of_requests_in_flight_is_bounded() {
    let mut stream = ready();
    let taken = (0..).take_while(|id| add(&mut stream, *id)).count();
    assert_eq!(taken, REQUESTS_MAX);
}
