//! Any bytes as messages of a decision stream: the service survives those of a filter, and the filter those of a service. The
//! filter gives up no request, and releases each once.
#![no_main]

use std::collections::BTreeMap;

use isotherm_ext_proc::fuzzing::read_decision_message;
use isotherm_wasm_filter_core::DecisionStreamConfig;
use isotherm_wasm_filter_core::decision_stream::{DecisionStream, Effect};
use isotherm_wasm_filter_core::request::RequestTarget;
use libfuzzer_sys::fuzz_target;

const REQUESTS: u32 = 4;
const NOW: u64 = 1;

fn stream() -> DecisionStream {
    let config = r#"{"cluster":"isotherm","decision":true}"#;
    let config: DecisionStreamConfig = serde_json::from_str(config).expect("a valid configuration");
    let mut stream = DecisionStream::new(&config);
    stream.on_open(true);
    // The first message, which is empty, makes the stream usable.
    assert!(stream.on_message(&[], NOW).is_empty());
    stream
}

/// Takes a message from the input: two bytes of length, then the message.
fn take_message<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
    let (message, behind) = rest.split_at(length);
    *input = behind;
    Some(message)
}

fuzz_target!(|input: &[u8]| {
    let mut stream = stream();
    for id in 1..=REQUESTS {
        assert!(
            stream
                .add_request(id, &RequestTarget::default(), Vec::new())
                .is_ok()
        );
    }
    let mut effects = Vec::new();
    let mut rest = input;
    while let Some(message) = take_message(&mut rest) {
        let _ = read_decision_message(message);
        effects.extend(stream.on_message(message, NOW));
        effects.extend(stream.tick());
    }
    effects.extend(stream.on_close());
    let mut releases: BTreeMap<u32, usize> = BTreeMap::new();
    for effect in &effects {
        if let Effect::Release(id, _) | Effect::Dispatch(id, ..) | Effect::Respond(id, _) = effect {
            *releases.entry(*id).or_default() += 1;
        }
    }
    assert_eq!(releases, (1..=REQUESTS).map(|id| (id, 1)).collect());
});
