use isotherm_line::{Passed, Waits};

use super::*;

const TIMEOUT: Duration = Duration::from_millis(500);
/// After so many ticks a request that got no word is let go.
const LATE: u64 = 6;

fn down() -> Line {
    Line::new(TIMEOUT)
}

fn up() -> Line {
    let mut line = down();
    assert_eq!(line.tick(), [Effect::Open]);
    line.opened(true);
    assert_eq!(line.heard(&[]), []);
    line
}

fn edits() -> Vec<Edit> {
    vec![
        Edit::set(names::FINGERPRINT, "f"),
        Edit::set(names::SESSION, "s"),
        Edit::set(names::CLUSTER, "c"),
    ]
}

fn ask(line: &mut Line, id: u32) -> bool {
    line.ask(id, &[(":method", b"POST")], edits()).is_ok()
}

fn says(line: &mut Line, id: u32, what: What) -> Vec<Effect> {
    let what = Some(what);
    let message = FromService {
        answers: vec![Answer { id, what }],
        leaving: false,
    };
    line.heard(&message.encode_to_vec())
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
    line.heard(&[]);
    assert!(ask(&mut line, 1));
}

#[test]
fn an_ask_has_what_the_filter_writes_and_what_the_service_reads_besides() {
    let message = up().ask(7, &[(":method", b"POST")], edits()).unwrap();
    let message = FromFilter::decode(&*message).unwrap();
    let [Ask { id: 7, headers }] = &*message.asks else {
        panic!("{message:?}");
    };
    let names: Vec<_> = headers.iter().map(|header| &*header.name).collect();
    assert_eq!(
        names,
        [
            ":method",
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
            (names::DESTINATION, "10.0.0.1:80".to_owned()),
            (names::CLUSTER, "c".to_owned()),
            (names::LINE, "7".to_owned()),
            (names::SESSION, "s".to_owned()),
        ]
    );
    assert!(ask(&mut line, 8));
    let values = values(&says(&mut line, 8, routed("other", "why")));
    assert!(values.contains(&(names::CLUSTER, "other".to_owned())));
    assert!(values.contains(&(names::DECISION, "why".to_owned())));
    assert_eq!(values.len(), 5);
}

#[test]
fn the_end_of_a_request_is_told_once() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    says(&mut line, 7, routed("", ""));
    let told = line.ended(7, Some("v=1".into())).unwrap();
    let told = FromFilter::decode(&*told).unwrap();
    assert_eq!(told.ends[0].outcome, b"v=1");
    assert_eq!(line.ended(7, None), None);
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
    assert!(
        matches!(effects[1], Effect::Send(_)),
        "the service forgets it"
    );
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
    assert!(!line.has(7));
}

#[test]
fn what_the_service_passes_is_external_processings() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let effects = says(&mut line, 7, What::Passed(Passed {}));
    assert_eq!(effects, [Effect::LetGo(7, edits())]);
    assert!(!line.has(7));
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
    assert_eq!(line.heard(&leaving.encode_to_vec()), []);
    assert!(!ask(&mut line, 8));
    line.heard(&[]);
    assert!(!ask(&mut line, 8), "it does not come back by itself");
    assert!(line.ended(7, None).is_some());
}

#[test]
fn a_message_that_cannot_be_read_ends_the_line() {
    let mut line = up();
    assert!(ask(&mut line, 7));
    let effects = line.heard(&[0xff]);
    assert_eq!(effects, [Effect::LetGo(7, edits()), Effect::HangUp]);
    assert!(!ask(&mut line, 8));
}

#[test]
fn there_is_a_bound_on_what_may_be_out() {
    let mut line = up();
    let taken = (0..).take_while(|id| ask(&mut line, *id)).count();
    assert_eq!(taken, REQUESTS_MAX);
}
