//! Why the API server is not followed, in words that say what to do.

use std::collections::BTreeSet;

use kube::Error as ClientError;
use kube::runtime::watcher;

/// Documentation that messages point at.
const DOCUMENT: &str = "docs/kubernetes.md";

/// A reason why a watch has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The kind, which stays the same over retries while the text may differ in details.
    pub(super) kind: ProblemKind,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ProblemKind {
    /// No API server is configured.
    NoServer,
    Unreachable,
    Unauthorized,
    Forbidden,
    UnknownResource,
    /// The API server refuses the request for another reason.
    Refused,
    /// The API server is followed, and its lists give no replicas, or not all.
    Content,
}

/// Failures of one kind in a row before it is logged. A server that starts refuses requests for a moment, for reasons of
/// its own.
const FAILURES_MIN: u32 = 3;

/// Decides which problems are logged: each kind once until it is over, and only one that retries meet again.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    last: Option<ProblemKind>,
    /// Failures of the last kind in a row.
    failures: u32,
    logged: BTreeSet<ProblemKind>,
}

impl ProblemLog {
    /// Notes a problem; returns whether to log it.
    pub(super) fn note(&mut self, problem: &Problem) -> bool {
        if self.last.replace(problem.kind) != Some(problem.kind) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        // A list is an answer, which no retry repeats.
        let is_lasting = self.failures >= FAILURES_MIN || problem.kind == ProblemKind::Content;
        is_lasting && self.logged.insert(problem.kind)
    }

    /// Notes that there is no problem; returns whether one was logged.
    pub(super) fn is_over(&mut self) -> bool {
        self.last = None;
        !std::mem::take(&mut self.logged).is_empty()
    }
}

/// The objects that a watch asks for.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// Plural as a Role writes it, such as `pods`.
    pub(super) plural: String,
    /// API group as a Role writes it; empty for the core group.
    pub(super) group: String,
    pub(super) namespace: String,
    /// Address of the API server.
    pub(super) server: String,
}

impl Problem {
    /// The problem behind an error of a watch; `None` for a watch that ends and begins again.
    pub(super) fn of(error: &watcher::Error, subject: &Subject) -> Option<Self> {
        match error {
            watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
                Self::of_request(error, subject)
            }
            // The next list shows whether the server is there.
            watcher::Error::WatchFailed(_) | watcher::Error::NoResourceVersion => None,
            watcher::Error::WatchError(status) => {
                Self::of_status(status.code, &status.message, subject)
            }
        }
    }

    /// The problem of a service that knows no API server.
    pub(super) fn no_server(error: &dyn std::error::Error) -> Self {
        let text = format!(
            "no Kubernetes API server is configured: run in a pod with a ServiceAccount, or set KUBECONFIG ({})",
            chain(error)
        );
        Self {
            kind: ProblemKind::NoServer,
            text,
        }
    }

    /// The problem behind an error of a request; `None` for a list that is too old.
    pub(super) fn of_request(error: &ClientError, subject: &Subject) -> Option<Self> {
        if let ClientError::Api(status) = error {
            return Self::of_status(status.code, &status.message, subject);
        }
        let (kind, what) = match error {
            ClientError::SerdeError(_)
            | ClientError::HttpError(_)
            | ClientError::BuildRequest(_) => (
                ProblemKind::Refused,
                "does not answer as a Kubernetes API server",
            ),
            ClientError::Auth(_) => (ProblemKind::Unauthorized, "gets no credentials"),
            _ => (ProblemKind::Unreachable, "cannot be reached"),
        };
        let text = format!(
            "the API server at {} {what} ({})",
            subject.server,
            chain(error)
        );
        Some(Self { kind, text })
    }

    fn of_status(code: u16, message: &str, subject: &Subject) -> Option<Self> {
        let Subject {
            plural,
            group,
            namespace,
            server,
        } = subject;
        let (kind, text) = match code {
            // The watch is too old; a new list follows.
            410 => return None,
            401 => (
                ProblemKind::Unauthorized,
                format!(
                    "the API server at {server} rejects the credentials of this service: check the token of its \
                     ServiceAccount, or KUBECONFIG ({message})"
                ),
            ),
            403 => (
                ProblemKind::Forbidden,
                format!(
                    "this service may not read {plural} in namespace `{namespace}`: bind a Role with the verbs get, \
                     list and watch on `{plural}` of API group `{group}` to its ServiceAccount, see {DOCUMENT} ({message})"
                ),
            ),
            404 => (
                ProblemKind::UnknownResource,
                format!(
                    "the API server at {server} does not know {plural} of API group `{group}`, version v1: install \
                     the custom resource definitions of the Gateway API Inference Extension ({message})"
                ),
            ),
            _ => (
                ProblemKind::Refused,
                format!(
                    "the API server at {server} refuses the list of {plural} with status {code}: {message}"
                ),
            ),
        };
        Some(Self { kind, text })
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn problem(code: u16, message: &str) -> Option<Problem> {
        let subject = Subject {
            plural: "inferencepools".into(),
            group: "inference.networking.k8s.io".into(),
            namespace: "prod".into(),
            server: "https://10.96.0.1/".into(),
        };
        let status = Status {
            code,
            message: message.into(),
            ..Status::default()
        };
        let error = watcher::Error::InitialListFailed(ClientError::Api(Box::new(status)));
        Problem::of(&error, &subject)
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        for (code, kind, advice) in [
            (401, ProblemKind::Unauthorized, "check the token"),
            (
                403,
                ProblemKind::Forbidden,
                "bind a Role with the verbs get, list and watch on `inferencepools`",
            ),
            (
                404,
                ProblemKind::UnknownResource,
                "install the custom resource definitions",
            ),
            (400, ProblemKind::Refused, "status 400: unable to parse"),
        ] {
            let problem = problem(code, "unable to parse").unwrap();
            assert_eq!(problem.kind, kind);
            assert!(problem.text.contains(advice), "{}", problem.text);
        }
    }

    #[test]
    fn a_problem_is_logged_once_when_retries_meet_it_again() {
        let (away, forbidden) = (problem(500, "").unwrap(), problem(403, "").unwrap());
        let mut log = ProblemLog::default();
        for (problem, logged) in [
            (&away, [false, false, true, false]),
            (&forbidden, [false, false, true, false]),
            (&away, [false, false, false, false]),
        ] {
            assert_eq!([(); 4].map(|()| log.note(problem)), logged);
        }
        assert!(log.is_over() && !log.is_over());
        let content = Problem {
            kind: ProblemKind::Content,
            text: String::new(),
        };
        assert!(log.note(&content) && !log.note(&content));
    }

    #[test]
    fn an_old_watch_is_no_problem() {
        assert_eq!(problem(410, "too old resource version"), None);
    }
}
