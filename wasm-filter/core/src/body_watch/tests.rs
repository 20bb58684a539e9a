use super::*;

const MS: Nanoseconds = 1_000_000;

/// Holds a request at `now` milliseconds; the host has received none of its body.
fn hold(watch: &mut BodyWatch<()>, id: u32, now: u64) {
    assert!(watch.hold(id, now * MS, 0, ()));
}

/// The requests that a tick at `now` milliseconds releases, with this count of received bytes for each.
fn tick(watch: &mut BodyWatch<()>, now: u64, received_bytes: u64) -> Vec<u32> {
    let released = watch.tick(now * MS, |_| Some(received_bytes));
    released.into_iter().map(|(id, _)| id).collect()
}

#[test]
fn a_body_that_arrives_proves_that_the_host_passes_bodies() {
    let mut watch = BodyWatch::default();
    hold(&mut watch, 1, 0);
    hold(&mut watch, 2, 0);
    assert_eq!(watch.period(), Some(TICK));
    assert!(watch.on_body(1));
    assert_eq!(watch.delivery(), BodyDelivery::Passed);
    assert_eq!(watch.period(), None);
    assert!(
        watch.on_body(2),
        "a request is held after the proof as well"
    );
}

#[test]
fn bodies_that_follow_their_release_at_once_prove_that_the_host_withholds_them() {
    let mut watch = BodyWatch::default();
    for id in 1..=PROOFS {
        assert_eq!(watch.delivery(), BodyDelivery::Unknown);
        let now = u64::from(id) * 100;
        hold(&mut watch, id, now);
        assert_eq!(tick(&mut watch, now + 10, 500), [id]);
        assert_eq!(watch.period(), Some(PROBE_TICK));
        assert!(!watch.on_body(id), "the request has continued");
        assert!(!watch.on_body(id), "a second piece of the same body");
    }
    assert_eq!(watch.delivery(), BodyDelivery::Withheld);
    assert_eq!(watch.period(), None);
}

#[test]
fn requests_of_one_tick_prove_it_together_and_later_ones_continue_at_the_next_tick() {
    let mut watch = BodyWatch::default();
    hold(&mut watch, 1, 0);
    hold(&mut watch, 2, 0);
    hold(&mut watch, 3, 9);
    assert_eq!(tick(&mut watch, 10, 500), [1, 2]);
    assert!(!watch.on_body(1));
    assert!(!watch.on_body(2));
    assert_eq!(watch.delivery(), BodyDelivery::Withheld);
    assert_eq!(tick(&mut watch, 11, 0), [3]);
}

#[test]
fn a_slow_client_proves_nothing_and_stays_held() {
    let mut watch = BodyWatch::default();
    for id in 0..10 {
        let now = u64::from(id) * 10_000;
        hold(&mut watch, id, now);
        assert!(tick(&mut watch, now + 9_000, 0).is_empty());
        assert_eq!(watch.delivery(), BodyDelivery::Unknown);
    }
    assert!(watch.on_body(0));
    assert_eq!(watch.delivery(), BodyDelivery::Passed);
}

#[test]
fn a_filter_in_front_that_delays_bodies_is_waited_for() {
    const DELAY: u64 = 45;
    let mut watch = BodyWatch::default();
    for id in 0..10 {
        let start = u64::from(id) * 1_000;
        hold(&mut watch, id, start);
        let mut ticks = (start..start + DELAY).step_by(10);
        while let Some(now) = ticks.next()
            && tick(&mut watch, now, 500).is_empty()
        {}
        tick(&mut watch, start + DELAY, 500);
        if watch.on_body(id) {
            break;
        }
    }
    assert_eq!(watch.delivery(), BodyDelivery::Passed);
}

#[test]
fn a_body_after_another_callback_is_no_proof() {
    let mut watch = BodyWatch::default();
    for id in 0..20 {
        let now = u64::from(id) * 10_000;
        hold(&mut watch, id, now);
        assert_eq!(tick(&mut watch, now + 400, 500), [id]);
        hold(&mut watch, id + 100, now + 401);
        assert!(!watch.on_body(id));
        watch.on_end(id + 100);
    }
    assert_eq!(watch.delivery(), BodyDelivery::Unknown);
}

#[test]
fn bytes_received_before_the_headers_are_no_sign() {
    let mut watch = BodyWatch::default();
    assert!(watch.hold(1, 0, 500, ()));
    assert!(tick(&mut watch, 500, 500).is_empty());
    assert_eq!(tick(&mut watch, 510, 501), [1]);
}

#[test]
fn a_request_that_ends_is_forgotten() {
    let mut watch = BodyWatch::default();
    hold(&mut watch, 1, 0);
    watch.on_end(1);
    assert_eq!(watch.period(), None);
    assert!(tick(&mut watch, 5_000, 500).is_empty());
}

#[test]
fn held_requests_are_bounded() {
    let mut watch = BodyWatch::default();
    for id in 0..HELD_MAX {
        hold(&mut watch, u32::try_from(id).unwrap(), 0);
    }
    assert!(!watch.hold(u32::MAX, 0, 0, ()));
    assert_eq!(watch.delivery(), BodyDelivery::Unknown);
    watch.on_unwatched_body();
    assert_eq!(watch.delivery(), BodyDelivery::Passed);
    assert_eq!(watch.period(), None);
    assert!(watch.on_body(0), "a watched request is held as before");
}

#[test]
fn a_clock_that_is_set_back_holds_no_request() {
    let mut watch = BodyWatch::default();
    hold(&mut watch, 1, 3_600_000);
    assert_eq!(tick(&mut watch, 1, 500), [1]);
}
