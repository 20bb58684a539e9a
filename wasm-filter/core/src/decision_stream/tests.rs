use isotherm_decision_proto::{ExtProcFallback, GoAway, Route, Wait};
use isotherm_fingerprint::names;

use super::*;
use crate::headers::from_pairs;

const TIMEOUT: Duration = Duration::from_millis(500);
/// When everything that the service says comes.
const NOW: Nanoseconds = 1_000_000;
/// After so many ticks a request that got no word is let go.
const LATE: u64 = 6;

fn config(decision: bool) -> DecisionStreamConfig {
    DecisionStreamConfig {
        cluster: "isotherm".to_owned(),
        timeout: TIMEOUT,
        decision,
    }
}

fn down() -> DecisionStream {
    DecisionStream::new(&config(false))
}

fn up() -> DecisionStream {
    opened(down())
}

fn opened(mut stream: DecisionStream) -> DecisionStream {
    assert_eq!(stream.tick(), [Effect::Open]);
    stream.opened(true);
    assert_eq!(stream.heard(&[], NOW), []);
    stream
}

/// What a request with these headers is for.
fn target(headers: &[(&str, &str)]) -> Target {
    Target::of(&from_pairs(headers))
}

fn edits() -> Vec<Edit> {
    vec![
        Edit::set(names::FINGERPRINT, "f"),
        Edit::set(names::SESSION, "s"),
        Edit::set(names::CLUSTER, "c"),
    ]
}

fn ask(stream: &mut DecisionStream, id: u32) -> bool {
    stream.ask(id, &target(&[]), edits()).is_ok()
}

fn says(stream: &mut DecisionStream, id: u32, action: Action) -> Vec<Effect> {
    let action = Some(action);
    let message = ServerMessage {
        responses: vec![DecisionResponse {
            request_id: id,
            action,
        }],
        go_away: None,
    };
    stream.heard(&message.encode_to_vec(), NOW)
}

fn routed(cluster: &str, decision: &str) -> Action {
    Action::Route(Route {
        destination: "10.0.0.1:80".into(),
        cluster: cluster.into(),
        decision: decision.into(),
    })
}

fn values(effects: &[Effect]) -> Vec<(&'static str, String)> {
    let [Effect::LetGo(_, edits)] = effects else {
        panic!("not let go: {effects:?}");
    };
    let mut values: Vec<_> = edits
        .iter()
        .map(|edit| match edit {
            Edit::Set(name, value) => (*name, String::from_utf8(value.clone()).unwrap()),
            Edit::Remove(name) => panic!("{name} is removed"),
        })
        .collect();
    values.sort();
    values
}

/// The ends that a message tells.
fn told(effect: &Option<Effect>) -> Vec<(u32, String)> {
    let Some(Effect::Send(message)) = effect else {
        panic!("nothing is sent: {effect:?}");
    };
    let ends = ClientMessage::decode(&**message).unwrap().ends;
    let told = |end: RequestEnd| (end.request_id, String::from_utf8(end.outcome).unwrap());
    ends.into_iter().map(told).collect()
}

fn ticks(stream: &mut DecisionStream, count: u64) -> Vec<Effect> {
    (0..count).flat_map(|_| stream.tick()).collect()
}

#[test]
fn nobody_asks_before_the_service_has_said_a_word() {
    let mut stream = down();
    assert!(!ask(&mut stream, 1));
    assert_eq!(stream.tick(), [Effect::Open]);
    stream.opened(true);
    assert!(!ask(&mut stream, 1));
    stream.heard(&[], NOW);
    assert!(ask(&mut stream, 1));
}

#[test]
fn an_ask_has_what_the_filter_writes_and_what_the_service_reads_besides() {
    let target = target(&[(":method", "POST"), (":path", "/v1/chat/completions")]);
    let message = up().ask(7, &target, edits()).unwrap();
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
fn a_routed_request_gets_its_destination_and_nothing_that_only_the_service_reads() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    let effects = says(&mut stream, 7, routed("", ""));
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
    assert!(ask(&mut stream, 8));
    let values = values(&says(&mut stream, 8, routed("other", "why")));
    assert!(values.contains(&(names::CLUSTER, "other".to_owned())));
    assert_eq!(
        values.len(),
        5,
        "its client hears why, if anybody: {values:?}"
    );
}

#[test]
fn the_answer_to_what_was_decided_here_is_watched_from_then_on_once() {
    let mut stream = up();
    assert!(stream.answer(7).is_none());
    assert!(ask(&mut stream, 7));
    assert!(stream.answer(7).is_none(), "nobody has decided on it");
    says(&mut stream, 7, routed("", "why"));
    let mut flow = stream.answer(7).unwrap();
    assert!(stream.answer(7).is_none());
    let answer = from_pairs(&[(":status", "200"), ("content-type", "application/json")]);
    assert_eq!(
        flow.headers(&answer),
        [],
        "the decision is not for everybody"
    );
    let _ = flow.body_came(1, || NOW + 3_000_000);
    assert_eq!(flow.outcome(None).unwrap().ttft_us, Some(3_000));
}

#[test]
fn a_decision_is_told_where_the_configuration_says_so_and_there_is_one() {
    let mut stream = opened(DecisionStream::new(&config(true)));
    let answer = from_pairs(&[(":status", "200")]);
    for (id, decision, told) in [
        (7, "why", vec![Edit::set(names::DECISION, "why")]),
        (8, "", vec![]),
    ] {
        assert!(ask(&mut stream, id));
        says(&mut stream, id, routed("", decision));
        assert_eq!(stream.answer(id).unwrap().headers(&answer), told);
    }
}

#[test]
fn a_client_that_asks_for_the_engines_load_itself_gets_it() {
    let mut stream = up();
    let asks_itself = target(&[("endpoint-load-metrics-format", "JSON")]);
    let report = (
        "endpoint-load-metrics",
        "TEXT named_metrics.num_requests_waiting=2",
    );
    let answer = from_pairs(&[(":status", "200"), report]);
    assert!(ask(&mut stream, 7) && stream.ask(8, &asks_itself, edits()).is_ok());
    says(&mut stream, 7, routed("", ""));
    let edits = stream.answer(7).unwrap().headers(&answer);
    assert_eq!(edits, [Edit::Remove("endpoint-load-metrics".to_owned())]);
    let sent = values(&says(&mut stream, 8, routed("", "")));
    assert!(
        sent.iter()
            .all(|(name, _)| *name != "endpoint-load-metrics-format")
    );
    assert_eq!(stream.answer(8).unwrap().headers(&answer), []);
}

#[test]
fn the_end_of_a_request_is_told_once() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    says(&mut stream, 7, routed("", ""));
    assert_eq!(stream.ended(7, Some("v=1".into())), Some(Effect::Soon));
    assert_eq!(stream.ended(7, None), None);
    assert_eq!(told(&stream.ends()), [(7, "v=1".to_owned())]);
    assert_eq!(stream.ends(), None);
}

#[test]
fn an_end_is_told_with_the_next_question() {
    let mut stream = up();
    assert!(ask(&mut stream, 7) && ask(&mut stream, 8));
    for id in [7, 8] {
        says(&mut stream, id, routed("", ""));
    }
    assert_eq!(stream.ended(7, None), Some(Effect::Soon));
    assert_eq!(stream.ended(8, None), None, "somebody comes for it already");
    let message = stream.ask(9, &target(&[]), edits()).unwrap();
    let message = ClientMessage::decode(&*message).unwrap();
    assert_eq!(
        message
            .ends
            .iter()
            .map(|end| end.request_id)
            .collect::<Vec<_>>(),
        [7, 8]
    );
    assert_eq!(stream.ends(), None);
}

#[test]
fn an_answer_that_outlives_its_decision_stream_is_watched_and_nobody_is_told() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    says(&mut stream, 7, routed("", ""));
    assert_eq!(stream.closed(), []);
    assert_eq!(stream.closed(), [], "and again");
    let report = ("endpoint-load-metrics", "TEXT");
    let answer = from_pairs(&[(":status", "200"), report]);
    let edits = stream.answer(7).unwrap().headers(&answer);
    assert_eq!(edits, [Edit::Remove("endpoint-load-metrics".to_owned())]);
    assert_eq!(stream.ended(7, Some("v=1".into())), None);
    assert_eq!(stream.ends(), None);
    assert!(stream.requests.is_empty());
}

#[test]
fn many_ends_do_not_wait() {
    let mut stream = up();
    let ids = 0..u32::try_from(ENDS_ENOUGH).unwrap();
    for id in ids.clone() {
        assert!(ask(&mut stream, id));
        says(&mut stream, id, routed("", ""));
    }
    let effects: Vec<_> = ids.filter_map(|id| stream.ended(id, None)).collect();
    let [Effect::Soon, send] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!(told(&Some(send.clone())).len(), ENDS_ENOUGH);
}

#[test]
fn a_request_that_gets_no_word_goes_by_its_session_and_the_decision_stream_is_silent_until_it_speaks()
 {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    assert_eq!(ticks(&mut stream, LATE - 1), []);
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
    let forgotten = told(&effects.get(1).cloned());
    assert_eq!(forgotten, [(7, String::new())], "the service forgets it");
    assert_eq!(stream.take_given_up(), 1);
    assert!(!ask(&mut stream, 8));
    assert_eq!(says(&mut stream, 7, routed("", "")), [], "too late");
    assert!(ask(&mut stream, 8));
}

#[test]
fn a_request_that_waits_is_held_back_for_as_long_as_the_service_said() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    let waits = Action::Wait(Wait { timeout_ms: 1_000 });
    assert_eq!(says(&mut stream, 7, waits), []);
    assert_eq!(ticks(&mut stream, 10), []);
    assert!(matches!(stream.tick()[0], Effect::LetGo(7, _)));
}

#[test]
fn what_the_service_answers_itself_is_forgotten() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    let answer = ImmediateResponse {
        status: 503,
        ..ImmediateResponse::default()
    };
    let effects = says(&mut stream, 7, Action::ImmediateResponse(answer.clone()));
    assert_eq!(effects, [Effect::Reply(7, answer)]);
    assert_eq!(stream.ended(7, None), None);
}

#[test]
fn what_the_service_passes_is_external_processings() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    let effects = says(&mut stream, 7, Action::ExtProcFallback(ExtProcFallback {}));
    assert_eq!(effects, [Effect::LetGo(7, edits())]);
    assert_eq!(stream.ended(7, None), None);
    assert_eq!(stream.take_given_up(), 0);
}

#[test]
fn a_decision_stream_that_breaks_lets_everybody_go_and_is_tried_again_after_ever_longer_pauses() {
    let mut stream = up();
    assert!(ask(&mut stream, 7) && ask(&mut stream, 8));
    says(&mut stream, 8, routed("", ""));
    assert_eq!(stream.closed(), [Effect::LetGo(7, edits())]);
    assert_eq!(stream.ended(8, None), None, "nobody is there to hear it");
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let start = stream.now;
        while stream.tick() != [Effect::Open] {}
        pauses.push(stream.now - start);
        stream.opened(false);
    }
    assert_eq!(pauses, [10, 20, 40, 50, 50, 50, 50]);
}

#[test]
fn a_service_that_leaves_is_told_the_ends_and_asked_nothing() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    says(&mut stream, 7, routed("", ""));
    let leaving = ServerMessage {
        responses: Vec::new(),
        go_away: Some(GoAway {}),
    };
    assert_eq!(stream.heard(&leaving.encode_to_vec(), NOW), []);
    assert!(!ask(&mut stream, 8));
    stream.heard(&[], NOW);
    assert!(!ask(&mut stream, 8), "it does not come back by itself");
    assert!(stream.ended(7, None).is_some());
}

#[test]
fn a_message_that_cannot_be_read_ends_the_decision_stream() {
    let mut stream = up();
    assert!(ask(&mut stream, 7));
    let effects = stream.heard(&[0xff], NOW);
    assert_eq!(effects, [Effect::LetGo(7, edits()), Effect::HangUp]);
    assert!(!ask(&mut stream, 8));
}

#[test]
fn there_is_a_bound_on_what_may_be_out() {
    let mut stream = up();
    let taken = (0..).take_while(|id| ask(&mut stream, *id)).count();
    assert_eq!(taken, REQUESTS_MAX);
}
