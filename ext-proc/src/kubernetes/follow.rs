//! Follows one source: runs the watches that its [`SourceView`] wants, and reports the replicas or siblings.
//!
//! An InferencePool needs two watches: the pool itself, and the pods that it selects. The second starts again when the
//! selector changes; a message of an earlier watch is dropped.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use super::client::{Connection, KubernetesClient};
use super::list::ListEvent;
use super::objects::{EndpointSlice, InferencePool, Pod};
use super::pods::PodState;
use super::problem::{Problem, ProblemKind, ProblemLog};
use super::slices::SliceState;
use super::view::{PodQuery, SourceView, ViewEvent};
use super::watch::{EVENTS_MAX, WatchQuery, watch};
use super::{Follower, SourceReport};
use crate::config::{KubernetesSource, KubernetesTarget};
use crate::tasks::{AbortOnDrop, vital};

/// The label that names the Service of an EndpointSlice.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Follows `source`. Logs call what it shows by `noun`, and name the `pool` that it belongs to.
pub(crate) fn follow(
    client: &KubernetesClient,
    source: KubernetesSource,
    noun: &'static str,
    pool: Option<&str>,
) -> Follower {
    let (client, pool) = (client.clone(), pool.map(str::to_owned));
    Follower::spawn(|reports| async move {
        let mut reporter = Reporter::new(reports, noun, pool);
        let connection = client.connect(|problem| reporter.set_problem(Some(problem), true));
        let connection = connection.await;
        Follow::new(connection, source, reporter).run().await;
    })
}

/// The watch that a message comes from. The pods of each selector are watched under another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchId {
    Source,
    Pods(u64),
}

/// An event of a watch, or the reason why there is none.
struct Message {
    watch: WatchId,
    news: Result<ViewEvent, Problem>,
}

/// The watches of a source and what they have shown.
struct Follow {
    connection: Connection,
    namespace: String,
    view: SourceView,
    reporter: Reporter,
    sender: mpsc::Sender<Message>,
    receiver: mpsc::Receiver<Message>,
    /// Watch of the pool or the Service; none for a plain selector.
    source: Option<AbortOnDrop>,
    /// Watch of the pods with its selector.
    pods: Option<(String, AbortOnDrop)>,
    /// Number of the last watch of pods.
    pods_watch: u64,
    source_problem: Option<Problem>,
    pods_problem: Option<Problem>,
}

impl Follow {
    fn new(connection: Connection, source: KubernetesSource, reporter: Reporter) -> Self {
        let (sender, receiver) = mpsc::channel(EVENTS_MAX);
        let mut this = Self {
            namespace: connection.namespace(source.namespace.as_deref()),
            connection,
            view: SourceView::new(source.target.clone()),
            reporter,
            sender,
            receiver,
            source: None,
            pods: None,
            pods_watch: 0,
            source_problem: None,
            pods_problem: None,
        };
        this.watch_source(source.target);
        this
    }

    async fn run(mut self) {
        loop {
            self.watch_pods();
            let Some(message) = self.receiver.recv().await else {
                return;
            };
            let mut has_failed = self.handle(message);
            // A list of thousands of pods is one change.
            while let Ok(message) = self.receiver.try_recv() {
                has_failed |= self.handle(message);
            }
            self.report(has_failed);
        }
    }

    /// Applies a message; returns whether it reports a failure.
    fn handle(&mut self, message: Message) -> bool {
        let problem = match message.watch {
            WatchId::Source => &mut self.source_problem,
            WatchId::Pods(number) if number == self.pods_watch => &mut self.pods_problem,
            WatchId::Pods(_) => return false,
        };
        let has_failed = message.news.is_err();
        match message.news {
            Err(news) => *problem = Some(news),
            Ok(event) => {
                if !is_start(&event) {
                    *problem = None;
                }
                self.view.handle(event);
            }
        }
        has_failed
    }

    fn report(&mut self, has_failed: bool) {
        let content = |text| Problem {
            kind: ProblemKind::Content,
            text,
        };
        let problem = self
            .source_problem
            .as_ref()
            .or(self.pods_problem.as_ref())
            .cloned();
        let problem = problem.or_else(|| self.view.problem(&self.namespace).map(content));
        self.reporter.set_problem(problem, has_failed);
        if let Some(replicas) = self.view.replicas() {
            self.reporter.set_replicas(replicas);
        }
    }

    /// Starts the watch of the pool or the Service.
    fn watch_source(&mut self, target: KubernetesTarget) {
        let query = WatchQuery {
            namespace: self.namespace.clone(),
            ..WatchQuery::default()
        };
        let (connection, sender) = (self.connection.clone(), self.sender.clone());
        let task = match target {
            KubernetesTarget::Pods { .. } => return,
            KubernetesTarget::InferencePool(name) => {
                let query = WatchQuery {
                    name: Some(name),
                    ..query
                };
                let read = |pool: InferencePool| PodQuery::of(&pool);
                let message = message(WatchId::Source, ViewEvent::Pool);
                tokio::spawn(vital(
                    "Kubernetes watch",
                    watch(connection, query, read, sender, message),
                ))
            }
            KubernetesTarget::Service { name, .. } => {
                let query = WatchQuery {
                    labels: Some(service_label(&name)),
                    ..query
                };
                let read = |slice: EndpointSlice| SliceState::of(slice);
                let message = message(WatchId::Source, ViewEvent::Slices);
                tokio::spawn(vital(
                    "Kubernetes watch",
                    watch(connection, query, read, sender, message),
                ))
            }
        };
        self.source = Some(AbortOnDrop(task.abort_handle()));
    }

    /// Watches the pods that the view wants, and no others.
    fn watch_pods(&mut self) {
        let wanted = self.view.selector();
        if wanted == self.pods.as_ref().map(|(selector, _)| selector.as_str()) {
            return;
        }
        let wanted = wanted.map(str::to_owned);
        self.pods_problem = None;
        self.pods_watch += 1;
        self.pods = wanted.map(|selector| {
            let query = WatchQuery {
                namespace: self.namespace.clone(),
                labels: Some(selector.clone()),
                name: None,
            };
            let read = |pod: Pod| PodState::of(&pod);
            let message = message(WatchId::Pods(self.pods_watch), ViewEvent::Pods);
            let (connection, sender) = (self.connection.clone(), self.sender.clone());
            let task = tokio::spawn(vital(
                "Kubernetes watch",
                watch(connection, query, read, sender, message),
            ));
            (selector, AbortOnDrop(task.abort_handle()))
        });
    }
}

/// The label selector of the EndpointSlices of a Service.
fn service_label(service: &str) -> String {
    format!("{SERVICE_LABEL}={service}")
}

fn message<T>(
    watch: WatchId,
    event: fn(ListEvent<T>) -> ViewEvent,
) -> impl Fn(Result<ListEvent<T>, Problem>) -> Message {
    move |news| Message {
        watch,
        news: news.map(event),
    }
}

/// Whether the event says only that a list is about to arrive.
fn is_start(event: &ViewEvent) -> bool {
    matches!(
        event,
        ViewEvent::Pool(ListEvent::Start)
            | ViewEvent::Pods(ListEvent::Start)
            | ViewEvent::Slices(ListEvent::Start)
    )
}

/// Publishes what is known of a source, and logs its problems.
struct Reporter {
    reports: watch::Sender<SourceReport>,
    /// Noun for the objects of the source, such as "replicas".
    noun: &'static str,
    pool: Option<String>,
    log: ProblemLog,
}

impl Reporter {
    fn new(reports: watch::Sender<SourceReport>, noun: &'static str, pool: Option<String>) -> Self {
        Self {
            reports,
            noun,
            pool,
            log: ProblemLog::default(),
        }
    }

    /// Sets the problem. `has_failed` says whether a request has just met it.
    fn set_problem(&mut self, problem: Option<Problem>, has_failed: bool) {
        let noun = self.noun;
        let is_news = |problem: &Problem| has_failed || problem.kind == ProblemKind::Content;
        match &problem {
            Some(problem) if is_news(problem) && self.log.note(problem) => tracing::warn!(
                pool = self.pool,
                problem = problem.text,
                "Kubernetes does not show the {noun}; the known ones stay"
            ),
            None if self.log.is_over() => {
                tracing::info!(pool = self.pool, "Kubernetes shows the {noun} again");
            }
            _ => {}
        }
        self.reports.send_if_modified(|report| {
            let text = problem.as_ref().map(|problem| problem.text.as_str());
            let is_new = report.problem.as_deref() != text;
            if is_new {
                report.problem = text.map(Into::into);
            }
            is_new
        });
    }

    fn set_replicas(&self, replicas: super::DiscoveredReplicas) {
        self.reports.send_if_modified(|report| {
            let is_new = report.replicas.as_deref() != Some(&replicas);
            if is_new {
                report.replicas = Some(Arc::new(replicas));
            }
            is_new
        });
    }
}
