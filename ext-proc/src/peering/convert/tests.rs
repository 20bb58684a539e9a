use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_planner::{AdoptedPlan, DemandSums, Hold, RegionRow};
use isotherm_regions::Heartbeat;
use isotherm_router::{PeerReport, PromptCost, TenantCharge, TenantId, Time};
use proptest::prelude::*;
use prost::Message as _;

use super::decode::DecodeError;
use super::*;
use crate::peering::wire::{self, Envelope, Payload};
use crate::peering::{PoolShare, ScalingShare};
use crate::pool::{SharedPlacement, SharedTarget};

fn round_trip(message: &Message) -> Option<Message> {
    let bytes = encode(message).encode_to_vec();
    decode(Envelope::decode(&*bytes).unwrap()).unwrap()
}

fn scaling_share(work_s: f64) -> ScalingShare {
    let sums = DemandSums {
        requests: 3.0,
        requests_in_slo: 2.0,
        work_s,
        input_tokens: 4_000.0,
        kv_token_s: 9.5,
    };
    let pool = PoolShare {
        model: "llama".into(),
        minute: 29_000_000,
        interactive: sums,
        batch: DemandSums::default(),
        waiting_s: 0.5,
        plan: AdoptedPlan {
            desired: 7,
            epoch: 41,
            drained: vec!["10.0.0.7:8000".to_owned()],
            hold: Some(Hold {
                replicas: 7,
                until: Time::from_nanos(1_750_000_000_000_000_000),
            }),
        },
        row: RegionRow {
            replicas: 7,
            demand: 4.5,
            capacity: 0.7,
            min: 1,
            max: 9,
        },
    };
    ScalingShare {
        started_unix_ns: u64::MAX,
        incarnation: 5,
        pools: vec![pool],
    }
}

#[test]
fn a_figure_of_the_demand_that_is_no_number_is_refused() {
    for work_s in [f64::NAN, f64::INFINITY, -1.0] {
        let message = Message::Scaling(Arc::new(scaling_share(work_s)));
        let bytes = encode(&message).encode_to_vec();
        let decoded = decode(Envelope::decode(&*bytes).unwrap());
        assert_eq!(decoded, Err(DecodeError::Demand), "{work_s}");
    }
}

fn examples() -> Vec<Message> {
    let block = |n: u32| BlockHash {
        hash: u64::MAX - u64::from(n),
        end_bytes: n,
    };
    let placement = |target, parent, uncached_tokens| {
        let placement = SharedPlacement {
            target,
            parent,
            blocks: (1..300).map(block).collect(),
            uncached_tokens,
            charge: uncached_tokens.map(|tokens| TenantCharge {
                tenant: TenantId(u64::MAX),
                work_us: i64::from(tokens) - 5,
            }),
        };
        (Arc::from("llama"), placement)
    };
    vec![
        Message::Scaling(Arc::new(scaling_share(2.5))),
        Message::Ping { nonce: 9 },
        Message::Heartbeat(Heartbeat {
            nonce: 9,
            version: "1.2.3".into(),
            has_gateway: true,
            pools: vec![(
                "llama".into(),
                PeerReport {
                    available: 1,
                    replicas: 2,
                    free_capacity: u32::MAX,
                    queue: 4,
                    drain_per_s: 0.25,
                    prompt_cost: Some(PromptCost {
                        first_token_s: 0.5,
                        prompt_token_s: 0.001,
                        others_s: 0.25,
                        others_token_s: 0.002,
                    }),
                    utilisation: Some(0.75),
                    kv_capacity_tokens: 1 << 40,
                    batch_credit: 2,
                    batch_queue: 3,
                },
            )],
        }),
        Message::Placements(vec![
            placement(
                SharedTarget::Replica(([10, 0, 0, 1], 8000).into()),
                None,
                Some(0),
            ),
            placement(SharedTarget::Peer("eu".into()), Some(block(0)), None),
        ]),
    ]
}

/// A heartbeat a fifth of a second makes 10,000 bytes of one 50 KB/s.
#[test]
fn a_heartbeat_of_fifty_pools_takes_less_than_10_000_bytes_whatever_their_replicas() {
    let most = PeerReport {
        available: u32::MAX,
        replicas: u32::MAX,
        free_capacity: u32::MAX,
        queue: u32::MAX,
        drain_per_s: f32::MAX,
        prompt_cost: Some(PromptCost {
            first_token_s: f32::MAX,
            prompt_token_s: f32::MAX,
            others_s: f32::MAX,
            others_token_s: f32::MAX,
        }),
        utilisation: Some(1.0),
        kv_capacity_tokens: u64::MAX,
        batch_credit: u32::MAX,
        batch_queue: u32::MAX,
    };
    let pool = |number| {
        (
            format!("meta-llama/Llama-3.1-8B-Instruct-{number}").into(),
            most,
        )
    };
    let heartbeat = Message::Heartbeat(Heartbeat {
        nonce: u64::MAX,
        version: "1.2.3".into(),
        has_gateway: true,
        pools: (0..50).map(pool).collect(),
    });
    let bytes = encode(&heartbeat).encoded_len();
    assert!(bytes < 10_000, "{bytes}");
}

#[test]
fn a_message_survives_encoding_and_decoding() {
    for message in examples() {
        assert_eq!(round_trip(&message).as_ref(), Some(&message));
    }
}

#[test]
fn a_message_of_an_unknown_kind_is_ignored() {
    // Field 15, which no kind of message has.
    let envelope = Envelope::decode(&[0x7a, 0x00][..]).unwrap();
    assert_eq!(decode(envelope), Ok(None));
}

type DecodeResult = Result<Option<Message>, DecodeError>;

fn decode_payload(payload: Payload) -> DecodeResult {
    decode(Envelope {
        payload: Some(payload),
    })
}

/// Decodes a heartbeat with one pool, after this change of the pool.
fn decode_pool(change: impl FnOnce(&mut wire::PoolReport)) -> DecodeResult {
    let mut pool = wire::PoolReport {
        model: "m".into(),
        ..wire::PoolReport::default()
    };
    change(&mut pool);
    decode_payload(Payload::Heartbeat(wire::Heartbeat {
        pools: vec![pool],
        ..wire::Heartbeat::default()
    }))
}

/// Decodes a placement at a peer, after this change.
fn decode_placement(change: impl FnOnce(&mut wire::Placement)) -> DecodeResult {
    let mut placement = wire::Placement {
        model: "m".into(),
        target: Some(wire::Target::Region("eu".into())),
        ..wire::Placement::default()
    };
    change(&mut placement);
    decode_payload(Payload::Placements(wire::Placements {
        placements: vec![placement],
    }))
}

#[test]
fn invalid_reports_are_refused() {
    let rate = |drain_per_s| decode_pool(|pool| pool.drain_per_s = drain_per_s);
    let utilisation = |used| decode_pool(|pool| pool.utilisation = Some(used));
    let cost = |others_token_s| {
        decode_pool(|pool| {
            pool.prompt_cost = Some(wire::PromptCost {
                first_token_s: 1.0,
                others_token_s,
                ..wire::PromptCost::default()
            });
        })
    };
    assert!(rate(1.0).is_ok() && utilisation(1.5).is_ok() && cost(0.0).is_ok());
    for invalid in [f32::NAN, f32::INFINITY, -0.001] {
        assert_eq!(rate(invalid), Err(DecodeError::Rate));
        assert_eq!(utilisation(invalid), Err(DecodeError::Utilisation));
        assert_eq!(cost(invalid), Err(DecodeError::Cost));
    }
    let model = |bytes| decode_pool(|pool| pool.model = "m".repeat(bytes));
    assert!(model(NAME_BYTES_MAX).is_ok());
    for invalid in [0, NAME_BYTES_MAX + 1] {
        assert_eq!(model(invalid), Err(DecodeError::Name));
    }
}

#[test]
fn invalid_placements_are_refused() {
    let charge = |work_us| {
        decode_placement(|placement| {
            placement.charge = Some(wire::TenantCharge { tenant: 7, work_us });
        })
    };
    assert!(charge(-1_000_000).is_ok());
    for invalid in [i64::MIN, i64::MAX] {
        assert_eq!(charge(invalid), Err(DecodeError::Charge));
    }
    let replica = |address: &str| {
        let target = wire::Target::Replica(address.into());
        decode_placement(|placement| placement.target = Some(target))
    };
    assert!(replica("10.0.0.1:8000").is_ok());
    assert_eq!(replica("engine.example:8000"), Err(DecodeError::Address));
    let blocks = |hashes, ends| {
        decode_placement(|placement| {
            placement.hashes = vec![1; hashes];
            placement.ends_bytes = vec![1; ends];
        })
    };
    assert!(blocks(BLOCKS_MAX, BLOCKS_MAX).is_ok());
    assert_eq!(blocks(2, 1), Err(DecodeError::Blocks));
    let refused = blocks(BLOCKS_MAX + 1, BLOCKS_MAX + 1);
    assert!(matches!(
        refused,
        Err(DecodeError::Many { of: "blocks", .. })
    ));
}

proptest! {
    /// Arbitrary bytes decode to an error or to a message that encodes again.
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes);
    }

    /// Messages with a few changed bytes decode to an error or to a message that encodes again.
    #[test]
    fn changed_messages_do_no_harm(
        which in 0..4_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = encode(&examples()[which]).encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        check(&bytes);
    }
}

fn check(bytes: &[u8]) {
    let Ok(envelope) = Envelope::decode(bytes) else {
        return;
    };
    if let Ok(Some(message)) = decode(envelope) {
        let again = decode(encode(&message));
        assert_eq!(again, Ok(Some(message)));
    }
}
