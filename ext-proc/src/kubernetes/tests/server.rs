//! A fake API server: lists with pages, watches as lines of JSON, and the faults that a test sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use futures_util::stream;
use kube::Config;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::tasks::AbortOnDrop;

/// The namespace of all objects.
pub(super) const NAMESPACE: &str = "prod";

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Pool,
    Pod,
    Slice,
}

impl Kind {
    fn of(path: &str) -> Option<Self> {
        let (_, plural) = path.rsplit_once('/')?;
        match plural {
            "inferencepools" => Some(Self::Pool),
            "pods" => Some(Self::Pod),
            "endpointslices" => Some(Self::Slice),
            _ => None,
        }
    }
}

/// The objects of the server, its history, and its faults.
#[derive(Debug)]
pub(super) struct ServerState {
    objects: BTreeMap<(Kind, String), Value>,
    /// Changes with their versions.
    events: Vec<(u64, Kind, Value)>,
    version: u64,
    /// Watches from an earlier version are too old.
    oldest: u64,
    /// Whether each request and each watch breaks.
    pub(super) is_away: bool,
    pub(super) forbidden: Option<Kind>,
    pub(super) has_definitions: bool,
    pub(super) has_empty_first_page: bool,
    pub(super) breaks_second_page: bool,
    /// Whether each watch ends at its beginning, in order.
    pub(super) ends_watches: bool,
    /// Watches so far.
    pub(super) watches: usize,
}

impl ServerState {
    pub(super) fn set(&mut self, kind: Kind, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let known = self.objects.insert((kind, name), object.clone());
        self.push(
            kind,
            if known.is_some() { "MODIFIED" } else { "ADDED" },
            object,
            known,
        );
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        self.version += 1;
        let mut object = self.objects.remove(&(kind, name.to_owned())).unwrap();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.push(kind, "DELETED", object, None);
    }

    /// Makes every running watch too old.
    pub(super) fn forget_events(&mut self) {
        self.version += 1;
        self.oldest = self.version;
    }

    fn push(&mut self, kind: Kind, event: &str, object: Value, old: Option<Value>) {
        let event = json!({ "type": event, "object": object, "old": old });
        self.events.push((self.version, kind, event));
    }
}

/// A running server. Dropping it closes its socket.
pub(super) struct FakeServer {
    shared: Arc<ServerHandle>,
    url: String,
    _task: AbortOnDrop,
}

struct ServerHandle {
    state: Mutex<ServerState>,
    /// Number of changes, and number of cuts.
    changes: watch::Sender<(u64, u64)>,
}

impl FakeServer {
    pub(super) async fn start() -> Self {
        let shared = Arc::new(ServerHandle {
            state: Mutex::new(ServerState {
                objects: BTreeMap::new(),
                events: Vec::new(),
                version: 1,
                oldest: 0,
                is_away: false,
                forbidden: None,
                has_definitions: true,
                has_empty_first_page: false,
                breaks_second_page: false,
                ends_watches: false,
                watches: 0,
            }),
            changes: watch::Sender::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            shared,
            url,
            _task: AbortOnDrop(task.abort_handle()),
        }
    }

    /// The configuration of a client.
    pub(super) fn config(&self) -> Config {
        Config::new(self.url.parse().unwrap())
    }

    pub(super) fn set(&self, kind: Kind, object: Value) {
        self.shared.state.lock().set(kind, object);
        self.shared
            .changes
            .send_modify(|(changes, _)| *changes += 1);
    }

    pub(super) fn remove(&self, kind: Kind, name: &str) {
        self.shared.state.lock().remove(kind, name);
        self.shared
            .changes
            .send_modify(|(changes, _)| *changes += 1);
    }

    /// The number of watches so far.
    pub(super) fn watches(&self) -> usize {
        self.shared.state.lock().watches
    }

    /// Changes the state, and cuts every watch.
    pub(super) fn cut(&self, change: impl FnOnce(&mut ServerState)) {
        change(&mut self.shared.state.lock());
        self.shared.changes.send_modify(|(_, cuts)| *cuts += 1);
    }
}

async fn answer(
    State(shared): State<Arc<ServerHandle>>,
    Query(query): Query<BTreeMap<String, String>>,
    request: Request,
) -> Response {
    let mut state = shared.state.lock();
    if state.is_away {
        return broken();
    }
    let Some(kind) = Kind::of(request.uri().path()) else {
        return failure(404, "the server could not find the requested resource");
    };
    if state.forbidden == Some(kind) {
        return failure(
            403,
            "pods is forbidden: User \"isotherm\" cannot list resource",
        );
    }
    if kind == Kind::Pool && !state.has_definitions {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    let is_watch = query.contains_key("watch");
    state.watches += usize::from(is_watch);
    if is_watch && state.ends_watches {
        return StatusCode::OK.into_response();
    }
    drop(state);
    if is_watch {
        return follow(&shared, kind, query);
    }
    list(&shared.state.lock(), kind, &query)
}

fn failure(code: u16, message: &str) -> Response {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code });
    (StatusCode::from_u16(code).unwrap(), Json(status)).into_response()
}

/// A response that breaks off.
fn broken() -> Response {
    Body::from_stream(stream::once(async { Err::<Bytes, _>("cut") })).into_response()
}

fn list(state: &ServerState, kind: Kind, query: &BTreeMap<String, String>) -> Response {
    let page = |items: Vec<&Value>, next: Option<String>| {
        let metadata = json!({ "resourceVersion": state.version.to_string(), "continue": next });
        Json(json!({ "kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items }))
            .into_response()
    };
    let next = query
        .get("continue")
        .map(|next| next.parse::<usize>().unwrap());
    if state.has_empty_first_page && next.is_none() {
        return page(Vec::new(), Some("0".into()));
    }
    if state.breaks_second_page && next.is_some() {
        return failure(500, "etcdserver: leader changed");
    }
    let objects = state
        .objects
        .iter()
        .filter(|((known, _), _)| *known == kind);
    let selected = objects
        .map(|(_, object)| object)
        .filter(|object| is_selected(object, query));
    let (from, limit) = (
        next.unwrap_or_default(),
        query["limit"].parse::<usize>().unwrap(),
    );
    let rest: Vec<&Value> = selected.skip(from).collect();
    let next = (rest.len() > limit).then(|| (from + limit).to_string());
    page(rest.into_iter().take(limit).collect(), next)
}

/// Sends the events after the version that the client has, until the watch is cut.
fn follow(shared: &Arc<ServerHandle>, kind: Kind, query: BTreeMap<String, String>) -> Response {
    let after: u64 = query["resourceVersion"].parse().unwrap();
    let changes = shared.changes.subscribe();
    let cuts = changes.borrow().1;
    let start = (Arc::clone(shared), changes, after, query);
    let lines = stream::unfold(
        start,
        move |(shared, mut changes, after, query)| async move {
            loop {
                if changes.borrow_and_update().1 != cuts {
                    return Some((Err("cut"), (shared, changes, after, query)));
                }
                let (lines, version) = lines_after(&shared.state.lock(), kind, after, &query);
                if !lines.is_empty() {
                    return Some((Ok(Bytes::from(lines)), (shared, changes, version, query)));
                }
                changes.changed().await.ok()?;
            }
        },
    );
    Body::from_stream(lines).into_response()
}

fn lines_after(
    state: &ServerState,
    kind: Kind,
    after: u64,
    query: &BTreeMap<String, String>,
) -> (String, u64) {
    if after < state.oldest {
        let status = json!({ "kind": "Status", "status": "Failure", "message": "too old resource version", "code": 410 });
        return (
            format!("{}\n", json!({ "type": "ERROR", "object": status })),
            u64::MAX,
        );
    }
    let events = state.events.iter();
    let news = events.filter(|(version, known, _)| *version > after && *known == kind);
    let lines = news.filter_map(|(_, _, event)| {
        // An object that no longer matches the selector is deleted for the client.
        let is_new = is_selected(&event["object"], query);
        let was = is_selected(&event["old"], query);
        match (is_new, was) {
            (true, _) => Some(json!({ "type": event["type"], "object": event["object"] })),
            (false, true) => Some(json!({ "type": "DELETED", "object": event["object"] })),
            (false, false) => None,
        }
    });
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    (lines, state.version)
}

fn is_selected(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let has_label = |term: &str| {
        let (name, value) = term.split_once('=').unwrap();
        object["metadata"]["labels"][name] == value
    };
    let labels = query.get("labelSelector");
    let name = query
        .get("fieldSelector")
        .and_then(|field| field.strip_prefix("metadata.name="));
    object.is_object()
        && labels.is_none_or(|labels| labels.split(',').all(has_label))
        && name.is_none_or(|name| object["metadata"]["name"] == name)
}

/// The InferencePool `llm` that selects one label.
pub(super) fn pool(label: &str, value: &str, ports: &[u16]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({ "number": port })).collect();
    json!({
        "metadata": { "name": "llm", "namespace": NAMESPACE },
        "spec": { "selector": { "matchLabels": { label: value } }, "targetPorts": ports }
    })
}

/// A pod at `10.0.0.LAST` with the label `app`.
pub(super) fn pod(name: &str, last: u8, app: &str, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "False" };
    json!({
        "metadata": { "name": name, "namespace": NAMESPACE, "uid": name, "labels": { "app": app } },
        "status": {
            "podIP": format!("10.0.0.{last}"),
            "conditions": [{ "type": "Ready", "status": status }]
        }
    })
}

/// A slice of a Service with one port, 8000.
pub(super) fn slice(name: &str, service: &str, last: &[u8]) -> Value {
    let endpoints: Vec<Value> = last
        .iter()
        .map(|last| json!({ "addresses": [format!("10.0.0.{last}")] }))
        .collect();
    json!({
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "kubernetes.io/service-name": service } },
        "endpoints": endpoints,
        "ports": [{ "name": "http", "port": 8000, "protocol": "TCP" }]
    })
}
