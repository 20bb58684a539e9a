//! Answers to lines, and what a worker does about each.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::IgnoredAny;

use crate::limits::Limits;
use crate::output::{MissingResponse, StoredResponse};
use crate::pace::Feedback;

/// `Retry-After` of a 429 without one, in milliseconds.
const RETRY_AFTER_MS: i64 = 5_000;
/// Longest `Retry-After` that is followed, in milliseconds.
const RETRY_AFTER_MS_MAX: i64 = 600_000;
/// Pause before the second attempt, in milliseconds; it doubles with each failure.
const BACKOFF_MS: i64 = 1_000;
/// Longest pause between attempts, in milliseconds.
const BACKOFF_MS_MAX: i64 = 300_000;

/// The answer to a line, or the lack of one.
#[derive(Debug)]
pub enum Answer {
    /// A whole response.
    Response {
        /// The response.
        response: StoredResponse,
        /// `Retry-After`, if it was readable.
        retry_after: Option<Duration>,
    },
    /// The response is too large.
    TooLarge,
    /// The gateway could not be reached: the request was not sent.
    Unreachable(String),
    /// The connection broke, or no response came in time: the request may have been served.
    Broken(String),
    /// The deadline passed.
    DeadlinePassed,
}

/// Decision of a worker about the answer to a line.
#[derive(Debug)]
pub enum Disposition {
    /// The response is the result.
    Success(StoredResponse),
    /// The response is the result, and an error.
    Error(StoredResponse),
    /// The line ends without a response.
    Missing(MissingResponse),
    /// Another attempt.
    Retry {
        /// Time until the attempt, in milliseconds, before jitter.
        after_ms: i64,
        /// Failures that are the line's own, so far.
        failures: u32,
        /// Failures of the gateway, so far.
        outages: u32,
    },
}

impl Answer {
    /// The answer's news about the gateway; `None` if it has none.
    #[must_use]
    pub fn feedback(&self) -> Option<Feedback> {
        match self {
            Self::Response { response, .. } if response.status == 429 => Some(Feedback::Refused {
                retry_after_ms: self.retry_after_ms(),
            }),
            Self::Response { response, .. } if is_of_gateway(response) => Some(Feedback::Failed),
            Self::Response { .. } | Self::TooLarge => Some(Feedback::Served),
            Self::Unreachable(_) | Self::Broken(_) => Some(Feedback::Failed),
            Self::DeadlinePassed => None,
        }
    }

    /// Decides about a line with its failures so far. `has_served` says whether the gateway has served other requests
    /// lately: then a failure is the line's own. While it serves none, the line is not to blame, and has many attempts
    /// more: a gateway that is down for an hour costs no line.
    #[must_use]
    pub fn dispose(
        self,
        failures: u32,
        outages: u32,
        has_served: bool,
        limits: &Limits,
    ) -> Disposition {
        let cause = match &self {
            Self::Response { response, .. } if response.status == 429 => {
                let after_ms = self.retry_after_ms();
                return Disposition::Retry {
                    after_ms,
                    failures,
                    outages,
                };
            }
            Self::Response { response, .. } if is_retried(response) => None,
            Self::Response { .. } => {
                return match self {
                    Self::Response { response, .. } if response.is_success() => {
                        Disposition::Success(response)
                    }
                    Self::Response { response, .. } => Disposition::Error(response),
                    _ => Disposition::Missing(MissingResponse::Expired),
                };
            }
            Self::TooLarge => {
                return Disposition::Missing(MissingResponse::TooLarge(limits.response_bytes_max));
            }
            Self::DeadlinePassed => {
                return Disposition::Retry {
                    after_ms: 0,
                    failures,
                    outages,
                };
            }
            Self::Unreachable(cause) | Self::Broken(cause) => Some(cause.clone()),
        };
        let is_own = match &self {
            Self::Response { response, .. } if !is_of_gateway(response) => true,
            Self::Unreachable(_) => false,
            _ => has_served && !self.rejects_key(),
        };
        let failures = failures.saturating_add(u32::from(is_own));
        let outages = outages.saturating_add(u32::from(!is_own));
        if failures < limits.failures_max && outages < limits.outages_max {
            let doublings = failures.saturating_add(outages).saturating_sub(1).min(16);
            return Disposition::Retry {
                after_ms: (BACKOFF_MS << doublings).min(BACKOFF_MS_MAX),
                failures,
                outages,
            };
        }
        match (self, cause) {
            (Self::Response { response, .. }, _) => Disposition::Error(response),
            (_, cause) => {
                Disposition::Missing(MissingResponse::Unreachable(cause.unwrap_or_default()))
            }
        }
    }

    /// Whether the gateway does not accept the worker's key, which no line can help.
    #[must_use]
    pub fn rejects_key(&self) -> bool {
        matches!(self, Self::Response { response, .. }
            if matches!(response.status, 401 | 403) && is_of_gateway(response))
    }

    fn retry_after_ms(&self) -> i64 {
        let Self::Response {
            retry_after: Some(after),
            ..
        } = self
        else {
            return RETRY_AFTER_MS;
        };
        i64::try_from(after.as_millis())
            .unwrap_or(i64::MAX)
            .clamp(0, RETRY_AFTER_MS_MAX)
    }
}

/// Whether a later attempt may end otherwise. An engine's 403 is about the prompt, and final.
fn is_retried(response: &StoredResponse) -> bool {
    is_of_gateway(response) || response.status == 500
}

/// Whether a response may be about the gateway, or about the worker's key (401, 403), instead of about the line. Engines explain
/// their 403 and 500 by a JSON object; Envoy and proxies write a plain text or nothing.
fn is_of_gateway(response: &StoredResponse) -> bool {
    match response.status {
        403 | 500 => serde_json::from_slice::<JsonObject>(&response.body).is_err(),
        401 | 408 | 425 | 502..=599 => true,
        _ => false,
    }
}

/// Any JSON object.
type JsonObject = BTreeMap<String, IgnoredAny>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, retry_after: Option<u64>) -> Answer {
        Answer::Response {
            response: StoredResponse {
                status,
                request_id: None,
                body: Vec::new(),
            },
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn dispose(answer: Answer, failures: u32, outages: u32, has_served: bool) -> Disposition {
        answer.dispose(failures, outages, has_served, &Limits::default())
    }

    /// An answer with a body.
    fn with_body(status: u16, body: &[u8]) -> Answer {
        let mut answer = answer(status, None);
        if let Answer::Response { response, .. } = &mut answer {
            response.body = body.to_vec();
        }
        answer
    }

    #[test]
    fn an_answer_that_is_no_json_is_no_success() {
        for body in [
            "",
            "<html>",
            "{\"a\":",
            "{} {}",
            "data: {}\n\n",
            "{'a':1}",
            "{\"a\":NaN}",
        ] {
            let disposition = dispose(with_body(200, body.as_bytes()), 0, 0, true);
            assert!(matches!(disposition, Disposition::Error(_)), "{body}");
        }
        for body in ["{}", " {\n}\n", "[]"] {
            let disposition = dispose(with_body(200, body.as_bytes()), 0, 0, true);
            assert!(matches!(disposition, Disposition::Success(_)), "{body}");
        }
    }

    #[test]
    fn success_and_errors_of_the_request_are_final() {
        assert!(matches!(
            dispose(with_body(200, b"{}"), 3, 3, true),
            Disposition::Success(_)
        ));
        for status in [400, 404, 413, 422, 501] {
            let disposition = dispose(answer(status, None), 0, 0, true);
            assert!(matches!(disposition, Disposition::Error(_)), "{status}");
            assert_eq!(answer(status, None).feedback(), Some(Feedback::Served));
        }
        let missing = dispose(Answer::TooLarge, 0, 0, true);
        assert!(matches!(
            missing,
            Disposition::Missing(MissingResponse::TooLarge(_))
        ));
    }

    #[test]
    fn a_refusal_follows_retry_after_and_is_no_failure() {
        for (given, after) in [
            (Some(7), 7_000),
            (None, RETRY_AFTER_MS),
            (Some(u64::MAX / 2_000), RETRY_AFTER_MS_MAX),
        ] {
            let Disposition::Retry {
                after_ms,
                failures,
                outages,
            } = dispose(answer(429, given), 2, 1, true)
            else {
                panic!("a 429 is retried");
            };
            assert_eq!((after_ms, failures, outages), (after, 2, 1));
        }
    }

    #[test]
    fn a_failure_is_the_lines_own_only_while_the_gateway_serves_others() {
        let counted = |answer, has_served| match dispose(answer, 1, 1, has_served) {
            Disposition::Retry {
                failures, outages, ..
            } => (failures, outages),
            other => panic!("{other:?}"),
        };
        assert_eq!(counted(answer(500, None), true), (2, 1));
        assert_eq!(counted(answer(500, None), false), (1, 2));
        assert_eq!(counted(Answer::Broken("reset".into()), true), (2, 1));
        assert_eq!(counted(Answer::Unreachable("refused".into()), true), (1, 2));
        assert_eq!(counted(answer(401, None), true), (1, 2));
    }

    #[test]
    fn errors_that_an_engine_explains_are_the_lines_own() {
        let explained = |status| with_body(status, br#"{"error":{"message":"no","code":1}}"#);
        for status in [400, 403, 500] {
            assert_eq!(
                explained(status).feedback(),
                Some(Feedback::Served),
                "{status}"
            );
            assert!(!explained(status).rejects_key());
        }
        let denied = dispose(explained(403), 0, 0, false);
        assert!(matches!(denied, Disposition::Error(_)), "{denied:?}");
        let Disposition::Retry {
            failures, outages, ..
        } = dispose(explained(500), 1, 1, false)
        else {
            panic!("a 500 is repeated");
        };
        assert_eq!((failures, outages), (2, 1));
        for status in [403, 500] {
            assert_eq!(
                answer(status, None).feedback(),
                Some(Feedback::Failed),
                "{status}"
            );
        }
        assert_eq!(explained(503).feedback(), Some(Feedback::Failed));
    }

    #[test]
    fn failures_end_with_the_last_answer() {
        let last = Limits::default().failures_max - 1;
        assert!(matches!(
            dispose(answer(503, None), last, 0, true),
            Disposition::Error(_)
        ));
        let missing = dispose(Answer::Broken("reset".into()), last, 0, true);
        assert!(matches!(
            missing,
            Disposition::Missing(MissingResponse::Unreachable(_))
        ));
    }

    proptest! {
        #[test]
        fn a_pause_is_bounded(failures in any::<u32>(), outages in any::<u32>(), status in 100_u16..700, has_served in any::<bool>()) {
            if let Disposition::Retry { after_ms, .. } = dispose(answer(status, None), failures, outages, has_served) {
                prop_assert!((0..=RETRY_AFTER_MS_MAX).contains(&after_ms));
            }
        }
    }
}
