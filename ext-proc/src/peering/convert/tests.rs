use std::collections::BTreeSet;
use std::time::Duration;

use isotherm_fingerprint::BlockHash;
use isotherm_regions::{
    Advertisement, Heartbeat, Incarnation, Liveness, PeerView, PoolReplicas, RecordVersion,
    RegionName, RegionRecord, SuccessorList,
};
use isotherm_router::PeerReport;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::peering::message::NamedTarget;

const SESSION: u64 = 77;

fn there_and_back(said: &Message) -> Option<Message> {
    let bytes = to_wire(SESSION, said).encode_to_vec();
    from_wire(wire::Envelope::decode(&*bytes).unwrap()).unwrap()
}

fn stance_of(regions: &[&str]) -> Advertisement {
    let set = || regions.iter().map(|name| RegionName::from(*name)).collect();
    Advertisement {
        incarnation: Incarnation(u64::MAX),
        version: 3,
        has_gateway: true,
        adopted: set(),
        yielded: set(),
        requested: BTreeSet::new(),
    }
}

const HELD: RecordVersion = RecordVersion {
    replicas: 4,
    successors: 5,
    has_previous: true,
};

fn examples() -> Vec<Message> {
    let block = |n: u32| BlockHash {
        hash: u64::MAX - u64::from(n),
        end_bytes: n,
    };
    let placed = |at, parent| NamedPlacement {
        model: "llama".into(),
        at,
        parent,
        blocks: (1..300).map(block).collect(),
    };
    let view = |sight| PeerView {
        region: "asia".into(),
        liveness: sight,
        record_version: HELD,
    };
    vec![
        Message::Ping(Ping {
            session: Session(SESSION),
            seq: 9,
            record_version: HELD,
            advertisement: stance_of(&["asia", "eu"]),
        }),
        Message::Heartbeat(Heartbeat {
            session: Session(SESSION),
            ping_seq: 9,
            version: "1.2.3".into(),
            advertisement: stance_of(&[]),
            pools: vec![(
                "llama".into(),
                PeerReport {
                    available: 1,
                    replicas: 2,
                    free_capacity: u32::MAX,
                    queue: 4,
                    drain_per_s: 0.25,
                },
            )],
            views: vec![
                view(Liveness::Silent),
                view(Liveness::Alive {
                    has_gateway: true,
                    round_trip: Duration::from_micros(150_250),
                }),
            ],
        }),
        Message::Record(Arc::new(RegionRecord {
            region: "us".into(),
            version: 2,
            pools: vec![PoolReplicas {
                model: "llama".into(),
                replicas: vec!["10.0.0.1:8000".into(), "[::1]:8000".into()],
            }],
            successors: SuccessorList {
                version: 3,
                order: vec!["eu".into(), "asia".into()],
                previous: Some(Vec::new()),
            },
        })),
        Message::Record(Arc::new(RegionRecord {
            region: "us".into(),
            version: 0,
            pools: Vec::new(),
            successors: SuccessorList::default(),
        })),
        Message::Placements(vec![
            placed(NamedTarget::Replica("10.0.0.1:8000".into()), None),
            placed(NamedTarget::Region("eu".into()), Some(block(0))),
        ]),
    ]
}

#[test]
fn what_is_said_is_what_is_heard() {
    for said in examples() {
        assert_eq!(there_and_back(&said).as_ref(), Some(&said));
    }
}

#[test]
fn what_a_later_version_says_is_passed_over() {
    // Field 15, which no kind of message has.
    let said = wire::Envelope::decode(&[0x08, 0x05, 0x7a, 0x00][..]).unwrap();
    assert_eq!(from_wire(said), Ok(None));
}

#[test]
fn nonsense_is_refused() {
    let said = |what| {
        from_wire(wire::Envelope {
            session: 1,
            payload: Some(what),
        })
    };
    let ping = wire::Ping::default();
    assert_eq!(
        said(Payload::Ping(ping)),
        Err(DecodeError::Missing("the stance"))
    );

    let rate = |drain_per_s| {
        let pool = wire::PoolReport {
            model: "m".into(),
            drain_per_s,
            ..wire::PoolReport::default()
        };
        said(Payload::Heartbeat(wire::Heartbeat {
            stance: Some(wire::Stance::default()),
            pools: vec![pool],
            ..wire::Heartbeat::default()
        }))
    };
    assert!(rate(1.0).is_ok());
    for wrong in [f32::NAN, f32::INFINITY, -1.0] {
        assert_eq!(rate(wrong), Err(DecodeError::Rate));
    }

    let record = |region: String| {
        said(Payload::Record(wire::Record {
            region,
            ..wire::Record::default()
        }))
    };
    assert!(record("r".repeat(NAME_BYTES_MAX)).is_ok());
    assert_eq!(record(String::new()), Err(DecodeError::Name));
    assert_eq!(
        record("r".repeat(NAME_BYTES_MAX + 1)),
        Err(DecodeError::Name)
    );

    let placed = |hashes, ends_bytes| {
        let placement = wire::Placement {
            model: "m".into(),
            target: Some(wire::Target::Region("eu".into())),
            parent: None,
            hashes,
            ends_bytes,
        };
        said(Payload::Placements(wire::Placements {
            placements: vec![placement],
        }))
    };
    assert!(placed(vec![1; BLOCKS_MAX], vec![1; BLOCKS_MAX]).is_ok());
    assert_eq!(placed(vec![1, 2], vec![1]), Err(DecodeError::Blocks));
    let many = vec![1; BLOCKS_MAX + 1];
    let refused = placed(many.clone(), vec![1; many.len()]);
    assert!(matches!(
        refused,
        Err(DecodeError::Many { of: "blocks", .. })
    ));
}

proptest! {
    /// Whatever bytes come in, there is an answer; and what was understood can be said again.
    #[test]
    fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        hear(&bytes);
    }

    /// The same for messages of which a few bytes have been changed.
    #[test]
    fn no_changed_message_does_harm(
        which in 0..5_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = to_wire(SESSION, &examples()[which]).encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        hear(&bytes);
    }
}

fn hear(bytes: &[u8]) {
    let Ok(message) = wire::Envelope::decode(bytes) else {
        return;
    };
    let session = message.session;
    if let Ok(Some(said)) = from_wire(message) {
        let again = from_wire(to_wire(session, &said));
        assert_eq!(again, Ok(Some(said)));
    }
}
