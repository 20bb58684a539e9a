use std::time::Duration;

use super::*;
use isotherm_fingerprint::BlockHash;

fn begin(recorder: &Recorder, at_ms: u64) -> Option<Box<RecordingEntry>> {
    let blocks = [(11, 256), (12, 512)].map(|(hash, end_bytes)| BlockHash { hash, end_bytes });
    let fingerprint = Arc::new(Fingerprint::new(blocks.to_vec(), 600).unwrap());
    recorder.begin(|| at(at_ms), &fingerprint, Some(SessionKey(5)), Some(99))
}

fn outcome(status: u16) -> Outcome {
    Outcome {
        status,
        prompt_tokens: Some(150),
        completion_tokens: Some(20),
        ..Outcome::default()
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO.after(Duration::from_millis(ms))
}

#[tokio::test]
async fn a_request_is_recorded_when_it_ends() {
    let recorder = Arc::new(Recorder::default());
    assert!(begin(&recorder, 0).is_none(), "there is no recording");
    let mut reader = recorder.start(at(1_000), 10).unwrap();
    let mut entry = begin(&recorder, 1_250).unwrap();
    entry.finish(&outcome(200));
    assert_eq!(reader.summary(EndReason::Time, 0).unfinished, 1);
    drop(entry);
    assert_eq!(reader.summary(EndReason::Time, 0).unfinished, 0);
    let salt = Salt::random().unwrap();
    let record = reader.next().await.unwrap().salted(&salt, Some("eu"));
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
async fn a_recording_closes_at_its_limit_of_requests() {
    let recorder = Arc::new(Recorder::default());
    let mut reader = recorder.start(Time::ZERO, 2).unwrap();
    assert_eq!(
        recorder.start(Time::ZERO, 2).err(),
        Some(RecordingInProgress)
    );
    let entries: Vec<_> = (0..5).filter_map(|ms| begin(&recorder, ms)).collect();
    assert_eq!(entries.len(), 2);
    assert!(reader.is_closed() && !recorder.is_on());
    // Closing the first recording again does not close the second.
    let later = recorder.start(Time::ZERO, 2).unwrap();
    reader.close();
    assert!(!later.is_closed());
    drop(entries);
    assert!(reader.next().await.is_some() && reader.next().await.is_some());
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn records_beyond_the_channels_limit_are_dropped_and_counted() {
    let recorder = Arc::new(Recorder::default());
    let reader = recorder.start(Time::ZERO, u64::MAX).unwrap();
    for ms in 0..RECORDS_MAX as u64 + 3 {
        drop(begin(&recorder, ms).unwrap());
    }
    assert_eq!(reader.summary(EndReason::Time, 0).dropped, 3);
    drop(reader);
    assert!(!recorder.is_on());
    assert!(begin(&recorder, 0).is_none());
}

#[tokio::test]
async fn responses_with_an_error_are_left_out_of_a_recording() {
    let recorder = Arc::new(Recorder::default());
    let mut reader = recorder.start(Time::ZERO, 10).unwrap();
    begin(&recorder, 0).unwrap().finish(&outcome(500));
    reader.close();
    assert!(reader.next().await.is_none());
    assert_eq!(reader.summary(EndReason::Time, 0).failed, 1);
}
