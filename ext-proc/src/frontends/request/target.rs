//! Which pool a request belongs to, or what else is to be done with it.
//!
//! | request | goes to |
//! | --- | --- |
//! | was decided on the filter's decision stream, and Envoy asks all the same | passed on as it is |
//! | `GET /v1/models[/{id}]`, unless a pool serves any model | answered here |
//! | names a model | the pool that serves it; 404 in OpenAI's form where none does |
//! | names none, and the filter chose a cluster | the pool behind that cluster |
//! | names none, and there is one pool, or one for any model | that pool |
//! | names none, none of these, and the path is one that wants a model | 400 in OpenAI's form |
//! | anything else | passed on as it is: what becomes of it is the business of Envoy's routes |
//!
//! A request for one of the pools that names no model and has no body (`GET`, `HEAD`, `OPTIONS`: a health page, a
//! version) takes no place in a batch: it is passed on to the pool's cluster and never waits. With a pool for any
//! model the list of models is such a request, since only the engine knows what it serves. A pool whose sources have
//! not told yet who is in it (the service has just started) takes no requests: Envoy may know its replicas already.

use std::sync::{Arc, Once};

use isotherm_fingerprint::Api;

use super::head::{RequestHead, percent_decoded};
use crate::pool::{ANY_MODEL, Pool, PoolTable};

const MODELS_PATH: &str = "/v1/models";

/// Whether it was said that Envoy asks twice. Once is enough: it is the same for every request.
static TOLD: Once = Once::new();

/// What is to be done with a request.
#[derive(Debug)]
pub(crate) enum RouteTarget {
    /// Find it a replica of this pool.
    Pool(Arc<Pool>),
    /// Let it pass, to this cluster where one is named.
    PassThrough(Option<String>),
    /// Answer with the list of models.
    ModelList,
    /// Answer with one model.
    Model(String),
    /// Nobody serves this model.
    UnknownModel(String),
    /// It ought to name a model, and does not.
    MissingModel,
}

impl RouteTarget {
    /// Finds out.
    pub(crate) fn of(head: &RequestHead, table: &PoolTable) -> Self {
        if head.is_decided {
            TOLD.call_once(|| {
                tracing::warn!(
                    "Envoy asks by external processing about requests that the filter's decision stream has decided: \
                     it works, and costs twice. Requests with x-isotherm-decided are to be led past \
                     external processing; envoy/standalone.yaml shows how"
                );
            });
            return Self::PassThrough(None);
        }
        if let Some(models) = listing(head)
            && table.for_model(ANY_MODEL).is_none()
        {
            return match models {
                None => Self::ModelList,
                Some(id) if table.for_model(&id).is_some() => Self::Model(id),
                Some(id) => Self::UnknownModel(id),
            };
        }
        if let Some(model) = &head.model {
            return match table.for_model(model) {
                Some(pool) => Self::in_pool(pool),
                None => Self::UnknownModel(model.clone()),
            };
        }
        let by_cluster = head.cluster.as_deref().and_then(|c| table.for_cluster(c));
        match by_cluster.or_else(|| table.default_pool()) {
            Some(pool) if is_bodiless(&head.method) => Self::PassThrough(Some(pool.cluster())),
            Some(pool) => Self::in_pool(pool),
            None if Api::from_path(&head.path).is_some() => Self::MissingModel,
            None => Self::PassThrough(None),
        }
    }

    fn in_pool(pool: &Arc<Pool>) -> Self {
        if pool.has_synced() {
            Self::Pool(Arc::clone(pool))
        } else {
            Self::PassThrough(Some(pool.cluster()))
        }
    }
}

fn is_bodiless(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// `Some(None)` for the list of models, `Some(Some(id))` for one of them.
fn listing(head: &RequestHead) -> Option<Option<String>> {
    if head.method != "GET" {
        return None;
    }
    let path = head.path.split(['?', '#']).next()?;
    let path = path.strip_suffix('/').unwrap_or(path);
    match path.rsplit_once(MODELS_PATH)?.1 {
        "" => Some(None),
        id => percent_decoded(id.strip_prefix('/')?.as_bytes()).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::clock::Clock;
    use crate::config;
    use crate::metrics::Metrics;
    use crate::pool::PoolRegistry;

    const TWO: &str = "
pools:
  - { model: llama, aliases: [org/llama], cluster: l }
  - { model: qwen, cluster: q }
";

    fn place(config: &str, method: &str, path: &str, model: &str, cluster: &str) -> String {
        let config = config::parse(config).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let head = RequestHead {
            method: method.into(),
            path: path.into(),
            model: some(model),
            cluster: some(cluster),
            ..RequestHead::default()
        };
        match RouteTarget::of(&head, &pool_registry.table()) {
            RouteTarget::Pool(pool) => format!("route {}", pool.name()),
            RouteTarget::PassThrough(cluster) => format!("pass {}", cluster.unwrap_or_default()),
            RouteTarget::ModelList => "models".into(),
            RouteTarget::Model(id) => format!("model {id}"),
            RouteTarget::UnknownModel(id) => format!("unknown {id}"),
            RouteTarget::MissingModel => "no model".into(),
        }
    }

    #[tokio::test]
    async fn a_model_decides() {
        let chat = |model| place(TWO, "POST", "/v1/chat/completions", model, "l");
        assert_eq!(chat("qwen"), "route qwen");
        assert_eq!(chat("org/llama"), "route llama");
        assert_eq!(chat("gpt"), "unknown gpt");
    }

    #[tokio::test]
    async fn what_the_decision_stream_has_decided_is_left_alone() {
        let config = config::parse(TWO).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let head = RequestHead {
            model: Some("qwen".into()),
            is_decided: true,
            ..RequestHead::default()
        };
        let place = RouteTarget::of(&head, &pool_registry.table());
        assert!(matches!(place, RouteTarget::PassThrough(None)), "{place:?}");
    }

    #[tokio::test]
    async fn without_a_model_the_filters_cluster_decides() {
        assert_eq!(place(TWO, "POST", "/v1/rerank", "", "q"), "route qwen");
        assert_eq!(place(TWO, "GET", "/version", "", "q"), "pass q");
        assert_eq!(place(TWO, "POST", "/v1/rerank", "", ""), "pass ");
        assert_eq!(
            place(TWO, "POST", "/v1/completions", "", "elsewhere"),
            "no model"
        );
    }

    #[tokio::test]
    async fn the_only_pool_gets_what_names_no_model() {
        let one = "pools: [{ model: llama, cluster: l }]";
        assert_eq!(place(one, "POST", "/v1/rerank", "", ""), "route llama");
        assert_eq!(place(one, "GET", "/health", "", ""), "pass l");
        assert_eq!(
            place(one, "POST", "/v1/completions", "gpt", ""),
            "unknown gpt"
        );
    }

    #[tokio::test]
    async fn models_are_listed_here_unless_only_the_engine_knows_them() {
        assert_eq!(place(TWO, "GET", "/v1/models", "", ""), "models");
        assert_eq!(place(TWO, "GET", "/api/v1/models/?x=1", "", ""), "models");
        assert_eq!(
            place(TWO, "GET", "/v1/models/org%2Fllama", "", ""),
            "model org/llama"
        );
        assert_eq!(place(TWO, "GET", "/v1/models/gpt", "", ""), "unknown gpt");
        assert_eq!(place(TWO, "GET", "/v1/modelsx", "", ""), "pass ");
        assert_eq!(place("{}", "GET", "/v1/models", "", ""), "pass default");
        assert_eq!(place("{}", "POST", "/v1/completions", "gpt", ""), "route *");
    }
}
