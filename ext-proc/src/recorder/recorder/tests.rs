use std::time::Duration;

use super::*;
use isotherm_fingerprint::BlockHash;

fn ask() -> RouteRequest {
    let blocks = vec![
        BlockHash {
            hash: 11,
            end_bytes: 256,
        },
        BlockHash {
            hash: 12,
            end_bytes: 512,
        },
    ];
    RouteRequest {
        fingerprint: Arc::new(Fingerprint::new(blocks, 600).unwrap()),
        session: Some(SessionKey(5)),
        output_tokens_max: Some(99),
        ..RouteRequest::default()
    }
}

fn outcome(status: u16) -> Outcome {
    Outcome {
        status,
        prompt_tokens: Some(150),
        completion_tokens: Some(20),
        ..Outcome::default()
    }
}

fn at(ms: u64) -> impl FnOnce() -> Time {
    move || Time::ZERO.after(Duration::from_millis(ms))
}

#[tokio::test]
async fn a_request_is_recorded_when_it_ends() {
    let recorder = Arc::new(Recorder::default());
    assert!(recorder.begin(at(0), &ask()).is_none(), "nobody records");
    let mut recording = recorder.start(at(1_000)(), 10).unwrap();
    let mut entry = recorder.begin(at(1_250), &ask()).unwrap();
    entry.finished(&outcome(200));
    assert_eq!(recording.open(), 1);
    drop(entry);
    assert_eq!(recording.open(), 0);
    let salt = Salt::fresh().unwrap();
    let record = recording.next().await.unwrap().salted(&salt, Some("eu"));
    let expected = RecordedRequest {
        at_ms: 250,
        session: Some(salt.session(5)),
        region: Some("eu".into()),
        blocks: vec![(salt.prefix(11), 256), (salt.prefix(12), 512)],
        bytes: 600,
        prompt_tokens: Some(150),
        output_tokens: Some(20),
        output_tokens_max: Some(99),
    };
    assert_eq!(record, expected);
}

#[tokio::test]
async fn it_ends_with_the_last_of_as_many_requests_as_asked_for() {
    let recorder = Arc::new(Recorder::default());
    let mut recording = recorder.start(Time::ZERO, 2).unwrap();
    assert_eq!(
        recorder.start(Time::ZERO, 2).err(),
        Some(RecordingInProgress)
    );
    let entries: Vec<_> = (0..5)
        .filter_map(|ms| recorder.begin(at(ms), &ask()))
        .collect();
    assert_eq!(entries.len(), 2);
    assert!(recording.is_closed() && !recorder.is_on());
    // A later one does not disturb the end of this one.
    let later = recorder.start(Time::ZERO, 2).unwrap();
    recording.close();
    assert!(!later.is_closed());
    drop(entries);
    assert!(recording.next().await.is_some() && recording.next().await.is_some());
    assert!(recording.next().await.is_none());
}

#[tokio::test]
async fn what_nobody_takes_is_dropped_and_counted() {
    let recorder = Arc::new(Recorder::default());
    let recording = recorder.start(Time::ZERO, u64::MAX).unwrap();
    for ms in 0..RECORDS_MAX as u64 + 3 {
        drop(recorder.begin(at(ms), &ask()).unwrap());
    }
    assert_eq!(recording.dropped(), 3);
    drop(recording);
    assert!(!recorder.is_on());
    assert!(recorder.begin(at(0), &ask()).is_none());
}

#[tokio::test]
async fn errors_of_engines_and_requests_of_other_regions_are_left_out() {
    let recorder = Arc::new(Recorder::default());
    let mut recording = recorder.start(Time::ZERO, 10).unwrap();
    recorder
        .begin(at(0), &ask())
        .unwrap()
        .finished(&outcome(500));
    let guest = RouteRequest {
        scope: Scope::Guest,
        ..ask()
    };
    assert!(recorder.begin(at(0), &guest).is_none());
    recording.close();
    assert!(recording.next().await.is_none());
    assert_eq!(recording.failed(), 1);
}
