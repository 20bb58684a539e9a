//! Whether a request ended as it should: by its answer, or by something that a fault explains.

use std::time::Duration;

use super::fault_log::FaultLog;
use super::fault_plan::{FaultKind, Target};
use super::record::{RequestEnd, RequestRecord};

/// Reasons that the service, an engine or Envoy gives, and the time after a fault for which the fault explains them.
const REASONS: [(&str, Duration); 11] = [
    // The service.
    ("no_replica", AFTERMATH),
    ("no_healthy_replica", AFTERMATH),
    ("waited_too_long", AFTERMATH),
    ("queue_full", AFTERMATH),
    ("shutting_down", AFTERMATH),
    ("quarantined", QUARANTINE),
    ("replica_hung", AFTERMATH),
    // An engine: an injected error.
    ("engine: 500", MOMENT),
    ("engine: 503", MOMENT),
    // Envoy.
    (RESET, MOMENT),
    ("no healthy upstream", AFTERMATH),
];

/// Envoy's text for a request whose replica, and that of its retry, broke before the first byte.
const RESET: &str = "upstream connect error or disconnect/reset before headers";
/// Time after a fault in which replicas are still judged by it, or requests of that time still run.
const AFTERMATH: Duration = Duration::from_secs(20);
/// Time for which the service keeps a prompt from replicas.
const QUARANTINE: Duration = Duration::from_secs(150);
/// Time between the end of a fault and its entry in the log, or until Envoy knows of it.
const MOMENT: Duration = Duration::from_secs(2);

/// How a request ended, in a few words; requests with the same words are counted together.
pub(super) fn label(record: &RequestRecord) -> String {
    match &record.ending {
        RequestEnd::Answered(_) => "answered".into(),
        RequestEnd::Aborted => "client went away".into(),
        RequestEnd::Unanswered => "nothing came".into(),
        RequestEnd::Wrong(what) => what.clone(),
        RequestEnd::Refused { status, reason } => match reason.as_str() {
            "" => status.to_string(),
            reason => format!(
                "{status} {}",
                known(reason).map_or(reason, |(name, _)| name)
            ),
        },
        RequestEnd::Broken {
            after_first_byte: true,
            ..
        } => "connection broke after the first byte".into(),
        RequestEnd::Broken { error, .. } => {
            format!("connection broke before the first byte: {error}")
        }
    }
}

/// Says why a request should not have ended as it did; `None` when it may.
pub(super) fn objection(record: &RequestRecord, faults: &FaultLog) -> Option<String> {
    let is_explained = |after: Duration, is_cause: &dyn Fn(FaultKind, Target) -> bool| {
        let from = record.sent.saturating_sub(after);
        let mut active = faults.active(from, record.ended);
        active.any(|fault| is_cause(fault.kind, fault.target))
    };
    let is_own_envoy =
        |kind, target| kind == FaultKind::EnvoyKilled && target == Target::Envoy(record.envoy);
    let holds = match &record.ending {
        RequestEnd::Aborted => true,
        RequestEnd::Unanswered | RequestEnd::Wrong(_) => false,
        RequestEnd::Answered(_) => matches!(record.kind.expected_status(), 200),
        RequestEnd::Refused { status, .. } if *status == record.kind.expected_status() => true,
        RequestEnd::Refused { reason, .. } => known(reason)
            .is_some_and(|(name, after)| is_explained(after, &|kind, _| may_cause(kind, name))),
        RequestEnd::Broken { .. } if record.kind.may_be_closed() => true,
        RequestEnd::Broken {
            after_first_byte, ..
        } => is_explained(MOMENT, &|kind: FaultKind, target| {
            is_own_envoy(kind, target) || (*after_first_byte && kind.breaks_responses())
        }),
    };
    (!holds).then(|| {
        format!(
            "{} ({}) by Envoy {} ended after {:.1} s: {}",
            record.id,
            record.kind.name(),
            record.envoy,
            record.ended.saturating_sub(record.sent).as_secs_f64(),
            label(record)
        )
    })
}

/// Whether a fault of a kind may cause a reason.
fn may_cause(kind: FaultKind, reason: &str) -> bool {
    match reason {
        "engine: 500" => kind == FaultKind::ReplicaFailing,
        "engine: 503" => kind == FaultKind::ReplicaBusy,
        _ => true,
    }
}

/// The known reason with which a text begins.
fn known(reason: &str) -> Option<(&'static str, Duration)> {
    let reason = reason.strip_prefix("in the stream: ").unwrap_or(reason);
    REASONS
        .into_iter()
        .find(|(name, _)| reason.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::super::kind::RequestKind;
    use super::*;

    fn record(kind: RequestKind, ending: RequestEnd) -> RequestRecord {
        RequestRecord {
            id: "a".into(),
            kind,
            envoy: 1,
            sent: Duration::from_secs(100),
            ended: Duration::from_secs(101),
            is_follow_up: false,
            ending,
        }
    }

    fn is_accepted(kind: RequestKind, ending: &RequestEnd, faults: &FaultLog) -> bool {
        objection(&record(kind, ending.clone()), faults).is_none()
    }

    fn one(kind: FaultKind, target: Target, seconds: u64) -> FaultLog {
        let mut log = FaultLog::default();
        log.begin(kind, target, Duration::from_secs(seconds));
        log.heal(target, Duration::from_secs(seconds + 1));
        log
    }

    fn refused(status: u16, reason: &str) -> RequestEnd {
        RequestEnd::Refused {
            status,
            reason: reason.into(),
        }
    }

    #[test]
    fn a_reason_needs_a_fault_that_is_not_long_past() {
        let full = refused(503, "queue_full");
        let fault = |seconds| one(FaultKind::ReplicaSlow, Target::Replica(0), seconds);
        assert!(is_accepted(RequestKind::Whole, &full, &fault(95)));
        assert!(!is_accepted(RequestKind::Whole, &full, &fault(50)));
        assert!(!is_accepted(
            RequestKind::Whole,
            &full,
            &FaultLog::default()
        ));
        let unknown = refused(503, "surprise");
        assert!(!is_accepted(RequestKind::Whole, &unknown, &fault(100)));
    }

    #[test]
    fn a_broken_connection_needs_the_end_of_its_envoy_or_of_a_replica_after_the_first_byte() {
        let broken = |after_first_byte| RequestEnd::Broken {
            after_first_byte,
            error: String::new(),
        };
        let envoy = |index| one(FaultKind::EnvoyKilled, Target::Envoy(index), 100);
        let replica = one(FaultKind::ReplicaKilled, Target::Replica(0), 100);
        let slow = one(FaultKind::ReplicaSlow, Target::Replica(0), 100);
        assert!(is_accepted(
            RequestKind::Streamed,
            &broken(false),
            &envoy(1)
        ));
        assert!(!is_accepted(
            RequestKind::Streamed,
            &broken(false),
            &envoy(0)
        ));
        assert!(is_accepted(RequestKind::Streamed, &broken(true), &replica));
        assert!(!is_accepted(
            RequestKind::Streamed,
            &broken(false),
            &replica
        ));
        assert!(!is_accepted(RequestKind::Streamed, &broken(true), &slow));
    }

    #[test]
    fn requests_that_are_wrong_are_refused_without_a_fault() {
        let none = FaultLog::default();
        assert!(is_accepted(
            RequestKind::NotJson,
            &refused(400, "engine: 400"),
            &none
        ));
        assert!(is_accepted(
            RequestKind::GiantHeader,
            &refused(431, ""),
            &none
        ));
        assert!(!is_accepted(
            RequestKind::Whole,
            &refused(400, "engine: 400"),
            &none
        ));
        assert!(!is_accepted(
            RequestKind::Whole,
            &RequestEnd::Unanswered,
            &none
        ));
    }
}
