use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_planner::{AdoptedPlan, DemandSums, Hold};
use isotherm_regions::Heartbeat;
use isotherm_router::{PeerReport, PromptCost, Time};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::json;

use super::*;
use crate::peering::ScalingShare;
use crate::pool::SharedTarget;

const REPORT: PeerReport = PeerReport {
    available: 1,
    replicas: 20,
    free_capacity: u32::MAX,
    queue: 400,
    drain_per_s: 12.3,
    prompt_cost: Some(PromptCost {
        first_token_s: 0.1,
        prompt_token_s: 0.001,
        others_s: 0.3,
        others_token_s: 0.002,
    }),
    utilisation: Some(0.7),
    kv_capacity_tokens: 1 << 40,
    batch_credit: 2,
    batch_queue: 300,
};

fn heartbeat(pools: Vec<(Arc<str>, PeerReport)>) -> Message {
    Message::Heartbeat(Heartbeat {
        version: "1.2.3".into(),
        has_gateway: true,
        pools,
    })
}

fn placement(blocks: u32) -> Message {
    let block = |n: u32| BlockHash {
        hash: u64::MAX - u64::from(n),
        end_bytes: n,
    };
    let placement = SharedPlacement {
        target: SharedTarget::Replica(([10, 0, 0, 1], 8000).into()),
        parent: Some(block(0)),
        blocks: (0..blocks).map(block).collect(),
        uncached_tokens: Some(0),
    };
    Message::Placements(vec![("llama".into(), placement)])
}

fn scaling(work_s: f64, drained: &str) -> Message {
    let pool = PoolShare {
        model: "llama".into(),
        minute: 29_000_000,
        interactive: DemandSums {
            requests: 3.0,
            work_s,
            ..DemandSums::default()
        },
        plan: AdoptedPlan {
            desired: 7,
            epoch: 41,
            drained: vec![drained.to_owned()],
            hold: Some(Hold {
                replicas: 7,
                until: Time::from_nanos(1_750_000_000_000_000_000),
            }),
        },
        ..PoolShare::default()
    };
    Message::Scaling(Arc::new(ScalingShare {
        started_unix_ns: u64::MAX,
        incarnation: 5,
        pools: vec![pool],
    }))
}

fn examples() -> [Message; 4] {
    [
        Message::Ping,
        heartbeat(vec![("llama".into(), REPORT)]),
        placement(300),
        scaling(2.5, "10.0.0.7:8000"),
    ]
}

fn cbor(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_message_survives_encoding_and_decoding() {
    for message in examples() {
        let bytes = encode(&message).unwrap();
        assert_eq!(decode(&bytes), Ok(Some(message)));
    }
}

/// With five heartbeats a second, 10,000 bytes each are 50 KB/s.
#[test]
fn a_heartbeat_of_fifty_pools_takes_less_than_10_000_bytes_whatever_their_replicas() {
    let pool = |number| {
        let model = format!("meta-llama/Llama-3.1-8B-Instruct-{number}");
        (model.into(), REPORT)
    };
    let bytes = encode(&heartbeat((0..50).map(pool).collect())).unwrap();
    assert!(bytes.len() < 10_000, "{}", bytes.len());
}

#[test]
fn a_field_of_a_later_version_is_ignored_and_an_absent_one_is_zero() {
    let other = json!({
        "heartbeat": { "version": "2.0.0", "later": [1], "pools": [["m", { "queue": 3 }]] },
    });
    let bytes = cbor(&other);
    let report = PeerReport {
        queue: 3,
        ..PeerReport::default()
    };
    let expected = Message::Heartbeat(Heartbeat {
        version: "2.0.0".into(),
        pools: vec![("m".into(), report)],
        ..Heartbeat::default()
    });
    assert_eq!(decode(&bytes), Ok(Some(expected)));
}

#[test]
fn a_share_without_its_later_fields_is_read() {
    let other = json!({ "scaling": { "pools": [{ "model": "m", "row": { "min": 2 } }] } });
    let bytes = cbor(&other);
    let Ok(Some(Message::Scaling(share))) = decode(&bytes) else {
        panic!("{:?}", decode(&bytes));
    };
    assert_eq!(share.pools[0].row.min, 2);
    assert_eq!(share.pools[0].plan, AdoptedPlan::default());
}

#[test]
fn bytes_behind_a_message_and_pools_without_a_name_are_refused() {
    for message in examples() {
        let mut bytes = encode(&message).unwrap().to_vec();
        bytes.push(0);
        assert!(is_unreadable(&bytes));
    }
    let nameless = json!({ "scaling": { "pools": [{}, {}] } });
    let bytes = cbor(&nameless);
    assert!(is_unreadable(&bytes));
}

fn is_unreadable(bytes: &[u8]) -> bool {
    let error = decode(bytes).unwrap_err().to_string();
    error.starts_with("the message cannot be read: ")
}

/// Why a sender and a receiver both refuse the message.
fn refusal(message: &Message) -> String {
    let bytes = cbor(message);
    let error = encode(message).unwrap_err();
    assert_eq!(decode(&bytes), Err(error.clone()));
    error.to_string()
}

#[test]
fn a_figure_that_is_negative_or_no_number_is_refused() {
    for invalid in [f32::NAN, f32::INFINITY, -0.001] {
        let cost = PromptCost {
            others_token_s: invalid,
            ..PromptCost::default()
        };
        let (mut drain, mut used, mut costs) = (REPORT, REPORT, REPORT);
        drain.drain_per_s = invalid;
        used.utilisation = Some(invalid);
        costs.prompt_cost = Some(cost);
        let reports = [drain, used, costs].map(|report| heartbeat(vec![("m".into(), report)]));
        let demand = scaling(invalid.into(), "10.0.0.7:8000");
        for message in reports.iter().chain([&demand]) {
            assert_eq!(refusal(message), "a figure is negative or not finite");
        }
    }
}

#[test]
fn names_and_lists_beyond_their_bounds_are_refused() {
    let model = |bytes| heartbeat(vec![("m".repeat(bytes).into(), REPORT)]);
    assert!(encode(&model(256)).is_ok());
    for invalid in [model(0), model(257), scaling(1.0, "")] {
        assert!(refusal(&invalid).starts_with("a name is empty or longer"));
    }
    assert!(encode(&placement(512)).is_ok());
    assert_eq!(refusal(&placement(513)), "more than 512 blocks");
    let Message::Placements(one) = placement(512) else {
        unreachable!()
    };
    let many = Message::Placements(one.iter().cycle().take(200).cloned().collect());
    assert_eq!(
        encode(&many).unwrap_err().to_string(),
        "more than 1048576 bytes"
    );
}

proptest! {
    /// Arbitrary bytes decode to an error or to a message that encodes again.
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check_decoded(&bytes);
    }

    /// Messages with a few changed bytes decode to an error or to a message that encodes again.
    #[test]
    fn changed_messages_do_no_harm(
        which in 0..4_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&examples()[which]).unwrap().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check_decoded(&bytes);
    }
}

fn check_decoded(bytes: &[u8]) {
    if let Ok(Some(message)) = decode(bytes) {
        let again = encode(&message).and_then(|bytes| decode(&bytes));
        assert_eq!(again, Ok(Some(message)));
    }
}
