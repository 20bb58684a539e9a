use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const ISTIO: &str = "outbound|9002||isotherm.default.svc.cluster.local";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

fn frame(kind: u8, flags: u8, stream_id: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_uint(payload.len() as u64, 3);
    frame.put_u8(kind);
    frame.put_u8(flags);
    frame.put_u32(stream_id);
    frame.put_slice(payload);
    frame
}

/// A connection with two calls and a body between them. The second call refers to the headers of the first.
fn connection(authority: &str) -> Vec<u8> {
    const WITH_INDEXING: u8 = 0x40;
    let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process".repeat(3);
    let mut first = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":path", &path),
        (":authority", authority),
    ] {
        first.push(WITH_INDEXING);
        write_text(name.as_bytes(), &mut first);
        write_text(value.as_bytes(), &mut first);
    }
    // The entries 64, 63 and 62 of the table: the newest entry comes first.
    let second = [0xc0, 0xbf, 0xbe];
    let padded = [&[3, 0, 0, 0, 0, 16][..], &first, &[0; 3]].concat();
    let (start, end) = second.split_at(1);
    [
        PREFACE,
        SETTINGS,
        &frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 1, &padded),
        &frame(0, END_STREAM, 1, &[7; 40_000]),
        &frame(HEADERS, END_STREAM, 3, start),
        &frame(CONTINUATION, END_HEADERS, 3, end),
    ]
    .concat()
}

/// Reads a connection whose bytes arrive in pieces.
async fn read(bytes: Vec<u8>, piece_bytes: usize) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(piece_bytes);
    let writing = tokio::spawn(async move { client.write_all(&bytes).await });
    let mut read = Vec::new();
    let mut replacer = AuthorityReplacer::new(server);
    replacer.read_to_end(&mut read).await.unwrap();
    writing.await.unwrap().unwrap();
    read
}

/// The frames behind the preface: kind, flags, stream and payload.
fn frames(bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut rest = bytes.strip_prefix(PREFACE).unwrap();
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = usize::try_from(rest.get_uint(3)).unwrap();
        let (kind, flags, stream_id) = (rest.get_u8(), rest.get_u8(), rest.get_u32());
        frames.push((kind, flags, stream_id, rest.copy_to_bytes(length).to_vec()));
    }
    frames
}

#[tokio::test]
async fn an_invalid_authority_is_replaced_in_every_call() {
    for piece_bytes in [1, 100, 100_000] {
        let read = frames(&read(connection(ISTIO), piece_bytes).await);
        let kinds: Vec<_> = read
            .iter()
            .map(|frame| (frame.0, frame.1, frame.2))
            .collect();
        let expected = [
            (4, 0, 0),
            (HEADERS, END_HEADERS, 1),
            (0, END_STREAM, 1),
            (HEADERS, END_HEADERS | END_STREAM, 3),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(read[2].3, [7; 40_000]);
        let mut decoder = Decoder::new();
        for call in [&read[1], &read[3]] {
            let headers = decoder.decode(&call.3).unwrap();
            assert_eq!(headers[1].1.len(), 3 * 52);
            assert_eq!(headers[2], (AUTHORITY.to_vec(), REPLACEMENT.to_vec()));
        }
    }
}

#[tokio::test]
async fn a_connection_with_a_valid_authority_passes_unchanged() {
    for piece_bytes in [1, 100_000] {
        let sent = connection("isotherm:9002");
        assert!(read(sent.clone(), piece_bytes).await == sent);
    }
}

#[tokio::test]
async fn a_connection_that_is_no_http2_passes_unchanged() {
    let sent = b"GET / HTTP/1.1\r\nhost: isotherm|9002\r\n\r\n".to_vec();
    assert_eq!(read(sent.clone(), 5).await, sent);
}

proptest! {
    #[test]
    fn malformed_frames_pass_unchanged(noise: Vec<u8>, end in 0_usize..300) {
        let connection = connection(ISTIO);
        let sent = [&connection[..PREFACE.len() + end], &noise].concat();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(read(sent, 64));
        prop_assert!(read.starts_with(PREFACE));
    }
}
