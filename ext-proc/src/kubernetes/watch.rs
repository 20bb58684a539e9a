//! A watch of one kind of object, which never ends.
//!
//! The watcher of `kube` lists, watches, and resumes a watch that ends in order. After an error this module lists again:
//! a whole list proves that the server is back, and nothing was missed. Rejected: resuming after an error as well, since
//! a resumed watch is silent until something changes, and a service could not tell that its problem is over.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use kube::client::Body;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, mpsc};
use tower::service_fn;

use super::client::{Connection, RETRY_MAX, retry_backoff};
use super::list::ListEvent;
use super::problem::{Problem, Subject};
use crate::backoff::Backoff;

/// Limit of events that wait for the core. A watch with a full queue reads no more.
pub(super) const EVENTS_MAX: usize = 64;
/// Time after which the API server ends a watch, in seconds. It bounds how long a dead connection goes unnoticed.
const WATCH_SECONDS: u32 = 60;

/// The objects to watch.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchQuery {
    pub(super) namespace: String,
    /// Name of the only object to watch.
    pub(super) name: Option<String>,
    /// Label selector.
    pub(super) labels: Option<String>,
}

/// Watches objects until `send` fails, which means that the receiver is gone.
///
/// `read` turns an object into what the core needs of it; the object itself is dropped at once.
pub(super) async fn watch<K, T, M>(
    connection: Connection,
    query: WatchQuery,
    read: fn(K) -> T,
    messages: mpsc::Sender<M>,
    message: impl Fn(Result<ListEvent<T>, Problem>) -> M,
) where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let subject = Subject {
        plural: K::plural(&()).into_owned(),
        group: K::group(&()).into_owned(),
        namespace: query.namespace.clone(),
        server: connection.server,
    };
    let client = spaced(connection.client, &query.namespace);
    let api: Api<K> = Api::namespaced(client, &query.namespace);
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
    config.label_selector = query.labels;
    config.field_selector = query.name.map(|name| format!("metadata.name={name}"));
    let mut backoff = retry_backoff();
    loop {
        let mut events = Box::pin(watcher(api.clone(), config.clone()));
        while let Some(event) = events.next().await {
            if matches!(event, Ok(Event::InitDone)) {
                backoff.reset();
            }
            let is_broken = event.is_err();
            let news = match event {
                Ok(event) => list_event(event, read).map(Ok),
                Err(error) => {
                    tracing::debug!(%error, plural = subject.plural, "watch broken");
                    Problem::of(&error, &subject).map(Err)
                }
            };
            if let Some(news) = news
                && messages.send(message(news)).await.is_err()
            {
                return;
            }
            if is_broken {
                break;
            }
        }
        backoff.wait().await;
    }
}

/// A client whose watches do not follow one another at once. The watcher of `kube` resumes a watch that ends in order without a pause, and
/// a server may end each of them at its beginning.
fn spaced(client: Client, namespace: &str) -> Client {
    let last: Option<Instant> = None;
    let watches = Arc::new(Mutex::new((last, retry_backoff())));
    let send = move |request: hyper::Request<Body>| {
        let (client, watches) = (client.clone(), Arc::clone(&watches));
        async move {
            if is_watch(request.uri()) {
                let (last, backoff) = &mut *watches.lock().await;
                pause(last.as_ref(), backoff).await;
                *last = Some(Instant::now());
            }
            client.send(request).await
        }
    };
    Client::new(service_fn(send), namespace)
}

/// Waits before a watch, if the `last` one began only just now.
async fn pause(last: Option<&Instant>, backoff: &mut Backoff) {
    if last.is_some_and(|last| last.elapsed() < RETRY_MAX) {
        backoff.wait().await;
    } else {
        backoff.reset();
    }
}

fn is_watch(uri: &hyper::Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| parameter == "watch=true" || parameter == "watch=1")
}

/// Reads an event; `None` for an object without a name.
fn list_event<K: Resource, T>(event: Event<K>, read: fn(K) -> T) -> Option<ListEvent<T>> {
    let name = |object: &K| object.meta().name.clone();
    Some(match event {
        Event::Init => ListEvent::Start,
        Event::InitApply(object) => ListEvent::Item(name(&object)?, read(object)),
        Event::InitDone => ListEvent::Whole,
        Event::Apply(object) => ListEvent::Changed(name(&object)?, read(object)),
        Event::Delete(object) => ListEvent::Removed(name(&object)?),
    })
}
