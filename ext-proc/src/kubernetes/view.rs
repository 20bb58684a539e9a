//! The replicas of a pool as the watches of its source show them.
//!
//! Events go in, the wanted watch of pods and the replicas come out. Three rules keep the replicas steady. A list counts
//! when it is whole. An empty list shows nothing, as a name without addresses does: the known replicas stay, and an engine that is gone
//! fails its probes. And a changed selector keeps the old pods, at their old ports, until the new list is whole.

use super::DiscoveredReplicas;
use super::list::{List, ListEvent, OBJECTS_MAX};
use super::objects::InferencePool;
use super::pods::PodState;
use super::slices::{self, SliceState};
use crate::config::KubernetesTarget;

/// A change of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ViewEvent {
    Pool(ListEvent<PodQuery>),
    Pods(ListEvent<PodState>),
    Slices(ListEvent<SliceState>),
}

/// The pods of a pool, and their ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodQuery {
    /// Label selector as the API server reads it.
    pub(super) selector: String,
    pub(super) ports: Vec<u16>,
}

impl PodQuery {
    pub(super) fn of(pool: &InferencePool) -> Self {
        let labels = pool.spec.selector.match_labels.iter();
        let labels = labels.map(|(name, value)| format!("{name}={value}"));
        let ports = pool.spec.target_ports.iter();
        Self {
            selector: Vec::from_iter(labels).join(","),
            ports: ports.map(|port| port.number).collect(),
        }
    }
}

/// State of a source, as its watches have shown it.
#[derive(Debug)]
pub(super) struct SourceView {
    target: KubernetesTarget,
    pool: List<PodQuery>,
    pods: List<PodState>,
    /// The pods that are wanted; `None` while the pool does not exist.
    query: Option<PodQuery>,
    /// The query of the pods in `pods`.
    listed: Option<PodQuery>,
    slices: List<SliceState>,
    /// Whether the source had replicas to report before.
    has_synced: bool,
}

impl SourceView {
    pub(super) fn new(target: KubernetesTarget) -> Self {
        let query = match &target {
            KubernetesTarget::Pods { selector, ports } => Some(PodQuery {
                selector: selector.clone(),
                ports: ports.clone(),
            }),
            KubernetesTarget::InferencePool(_) | KubernetesTarget::Service { .. } => None,
        };
        Self {
            target,
            pool: List::default(),
            pods: List::default(),
            query,
            listed: None,
            slices: List::default(),
            has_synced: false,
        }
    }

    /// Applies a change.
    pub(super) fn handle(&mut self, event: ViewEvent) {
        match event {
            ViewEvent::Pool(event) => {
                self.pool.handle(event);
                let query = self.pool.objects().next().cloned();
                self.on_query(query);
            }
            ViewEvent::Pods(event) => {
                if self.pods.handle(event) {
                    self.listed.clone_from(&self.query);
                }
            }
            ViewEvent::Slices(event) => {
                self.slices.handle(event);
            }
        }
        self.has_synced |= self.listed.is_some() || self.slices.objects().next().is_some();
    }

    fn on_query(&mut self, query: Option<PodQuery>) {
        // An empty selector would select every pod of the namespace.
        let query = query.filter(|query| !query.selector.is_empty());
        match (&query, &mut self.listed) {
            (Some(query), Some(listed)) if listed.selector == query.selector => {
                listed.ports.clone_from(&query.ports);
            }
            (None, _) if self.pool.is_whole() => {
                self.listed = None;
                self.pods = List::default();
            }
            _ => {}
        }
        self.query = query;
    }

    /// The label selector of the pods to watch; `None` while there are none to watch.
    pub(super) fn selector(&self) -> Option<&str> {
        self.query.as_ref().map(|query| query.selector.as_str())
    }

    /// The replicas; `None` if nothing newer is known than the last reported ones.
    pub(super) fn replicas(&self) -> Option<DiscoveredReplicas> {
        match &self.target {
            KubernetesTarget::Service { port, .. } => {
                let (replicas, problem) = slices::replicas(self.slices.objects(), port.as_ref());
                // A port that no slice has says nothing about the replicas.
                let is_known = problem.is_none() || replicas.iter().next().is_some();
                let has_slices = self.slices.objects().next().is_some();
                (self.slices.is_whole() && has_slices && is_known).then_some(replicas)
            }
            KubernetesTarget::InferencePool(_) if self.is_pool_missing() => {
                self.has_synced.then(DiscoveredReplicas::default)
            }
            KubernetesTarget::InferencePool(_) | KubernetesTarget::Pods { .. } => {
                let listed = self.listed.as_ref()?;
                let mut replicas = DiscoveredReplicas::default();
                for pod in self.pods.objects() {
                    pod.add_to(&mut replicas, &listed.ports);
                }
                Some(replicas)
            }
        }
    }

    /// Why the lists of the API server give no replicas, or not all.
    pub(super) fn problem(&self, namespace: &str) -> Option<String> {
        let has_no_slice = self.slices.is_kept() || self.slices.objects().next().is_none();
        match &self.target {
            KubernetesTarget::InferencePool(name)
                if self.is_pool_missing() || self.pool.is_kept() =>
            {
                Some(match self.pool.objects().next() {
                    Some(_) if !self.pool.is_kept() => format!(
                        "InferencePool `{name}` in namespace `{namespace}` selects no label: give it `spec.selector.matchLabels`"
                    ),
                    _ => format!(
                        "there is no InferencePool `{name}` in namespace `{namespace}`: create it, or correct \
                     `replicas.kubernetes`"
                    ),
                })
            }
            KubernetesTarget::Service { name, .. } if self.slices.is_whole() && has_no_slice => {
                Some(format!(
                    "there is no EndpointSlice of Service `{name}` in namespace `{namespace}`: create the Service, \
                     with a selector, or correct its name in the configuration"
                ))
            }
            KubernetesTarget::Service { name, port } => {
                let (replicas, problem) = slices::replicas(self.slices.objects(), port.as_ref());
                let problem = problem.map(|problem| format!("Service `{name}`: {problem}"));
                problem.or_else(|| self.overflow(&replicas))
            }
            KubernetesTarget::InferencePool(_) | KubernetesTarget::Pods { .. }
                if self.pods.is_kept() =>
            {
                Some(format!(
                    "no pod in namespace `{namespace}` has the labels `{}`: start the pods, or correct the selector",
                    self.selector().unwrap_or_default()
                ))
            }
            KubernetesTarget::InferencePool(_) | KubernetesTarget::Pods { .. } => self
                .overflow(&self.replicas()?)
                .or_else(|| self.unknown_role()),
        }
    }

    fn unknown_role(&self) -> Option<String> {
        let mut pods = self.pods.objects();
        pods.any(PodState::has_unknown_role).then(|| {
            "the label `llm-d.ai/role` of a pod has an unknown value, so the pod gets no request: use `prefill`, `decode` or \
             `prefill-decode`"
                .to_owned()
        })
    }

    fn overflow(&self, replicas: &DiscoveredReplicas) -> Option<String> {
        let has_overflowed =
            self.pods.has_overflowed() || self.slices.has_overflowed() || replicas.has_overflowed();
        has_overflowed.then(|| {
            format!("there are more than {OBJECTS_MAX} pods or replicas: the others are left out")
        })
    }

    /// Whether the API server has said that the pool does not exist.
    fn is_pool_missing(&self) -> bool {
        self.pool.is_whole() && self.query.is_none()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::ServicePort;

    fn pod(ip: u8, is_ready: bool) -> PodState {
        let status = if is_ready { "True" } else { "False" };
        let pod = json!({
            "metadata": { "name": "p", "uid": ip.to_string() },
            "status": { "podIP": format!("10.0.0.{ip}"), "conditions": [{ "type": "Ready", "status": status }] }
        });
        PodState::of(&serde_json::from_value(pod).unwrap())
    }

    fn query(selector: &str, ports: &[u16]) -> PodQuery {
        PodQuery {
            selector: selector.into(),
            ports: ports.into(),
        }
    }

    /// The events of a whole list.
    fn whole<T>(objects: Vec<(&str, T)>) -> Vec<ListEvent<T>> {
        let items = objects
            .into_iter()
            .map(|(name, object)| ListEvent::Item(name.into(), object));
        std::iter::once(ListEvent::Start)
            .chain(items)
            .chain([ListEvent::Whole])
            .collect()
    }

    fn handle<T>(
        view: &mut SourceView,
        kind: fn(ListEvent<T>) -> ViewEvent,
        events: Vec<ListEvent<T>>,
    ) {
        for event in events {
            view.handle(kind(event));
        }
    }

    /// The replicas as text, draining ones with a `-` in front; `None` if unknown.
    fn shown(view: &SourceView) -> Option<Vec<String>> {
        let replicas = view.replicas()?;
        let shown = replicas.iter().map(|(address, replica)| {
            let mark = if replica.is_draining { "-" } else { "" };
            format!("{mark}{address}")
        });
        Some(shown.collect())
    }

    fn pool_view() -> SourceView {
        SourceView::new(KubernetesTarget::InferencePool("llm".into()))
    }

    /// A view of an InferencePool with two ready pods at port 80.
    fn two_pods() -> SourceView {
        let mut view = pool_view();
        handle(
            &mut view,
            ViewEvent::Pool,
            whole(vec![("llm", query("app=a", &[80]))]),
        );
        handle(
            &mut view,
            ViewEvent::Pods,
            whole(vec![("x", pod(1, true)), ("y", pod(2, true))]),
        );
        view
    }

    #[test]
    fn nothing_is_known_until_pool_and_pods_came_whole() {
        let mut view = pool_view();
        assert_eq!((view.selector(), shown(&view)), (None, None));
        handle(
            &mut view,
            ViewEvent::Pool,
            whole(vec![("llm", query("app=a", &[80]))]),
        );
        assert_eq!((view.selector(), shown(&view)), (Some("app=a"), None));
        view.handle(ViewEvent::Pods(ListEvent::Start));
        view.handle(ViewEvent::Pods(ListEvent::Item("x".into(), pod(1, true))));
        assert_eq!(shown(&view), None);
        view.handle(ViewEvent::Pods(ListEvent::Whole));
        assert_eq!(shown(&view), Some(vec!["10.0.0.1:80".into()]));
        assert_eq!(view.problem("default"), None);
    }

    #[test]
    fn an_unready_pod_drains_until_it_is_ready_again_or_deleted() {
        let mut view = two_pods();
        view.handle(ViewEvent::Pods(ListEvent::Changed(
            "x".into(),
            pod(1, false),
        )));
        assert_eq!(shown(&view).unwrap(), ["-10.0.0.1:80", "10.0.0.2:80"]);
        view.handle(ViewEvent::Pods(ListEvent::Changed(
            "x".into(),
            pod(1, true),
        )));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80", "10.0.0.2:80"]);
        view.handle(ViewEvent::Pods(ListEvent::Removed("x".into())));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.2:80"]);
    }

    #[test]
    fn a_relist_that_breaks_off_loses_no_replica() {
        let mut view = two_pods();
        view.handle(ViewEvent::Pods(ListEvent::Start));
        assert_eq!(shown(&view).unwrap().len(), 2);
        view.handle(ViewEvent::Pods(ListEvent::Start));
        view.handle(ViewEvent::Pods(ListEvent::Item("y".into(), pod(2, true))));
        assert_eq!(shown(&view).unwrap().len(), 2);
        view.handle(ViewEvent::Pods(ListEvent::Whole));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.2:80"]);
    }

    #[test]
    fn changed_ports_apply_at_once() {
        let mut view = two_pods();
        let changed = ListEvent::Changed("llm".into(), query("app=a", &[80, 81]));
        view.handle(ViewEvent::Pool(changed));
        let expected = ["10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "10.0.0.2:81"];
        assert_eq!(shown(&view).unwrap(), expected);
    }

    #[test]
    fn a_changed_selector_applies_with_its_ports_when_its_pods_came_whole() {
        let mut view = two_pods();
        let changed = ListEvent::Changed("llm".into(), query("app=b", &[90]));
        view.handle(ViewEvent::Pool(changed));
        assert_eq!(view.selector(), Some("app=b"));
        view.handle(ViewEvent::Pods(ListEvent::Start));
        view.handle(ViewEvent::Pods(ListEvent::Item("z".into(), pod(3, true))));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80", "10.0.0.2:80"]);
        let changed = ListEvent::Changed("llm".into(), query("app=b", &[91]));
        view.handle(ViewEvent::Pool(changed));
        view.handle(ViewEvent::Pods(ListEvent::Whole));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.3:91"]);
    }

    #[test]
    fn a_pool_that_never_existed_is_a_problem_and_a_deleted_one_has_no_replicas() {
        let mut view = pool_view();
        handle(&mut view, ViewEvent::Pool, whole(vec![]));
        assert_eq!(shown(&view), None);
        let problem = view.problem("prod").unwrap();
        assert!(
            problem.contains("no InferencePool `llm` in namespace `prod`"),
            "{problem}"
        );

        let mut view = two_pods();
        view.handle(ViewEvent::Pool(ListEvent::Removed("llm".into())));
        assert_eq!((view.selector(), shown(&view)), (None, Some(vec![])));
        assert!(view.problem("prod").is_some());
        view.handle(ViewEvent::Pool(ListEvent::Changed(
            "llm".into(),
            query("app=a", &[80]),
        )));
        assert_eq!((view.selector(), shown(&view)), (Some("app=a"), None));
    }

    #[test]
    fn a_relist_of_the_pool_keeps_the_replicas() {
        let mut view = two_pods();
        view.handle(ViewEvent::Pool(ListEvent::Start));
        assert_eq!(
            (view.selector(), shown(&view).unwrap().len()),
            (Some("app=a"), 2)
        );
        view.handle(ViewEvent::Pool(ListEvent::Item(
            "llm".into(),
            query("app=a", &[80]),
        )));
        view.handle(ViewEvent::Pool(ListEvent::Whole));
        assert_eq!(
            (view.selector(), shown(&view).unwrap().len()),
            (Some("app=a"), 2)
        );
    }

    #[test]
    fn an_empty_list_of_pods_keeps_the_replicas_until_a_pod_has_the_labels() {
        let mut view = two_pods();
        handle(&mut view, ViewEvent::Pods, whole(vec![]));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert!(view.problem("prod").unwrap().contains("`app=a`"));

        let typo = ListEvent::Changed("llm".into(), query("app=typo", &[90]));
        view.handle(ViewEvent::Pool(typo));
        handle(&mut view, ViewEvent::Pods, whole(vec![]));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert!(view.problem("prod").unwrap().contains("`app=typo`"));
        view.handle(ViewEvent::Pods(ListEvent::Changed(
            "z".into(),
            pod(3, true),
        )));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.3:90"]);
        assert_eq!(view.problem("prod"), None);
    }

    #[test]
    fn pods_that_are_deleted_one_by_one_leave() {
        let mut view = two_pods();
        for name in ["x", "y"] {
            view.handle(ViewEvent::Pods(ListEvent::Removed(name.into())));
        }
        assert_eq!((shown(&view), view.problem("prod")), (Some(vec![]), None));
    }

    #[test]
    fn an_empty_list_of_pools_keeps_the_replicas() {
        let mut view = two_pods();
        handle(&mut view, ViewEvent::Pool, whole(vec![]));
        assert_eq!(view.selector(), Some("app=a"));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert!(view.problem("prod").unwrap().contains("no InferencePool"));
    }

    #[test]
    fn a_pool_without_labels_selects_no_pod() {
        let mut view = pool_view();
        handle(
            &mut view,
            ViewEvent::Pool,
            whole(vec![("llm", query("", &[80]))]),
        );
        assert_eq!(view.selector(), None);
        assert!(view.problem("prod").unwrap().contains("selects no label"));
    }

    #[test]
    fn a_selector_without_pods_has_synced_with_no_replica() {
        let pods = KubernetesTarget::Pods {
            selector: "app=a".into(),
            ports: vec![80],
        };
        let mut view = SourceView::new(pods);
        assert_eq!(view.selector(), Some("app=a"));
        handle(&mut view, ViewEvent::Pods, whole(vec![]));
        assert_eq!((shown(&view), view.problem("prod")), (Some(vec![]), None));
    }

    #[test]
    fn a_service_without_slices_is_a_problem_and_keeps_the_known_replicas() {
        let service = |port| KubernetesTarget::Service {
            name: "engines".into(),
            port,
        };
        let mut view = SourceView::new(service(None));
        handle(&mut view, ViewEvent::Slices, whole(vec![]));
        assert_eq!(shown(&view), None);
        assert!(view.problem("prod").unwrap().contains("Service `engines`"));

        let slice = json!({
            "endpoints": [{ "addresses": ["10.0.0.1"] }],
            "ports": [{ "name": "http", "port": 80 }]
        });
        let slice = || SliceState::of(serde_json::from_value(slice.clone()).unwrap());
        handle(&mut view, ViewEvent::Slices, whole(vec![("s", slice())]));
        assert_eq!(shown(&view).unwrap(), ["10.0.0.1:80"]);
        let deleted = vec![ListEvent::Removed("s".into())];
        for no_slice in [whole(vec![]), deleted] {
            handle(&mut view, ViewEvent::Slices, no_slice);
            assert_ne!(shown(&view), Some(vec![]));
            assert!(view.problem("prod").unwrap().contains("no EndpointSlice"));
        }
        let empty = SliceState::of(serde_json::from_value(json!({ "endpoints": [] })).unwrap());
        view.handle(ViewEvent::Slices(ListEvent::Changed("t".into(), empty)));
        assert_eq!((shown(&view), view.problem("prod")), (Some(vec![]), None));

        let mut view = SourceView::new(service(Some(ServicePort::Number(81))));
        handle(&mut view, ViewEvent::Slices, whole(vec![("s", slice())]));
        assert!(view.problem("prod").unwrap().contains("no TCP port 81"));
    }
}
