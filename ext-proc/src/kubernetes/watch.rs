//! A watch of one kind of object, which never ends.
//!
//! The watcher of `kube` lists, watches, and resumes a watch that ends in order. After an error this module lists again:
//! a whole list proves that the server is back, and nothing was missed. Rejected: resuming after an error as well, since
//! a resumed watch is silent until something changes, and a service could not tell that its problem is over.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::client::Connection;
use super::list::ListEvent;
use super::problem::{Problem, Subject};

/// Limit of events that wait for the core. A watch with a full queue reads no more.
pub(super) const EVENTS_MAX: usize = 64;
/// Time after which the API server ends a watch, in seconds. It bounds how long a dead connection goes unnoticed.
const WATCH_SECONDS: u32 = 60;
/// First pause after an error, and longest pause. A server that comes back is followed again within the latter.
const RETRY_MIN: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_millis(1_500);

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
    let api: Api<K> = Api::namespaced(connection.client, &query.namespace);
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS);
    config.label_selector = query.labels;
    config.field_selector = query.name.map(|name| format!("metadata.name={name}"));
    let mut delay = RetryDelay::default();
    loop {
        let mut events = Box::pin(watcher(api.clone(), config.clone()));
        while let Some(event) = events.next().await {
            delay.reset_if(matches!(event, Ok(Event::InitDone)));
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
        tokio::time::sleep(delay.next()).await;
    }
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

/// The pauses between attempts: each twice the last, shortened by a random part, so that services do not return together.
#[derive(Debug)]
pub(super) struct RetryDelay(Duration);

impl Default for RetryDelay {
    fn default() -> Self {
        Self(RETRY_MIN)
    }
}

impl RetryDelay {
    pub(super) fn next(&mut self) -> Duration {
        let delay = self.0;
        self.0 = (delay * 2).min(RETRY_MAX);
        // The standard library seeds its hashers from the system's randomness.
        let random = RandomState::new().hash_one(()) % 256;
        delay / 2 + delay / 512 * u32::try_from(random).unwrap_or_default()
    }

    fn reset_if(&mut self, is_over: bool) {
        if is_over {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound() {
        let mut delay = RetryDelay::default();
        let pauses: Vec<Duration> = (0..8).map(|_| delay.next()).collect();
        assert!(
            pauses[0] >= RETRY_MIN / 2 && pauses[0] <= RETRY_MIN,
            "{pauses:?}"
        );
        assert!(
            pauses[7] >= RETRY_MAX / 2 && pauses[7] <= RETRY_MAX,
            "{pauses:?}"
        );
        delay.reset_if(true);
        assert!(delay.next() <= RETRY_MIN);
    }
}
