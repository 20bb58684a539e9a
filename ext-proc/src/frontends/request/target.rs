//! Selects the target of a request.
//!
//! | request | target |
//! | --- | --- |
//! | decided on the decision stream, and sent to external processing all the same | passes through |
//! | a path outside the list `paths` | 404 in OpenAI's format; with the entry `*`, passes through untouched |
//! | `GET /v1/models[/{id}]`, unless a pool serves any model | the service replies |
//! | a path of a stored response, and the replica that has it is known | that replica, past the queue |
//! | names a model | the pool of the model; without one, as `unknown_models` says: 404 in OpenAI's format, or passes through untouched |
//! | no model, and the filter chose a cluster | the pool behind the cluster |
//! | no model, and there is one pool, or one for any model | that pool |
//! | none of these, and the path requires a model | 400 in OpenAI's format, unless no filter has read the request |
//! | any other | passes through; Envoy's routes handle it |
//!
//! A request for a pool with neither model nor body (`GET`, `HEAD`, `OPTIONS`: a health page, a version) takes no capacity
//! of an engine: it passes through to the pool's cluster, and is never queued. With a pool for any model, the list of
//! models is such a request, since only the engine knows its models. A pool whose sources have not reported its
//! replicas (the service has just started) takes no requests: Envoy may know the replicas already. Neither holds for a
//! gateway that sends no request without an endpoint: it gets an endpoint, or a rejection.
//!
//! The filter sets the session key of each request that it sees, at least the client's address. A request without one passed a filter that has crashed or is not
//! loaded, so its model is unknown through no fault of the client: Envoy's last route takes it to the default cluster.

use std::sync::{Arc, Once};

use isotherm_fingerprint::UnreadModel;
use isotherm_fingerprint::paths::{self, HEALTH_PATH, PathUse};
use isotherm_router::{Availability, Role};

use super::head::{RequestHead, percent_decoded};
use crate::pool::{ANY_MODEL, Endpoint, Pool, PoolTable};

const MODELS_PATH: &str = "/v1/models";

/// Guards the warning about external processing of decided requests, which is the same for every request.
static WARNING: Once = Once::new();

#[derive(Debug)]
pub(crate) enum RouteTarget {
    /// A replica of this pool.
    Pool(Arc<Pool>),
    /// The replica of this pool that has the stored response.
    Holder(Arc<Pool>, Endpoint),
    /// Envoy's routes, with this cluster if there is one.
    PassThrough(Option<String>),
    /// Envoy's routes, without a trace of Isotherm.
    OtherApplication,
    ModelList,
    /// A reply with one model.
    Model(String, Arc<Pool>),
    /// A reply that tells whether a replica is healthy.
    Health(bool),
    /// A rejection: the path takes these methods.
    MethodNotAllowed(&'static str),
    /// A rejection: clients may not use this path.
    UnknownPath,
    /// A rejection: no pool serves this model.
    UnknownModel(String),
    /// A rejection: the request must name a model.
    MissingModel,
    /// A rejection: the model that the request names cannot be told.
    UnreadModel(UnreadModel),
}

impl RouteTarget {
    pub(crate) fn of(head: &RequestHead, table: &PoolTable) -> Self {
        if head.is_decided {
            WARNING.call_once(|| {
                tracing::warn!(
                    "Envoy sends requests to external processing that have a decision already: this works, and costs \
                     twice. Route requests with x-isotherm-decided past external processing; envoy/standalone.yaml \
                     shows how"
                );
            });
            return Self::PassThrough(None);
        }
        match head.path_use(table) {
            PathUse::Serve => {}
            PathUse::Pass => return Self::OtherApplication,
            PathUse::Reject => return Self::UnknownPath,
        }
        let path = &*head.path;
        if let Some(methods) = paths::allowed_methods(path)
            && !head.method.is_empty()
            && !paths::allows_method(path, &head.method)
        {
            return Self::MethodNotAllowed(methods);
        }
        if is_health(path) {
            let is_healthy = table.pools().iter().any(|pool| has_healthy_replica(pool));
            return Self::Health(is_healthy);
        }
        if let Some(models) = listing(head)
            && table.for_model(ANY_MODEL).is_none()
        {
            return models.map_or(Self::ModelList, |id| Self::one_model(id, head, table));
        }
        if let Some((pool, replica)) = holder(head, table) {
            return Self::Holder(pool, replica);
        }
        if let Some(model) = &head.model {
            return match table.for_model(model) {
                Some(pool) => Self::in_pool(pool, head),
                None => Self::unknown_model(model.clone(), head, table),
            };
        }
        // The cluster that the filter chose without a model is a guess, and the only pool is none.
        if let (Some(reason), None) = (head.unread_model, table.default_pool()) {
            return Self::UnreadModel(reason);
        }
        let by_cluster = head
            .headers
            .cluster
            .as_deref()
            .and_then(|c| table.for_cluster(c));
        match by_cluster.or_else(|| table.default_pool()) {
            Some(pool) if is_bodiless(&head.method) && !head.needs_endpoint => {
                Self::PassThrough(Some(pool.cluster()))
            }
            Some(pool) => Self::in_pool(pool, head),
            None if table.api_of(path).is_some() && !head.is_unread() => Self::MissingModel,
            None => Self::PassThrough(None),
        }
    }

    fn one_model(id: String, head: &RequestHead, table: &PoolTable) -> Self {
        match table.for_model(&id) {
            Some(pool) => Self::Model(id, Arc::clone(pool)),
            None => Self::unknown_model(id, head, table),
        }
    }

    /// The target of a request for a model that no pool has. The region that forwarded one has a pool for it, and a gateway
    /// that needs an endpoint has no other route.
    fn unknown_model(id: String, head: &RequestHead, table: &PoolTable) -> Self {
        let peer_table = table.peer_table().map(Arc::as_ref);
        let has_routes = !head.needs_endpoint && !head.origin.is_other_region(peer_table);
        match table.passes_unknown_models() && has_routes {
            true => Self::OtherApplication,
            false => Self::UnknownModel(id),
        }
    }

    fn in_pool(pool: &Arc<Pool>, head: &RequestHead) -> Self {
        if pool.has_synced() || head.needs_endpoint {
            Self::Pool(Arc::clone(pool))
        } else {
            Self::PassThrough(Some(pool.cluster()))
        }
    }
}

/// The replica that has the stored response which the path names, with its pool.
fn holder(head: &RequestHead, table: &PoolTable) -> Option<(Arc<Pool>, Endpoint)> {
    let (response, tenant) = (head.response_in_path?, head.request.tenant_id());
    table.pools().iter().find_map(|pool| {
        let replica = pool.endpoint_of_response(tenant, response)?;
        Some((Arc::clone(pool), replica))
    })
}

fn is_bodiless(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS")
}

/// Returns `Some(None)` for the list of models, and `Some(Some(id))` for one model.
fn listing(head: &RequestHead) -> Option<Option<String>> {
    if !matches!(&*head.method, "GET" | "HEAD") {
        return None;
    }
    let path = head.path.split(['?', '#']).next()?;
    let path = path.strip_suffix('/').unwrap_or(path);
    match path.rsplit_once(MODELS_PATH)?.1 {
        "" => Some(None),
        id => percent_decoded(id.strip_prefix('/')?.as_bytes()).map(Some),
    }
}

fn is_health(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path) == HEALTH_PATH
}

/// Whether a pool has a replica that serves requests, now or as soon as one of them ends.
fn has_healthy_replica(pool: &Pool) -> bool {
    pool.replicas().iter().any(|replica| {
        let is_healthy = matches!(
            replica.availability,
            Availability::Available
                | Availability::Pending
                | Availability::NoHeadroom
                | Availability::Full
        );
        is_healthy && replica.role != Role::Prefill
    })
}

#[cfg(test)]
mod tests {
    use isotherm_fingerprint::names;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::clock::Clock;
    use crate::config;
    use crate::frontends::request::ListenerKind;
    use crate::metrics::Metrics;
    use crate::pool::PoolRegistry;

    const TWO: &str = "
paths: ['*', /v1/rerank, /version]
pools:
  - { model: llama, aliases: [org/llama], cluster: l }
  - { model: qwen, cluster: q }
";

    fn target(config: &str, method: &str, path: &str, model: &str, cluster: &str) -> String {
        let config = config::parse(config).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut head = RequestHead {
            method: method.into(),
            path: path.into(),
            model: some(model),
            ..RequestHead::default()
        };
        head.headers.cluster = some(cluster);
        head.is_filtered = true;
        match RouteTarget::of(&head, &pool_registry.table()) {
            RouteTarget::Pool(pool) => format!("route {}", pool.name()),
            RouteTarget::Holder(pool, replica) => format!("{replica} of {}", pool.name()),
            RouteTarget::PassThrough(cluster) => format!("pass {}", cluster.unwrap_or_default()),
            RouteTarget::OtherApplication => "other".into(),
            RouteTarget::ModelList => "models".into(),
            RouteTarget::Model(id, _) => format!("model {id}"),
            RouteTarget::UnknownPath => "no path".into(),
            RouteTarget::UnknownModel(id) => format!("unknown {id}"),
            RouteTarget::Health(is_healthy) => format!("healthy {is_healthy}"),
            RouteTarget::MethodNotAllowed(methods) => format!("only {methods}"),
            RouteTarget::MissingModel => "no model".into(),
            RouteTarget::UnreadModel(reason) => reason.as_str().into(),
        }
    }

    #[tokio::test]
    async fn the_model_selects_the_pool() {
        let chat = |model| target(TWO, "POST", "/v1/chat/completions", model, "l");
        assert_eq!(chat("qwen"), "route qwen");
        assert_eq!(chat("org/llama"), "route llama");
        assert_eq!(chat("gpt"), "unknown gpt");
    }

    #[tokio::test]
    async fn a_path_outside_the_list_belongs_to_no_pool() {
        let one = "pools: [{ model: llama, cluster: l }]";
        for path in [
            "/metrics",
            "/flush_cache",
            "/v1/rerank",
            "/v1/models/../../load",
        ] {
            for method in ["GET", "POST"] {
                let target = target(one, method, path, "llama", "l");
                assert_eq!(target, "no path", "{path}");
            }
        }
        let rerank = "{ paths: [/v1/rerank], pools: [{ model: llama, cluster: l }] }";
        assert_eq!(target(rerank, "POST", "/v1/rerank", "", ""), "route llama");
        assert_eq!(target(rerank, "POST", "/v1/completions", "", ""), "no path");
    }

    #[tokio::test]
    async fn a_request_of_another_application_belongs_to_no_pool() {
        let any = "{ paths: ['*'] }";
        for config in [TWO, any] {
            for path in [
                "/metrics",
                "/files/a",
                "/v1/files",
                "/demo.Echo/Bidi",
                "/images/generate",
            ] {
                for method in ["GET", "POST", "PUT"] {
                    // The early header mutation of the listener may name the default cluster.
                    for (model, cluster) in [("", ""), ("", "l"), ("llama", "l"), ("gpt", "")] {
                        assert_eq!(
                            target(config, method, path, model, cluster),
                            "other",
                            "{path}"
                        );
                    }
                }
            }
            let prefixed = target(config, "POST", "/llm/v1/completions", "llama", "");
            assert!(prefixed.starts_with("route"), "{prefixed}");
        }
    }

    #[tokio::test]
    async fn a_path_that_a_route_rewrites_belongs_to_its_api() {
        let apis = format!("apis: [{{ path: /llm/openai, api: chat_completions }}]{TWO}");
        let of = |path, model| target(&apis, "POST", path, model, "");
        assert_eq!(of("/llm/openai", "qwen"), "route qwen");
        assert_eq!(of("/llm/openai?x=1", ""), "no model");
        assert_eq!(of("/llm/openai/files", "qwen"), "other");
    }

    #[tokio::test]
    async fn a_model_that_no_pool_has_passes_where_the_configuration_says_so() {
        let one = "{ unknown_models: pass, pools: [{ model: llama, cluster: l }] }";
        let of = |model| target(one, "POST", "/v1/chat/completions", model, "l");
        assert_eq!(of("gpt-x"), "other");
        assert_eq!(of("llama"), "route llama");
        assert_eq!(of(""), "route llama", "it names none");
        assert_eq!(target(one, "GET", "/v1/models/gpt-x", "", ""), "other");
        let mut head = RequestHead {
            method: "POST".into(),
            path: "/v1/chat/completions".into(),
            is_filtered: true,
            ..RequestHead::default()
        };
        let config = config::parse(&format!("unknown_models: pass{TWO}")).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        head.unread_model = Some(UnreadModel::Encoding);
        let target = RouteTarget::of(&head, &pool_registry.table());
        // Its prompt may be a pool's, and must not reach a provider.
        assert!(matches!(target, RouteTarget::UnreadModel(_)), "{target:?}");
        head.unread_model = None;
        head.model = Some("gpt-x".into());
        head.needs_endpoint = true;
        let target = RouteTarget::of(&head, &pool_registry.table());
        assert!(matches!(target, RouteTarget::UnknownModel(_)), "{target:?}");
    }

    #[tokio::test]
    async fn a_gateway_without_other_routes_gets_an_endpoint_for_any_path() {
        let config = config::parse("{ paths: ['*'] }").unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let head = RequestHead {
            method: "POST".into(),
            path: "/v1/audio/speech".into(),
            needs_endpoint: true,
            ..RequestHead::default()
        };
        let target = RouteTarget::of(&head, &pool_registry.table());
        assert!(matches!(target, RouteTarget::Pool(_)), "{target:?}");
    }

    #[tokio::test]
    async fn a_known_path_takes_its_methods_only() {
        let of = |method, path| target(TWO, method, path, "llama", "");
        assert_eq!(of("DELETE", "/v1/models/llama"), "only GET, HEAD");
        assert_eq!(of("OPTIONS", "/v1/chat/completions"), "only POST");
        assert_eq!(of("TRACE", "/v1/messages/count_tokens"), "only POST");
        assert_eq!(of("HEAD", "/v1/models"), "models");
        assert_eq!(of("", "/v1/completions"), "route llama");
        assert_eq!(of("DELETE", "/v1/rerank"), "route llama");
        assert_eq!(of("POST", "/v1/messages/count_tokens"), "route llama");
    }

    #[tokio::test]
    async fn the_service_is_healthy_while_a_replica_is() {
        let config = config::parse(TWO).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let head = RequestHead {
            method: "GET".into(),
            path: "/health?x=1".into(),
            ..RequestHead::default()
        };
        let is_healthy = || {
            let target = RouteTarget::of(&head, &pool_registry.table());
            let RouteTarget::Health(is_healthy) = target else {
                panic!("{target:?}");
            };
            is_healthy
        };
        assert!(!is_healthy());
        let pool = pool_registry.pool_for("qwen").unwrap();
        let replica = pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
        assert!(!is_healthy(), "it was never probed");
        let full = isotherm_router::Load {
            pending: 3,
            ..isotherm_router::Load::default()
        };
        pool.probed(replica, full, pool.clock().now());
        assert!(is_healthy(), "a full replica serves requests later");
    }

    #[tokio::test]
    async fn a_request_with_a_decision_passes_through() {
        let config = config::parse(TWO).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let head = RequestHead {
            model: Some("qwen".into()),
            is_decided: true,
            ..RequestHead::default()
        };
        let target = RouteTarget::of(&head, &pool_registry.table());
        assert!(
            matches!(target, RouteTarget::PassThrough(None)),
            "{target:?}"
        );
    }

    #[tokio::test]
    async fn a_request_that_no_filter_has_read_passes_through() {
        let config = config::parse(TWO).unwrap();
        let metrics = Metrics::register(&mut Registry::default());
        let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
        let mut head = RequestHead {
            method: "POST".into(),
            path: "/v1/completions".into(),
            ..RequestHead::default()
        };
        let target = RouteTarget::of(&head, &pool_registry.table());
        assert!(
            matches!(target, RouteTarget::PassThrough(None)),
            "{target:?}"
        );
        head.needs_endpoint = true;
        let target = RouteTarget::of(&head, &pool_registry.table());
        assert!(matches!(target, RouteTarget::MissingModel), "{target:?}");
    }

    #[tokio::test]
    async fn a_model_that_cannot_be_told_is_no_reason_for_the_default_cluster() {
        let of = |config: &str, path: &str| {
            let config = config::parse(config).unwrap();
            let metrics = Metrics::register(&mut Registry::default());
            let pool_registry = PoolRegistry::new(&config, Arc::new(metrics), Clock::start());
            let mut head = RequestHead {
                method: "POST".into(),
                path: path.into(),
                unread_model: Some(UnreadModel::TooFar),
                is_filtered: true,
                ..RequestHead::default()
            };
            head.headers.cluster = Some("l".into());
            RouteTarget::of(&head, &pool_registry.table())
        };
        let any = "{ paths: [/v1/completions, /v1/rerank], pools: [{ cluster: l }, { model: qwen, cluster: q }] }";
        let one = "{ paths: ['*', /v1/rerank], pools: [{ model: llama, cluster: l }] }";
        for path in ["/v1/completions", "/v1/rerank"] {
            let target = of(TWO, path);
            assert!(
                matches!(target, RouteTarget::UnreadModel(UnreadModel::TooFar)),
                "{target:?}"
            );
            for config in [any, one, "{ paths: ['*', /v1/rerank] }"] {
                let target = of(config, path);
                assert!(matches!(target, RouteTarget::Pool(_)), "{target:?}");
            }
        }
    }

    #[tokio::test]
    async fn without_a_model_the_filters_cluster_selects_the_pool() {
        assert_eq!(target(TWO, "POST", "/v1/rerank", "", "q"), "route qwen");
        assert_eq!(target(TWO, "GET", "/version", "", "q"), "pass q");
        assert_eq!(target(TWO, "POST", "/v1/rerank", "", ""), "pass ");
        assert_eq!(
            target(TWO, "POST", "/v1/completions", "", "elsewhere"),
            "no model"
        );
    }

    #[tokio::test]
    async fn a_path_of_a_stored_response_belongs_to_the_replica_that_has_it() {
        let config = config::parse(TWO).unwrap();
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let pool_registry = PoolRegistry::new(&config, Arc::clone(&metrics), Clock::start());
        let pool = pool_registry.pool_for("qwen").unwrap();
        let replica = pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
        let load = isotherm_router::Load::default();
        pool.probed(replica, load, pool.clock().now());
        let request = crate::pool::RouteRequest {
            tenant: Some("a".into()),
            ..crate::pool::RouteRequest::default()
        };
        let (guard, _) = pool.submit(&request);
        guard.store_response("resp_1");
        let of = |method: &str, path: &str, tenant: &str| {
            let headers = [
                (":method", method),
                (":path", path),
                (names::TENANT, tenant),
                (names::CLUSTER, "l"),
            ];
            let headers = headers.map(|(name, value)| (name, value.as_bytes()));
            let head = RequestHead::read(headers.into_iter(), ListenerKind::Clients, &metrics);
            RouteTarget::of(&head, &pool_registry.table())
        };
        for (method, below) in [
            ("GET", ""),
            ("DELETE", "?x=1"),
            ("POST", "/cancel"),
            ("GET", "/input_items"),
        ] {
            let target = of(method, &format!("/v1/responses/resp_1{below}"), "a");
            let RouteTarget::Holder(pool, replica) = &target else {
                panic!("{target:?}");
            };
            assert_eq!(&**pool.name(), "qwen");
            assert_eq!(replica.as_str(), "127.0.0.1:1");
        }
        for (path, tenant) in [("/v1/responses/resp_1", "b"), ("/v1/responses/resp_2", "a")] {
            let target = of("GET", path, tenant);
            let cluster = "l".to_owned();
            assert!(
                matches!(&target, RouteTarget::PassThrough(Some(of)) if *of == cluster),
                "{target:?}"
            );
        }
    }

    #[tokio::test]
    async fn the_only_pool_gets_requests_without_a_model() {
        let one = "{ paths: ['*', /v1/rerank, /version], pools: [{ model: llama, cluster: l }] }";
        assert_eq!(target(one, "POST", "/v1/rerank", "", ""), "route llama");
        assert_eq!(target(one, "GET", "/version", "", ""), "pass l");
        assert_eq!(
            target(one, "POST", "/v1/completions", "gpt", ""),
            "unknown gpt"
        );
    }

    #[tokio::test]
    async fn the_service_lists_the_models_unless_only_the_engine_knows_them() {
        assert_eq!(target(TWO, "GET", "/v1/models", "", ""), "models");
        assert_eq!(target(TWO, "GET", "/api/v1/models/?x=1", "", ""), "models");
        assert_eq!(
            target(TWO, "GET", "/v1/models/org%2Fllama", "", ""),
            "model org/llama"
        );
        assert_eq!(target(TWO, "GET", "/v1/models/gpt", "", ""), "unknown gpt");
        assert_eq!(target(TWO, "GET", "/v1/modelsx", "", ""), "other");
        assert_eq!(target("{}", "GET", "/v1/models", "", ""), "pass default");
        assert_eq!(
            target("{}", "POST", "/v1/completions", "gpt", ""),
            "route *"
        );
    }
}
