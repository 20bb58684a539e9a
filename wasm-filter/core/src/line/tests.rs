use isotherm_decision_proto::{Passed, Routed, Waits};
use isotherm_fingerprint::names;

use super::*;
use crate::headers::from_pairs;

const TIMEOUT: Duration = Duration::from_millis(500);
/// When everything that the service says comes.
const NOW: Nanoseconds = 1_000_000;
/// After so many ticks a request that got no word is let go.
const LATE: u64 = 6;

fn config(decision: bool) -> LineConfig {
    LineConfig {
        cluster: "isotherm".to_owned(),
        timeout: TIMEOUT,
        decision,
    }
}

fn down() -> Line {
    Line::new(&config(false))
}

fn up() -> Line {
    opened(down())
}

fn opened(mut line: Line) -> Line {
    assert_eq!(line.tick(), [Effect::Open]);
    line.opened(true);
    assert_eq!(line.heard(&[], NOW), []);
    line
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

fn ask(line: &mut Line, id: u32) -> bool {
    line.ask(id, &target(&[]), edits()).is_ok()
}

fn says(line: &mut Line, id: u32, what: What) -> Vec<Effect> {
    let what = Some(what);
    let message = FromService {
        answers: vec![Answer { id, what }],
        leaving: false,
    };
    line.heard(&message.encode_to_vec(), NOW)
}

fn routed(cluster: &str, decision: &str) -> What {
    What::Routed(Routed {
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
    let ends = FromFilter::decode(&**message).unwrap().ends;
    let told = |end: End| (end.id, String::from_utf8(end.outcome).unwrap());
    ends.into_iter().map(told).collect()
}

fn ticks(line: &mut Line, count: u64) -> Vec<Effect> {
    (0..count).flat_map(|_| line.tick()).collect()
}

#[test]
fn nobody_asks_before_the_service_has_said_a_word() {
    let mut line = down();
    assert!(!ask(&mut line, 1));
    assert_eq!(line.tick(), [Effect::Open]);
    line.opened(true);
    assert!(!ask(&mut line, 1));
    line.heard(&[], NOW);
    assert!(ask(&mut line, 1));
}

#[test]
fn an_ask_has_what_the_filter_writes_and_what_the_service_reads_besides() {
    let target = target(&[(":method", "POST"), (":path", "/v1/chat/completions")]);
    let message = up().ask(7, &target, edits()).unwrap();
    let message = FromFilter::decode(&*message).unwrap();
    let [Ask { id: 7, headers }] = &*message.asks else {
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
    let mut line = up();
    assert!(ask(&mut line, 7));
    let effects = says(&mut line, 7, routed("", ""));
    assert_eq!(
        values(&effects),
        [
            ("endpoint-load-metrics-format", "TEXT".to_owned()),
            (names::DESTINATION, "10.0.0.1:80".to_owned()),
            (names::CLUSTER, "c".to_owned()),
            (names::LINE, "7".to_owned()),
            (names::SESSION, "s".to_owned()),
        ]
    );
    assert!(ask(&mut line, 8));
    let values = values(&says(&mut line, 8, routed("other", "why")));
    assert!(values.contains(&(names::CLUSTER, "other".to_owned())));
    assert_eq!(
        values.len(),
        5,
        "its client hears why, if anybody: {values:?}"
    );
}

#[test]
fn the_answer_to_what_was_decided_here_is_watched_from_then_on_once() {
    let mut line = up();
    assert!(line.answer(7).is_none());
    assert!(ask(&mut line, 7));
    assert!(line.answer(7).is_none(), "nobody has decided on it");
    says(&mut line, 7, routed("", "why"));
    let mut flow = line.answer(7).unwrap();
    assert!(line.answer(7).is_none());
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
    let mut line = opened(Line::new(&config(true)));
    let answer = from_pairs(&[(":status", "200")]);
    for (id, decision, told) in [
        (7, "why", vec![Edit::set(names::DECISION, "why")]),
        (8, "", vec![]),
    ] {
        assert!(ask(&mut line, id));
        says(&mut line, id, routed("", decision));
        assert_eq!(line.answer(id).unwrap().headers(&answer), told);
    }
}

#[test]
fn a_client_that_asks_for_the_engines_load_itself_gets_it() {
    let mut line = up();
    let asks_itself = target(&[("endpoint-load-metrics-format", "JSON")]);
    let report = (
        "endpoint-load-metrics",
        "TEXT named_metrics.num_requests_waiting=2",
    );
    let answer = from_pairs(&[(":status", "200"), report]);
    assert!(ask(&mut line, 7) && line.ask(8, &asks_itself, edits()).is_ok());
    says(&mut line, 7, routed("", ""));
    let edits = line.answer(7).unwrap().headers(&answer);
    assert_eq!(edits, [Edit::Remove("endpoint-load-metrics".to_owned())]);
    let sent = values(&says(&mut line, 8, routed("", "")));
    assert!(
        sent.iter()
            .all(|(name, _)| *name != "endpoint-load-metrics-format")
    );
    assert_eq!(line.answer(8).unwrap().headers(&answer), []);
}

#[test]
fn the_end_of_a_request_is_told_once() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    says(&mut line, 7, routed("", ""));
    assert_eq!(line.ended(7, Some("v=1".into())), Some(Effect::Soon));
    assert_eq!(line.ended(7, None), None);
    assert_eq!(told(&line.ends()), [(7, "v=1".to_owned())]);
    assert_eq!(line.ends(), None);
}

#[test]
fn an_end_is_told_with_the_next_question() {
    let mut line = up();
    assert!(ask(&mut line, 7) && ask(&mut line, 8));
    for id in [7, 8] {
        says(&mut line, id, routed("", ""));
    }
    assert_eq!(line.ended(7, None), Some(Effect::Soon));
    assert_eq!(line.ended(8, None), None, "somebody comes for it already");
    let message = line.ask(9, &target(&[]), edits()).unwrap();
    let message = FromFilter::decode(&*message).unwrap();
    assert_eq!(
        message.ends.iter().map(|end| end.id).collect::<Vec<_>>(),
        [7, 8]
    );
    assert_eq!(line.ends(), None);
}

#[test]
fn an_answer_that_outlives_its_line_is_watched_and_nobody_is_told() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    says(&mut line, 7, routed("", ""));
    assert_eq!(line.closed(), []);
    assert_eq!(line.closed(), [], "and again");
    let report = ("endpoint-load-metrics", "TEXT");
    let answer = from_pairs(&[(":status", "200"), report]);
    let edits = line.answer(7).unwrap().headers(&answer);
    assert_eq!(edits, [Edit::Remove("endpoint-load-metrics".to_owned())]);
    assert_eq!(line.ended(7, Some("v=1".into())), None);
    assert_eq!(line.ends(), None);
    assert!(line.requests.is_empty());
}

#[test]
fn many_ends_do_not_wait() {
    let mut line = up();
    let ids = 0..u32::try_from(ENDS_ENOUGH).unwrap();
    for id in ids.clone() {
        assert!(ask(&mut line, id));
        says(&mut line, id, routed("", ""));
    }
    let effects: Vec<_> = ids.filter_map(|id| line.ended(id, None)).collect();
    let [Effect::Soon, send] = &*effects else {
        panic!("{effects:?}");
    };
    assert_eq!(told(&Some(send.clone())).len(), ENDS_ENOUGH);
}

#[test]
fn a_request_that_gets_no_word_goes_by_its_session_and_the_line_is_silent_until_it_speaks() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    assert_eq!(ticks(&mut line, LATE - 1), []);
    let effects = line.tick();
    assert_eq!(
        values(&effects[..1]),
        [
            (names::CLUSTER, "c".to_owned()),
            (names::LINE, "7".to_owned()),
            (names::SESSION, "s".to_owned()),
        ],
        "external processing would wait as long again"
    );
    let forgotten = told(&effects.get(1).cloned());
    assert_eq!(forgotten, [(7, String::new())], "the service forgets it");
    assert_eq!(line.take_given_up(), 1);
    assert!(!ask(&mut line, 8));
    assert_eq!(says(&mut line, 7, routed("", "")), [], "too late");
    assert!(ask(&mut line, 8));
}

#[test]
fn a_request_that_waits_is_held_back_for_as_long_as_the_service_said() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let waits = What::Waits(Waits {
        milliseconds: 1_000,
    });
    assert_eq!(says(&mut line, 7, waits), []);
    assert_eq!(ticks(&mut line, 10), []);
    assert!(matches!(line.tick()[0], Effect::LetGo(7, _)));
}

#[test]
fn what_the_service_answers_itself_is_forgotten() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let answer = Immediate {
        status: 503,
        ..Immediate::default()
    };
    let effects = says(&mut line, 7, What::Immediate(answer.clone()));
    assert_eq!(effects, [Effect::Reply(7, answer)]);
    assert_eq!(line.ended(7, None), None);
}

#[test]
fn what_the_service_passes_is_external_processings() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let effects = says(&mut line, 7, What::Passed(Passed {}));
    assert_eq!(effects, [Effect::LetGo(7, edits())]);
    assert_eq!(line.ended(7, None), None);
    assert_eq!(line.take_given_up(), 0);
}

#[test]
fn a_line_that_breaks_lets_everybody_go_and_is_tried_again_after_ever_longer_pauses() {
    let mut line = up();
    assert!(ask(&mut line, 7) && ask(&mut line, 8));
    says(&mut line, 8, routed("", ""));
    assert_eq!(line.closed(), [Effect::LetGo(7, edits())]);
    assert_eq!(line.ended(8, None), None, "nobody is there to hear it");
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let start = line.now;
        while line.tick() != [Effect::Open] {}
        pauses.push(line.now - start);
        line.opened(false);
    }
    assert_eq!(pauses, [10, 20, 40, 50, 50, 50, 50]);
}

#[test]
fn a_service_that_leaves_is_told_the_ends_and_asked_nothing() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    says(&mut line, 7, routed("", ""));
    let leaving = FromService {
        answers: Vec::new(),
        leaving: true,
    };
    assert_eq!(line.heard(&leaving.encode_to_vec(), NOW), []);
    assert!(!ask(&mut line, 8));
    line.heard(&[], NOW);
    assert!(!ask(&mut line, 8), "it does not come back by itself");
    assert!(line.ended(7, None).is_some());
}

#[test]
fn a_message_that_cannot_be_read_ends_the_line() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let effects = line.heard(&[0xff], NOW);
    assert_eq!(effects, [Effect::LetGo(7, edits()), Effect::HangUp]);
    assert!(!ask(&mut line, 8));
}

#[test]
fn there_is_a_bound_on_what_may_be_out() {
    let mut line = up();
    let taken = (0..).take_while(|id| ask(&mut line, *id)).count();
    assert_eq!(taken, REQUESTS_MAX);
}
