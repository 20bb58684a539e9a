//! The configuration file as written: every option with its kind, default and meaning.
//!
//! Each default stands here and nowhere else, or comes from the routing core, which owns its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use isotherm_fingerprint::Api;
use isotherm_fingerprint::paths::DEFAULT_PATHS;
use isotherm_policies::PolicyName;
use isotherm_router::{ForwardingRule, Push, RegionChoice, RouterConfig};
use strum::{AsRefStr, VariantArray};

use super::address::Address;
use super::decimal::{Decimal, decimal};
use super::engine::Engine;
use super::engine_priority::EnginePriority;
use super::kind::{
    boolean, choice, list, millis, number, optional, path, required, section as section_kind,
};
use super::listen::Listen;
use super::replica::{StaticReplica, static_replica};
use super::scaling::{RawScaling, ScalingConfig};
use super::section::section;
use super::service_port::ServicePort;
use super::tenants::RawTenants;
use super::text::{
    ANY_MODEL, allowed_path, api_path, cluster_name, collector_url, dial_address, header_name,
    host_name, label_selector, listen_address, model_name, namespace_name, network, object_name,
    push, region_name, service_port, socket_address,
};
use super::tiers::{RawOrder, RawTiers};

/// The most replicas that a pool lists.
const REPLICAS_MAX: usize = 10_000;
const POOLS_MAX: usize = 1_000;
/// The most paths that clients may use.
const ALLOWED_PATHS_MAX: usize = 256;
/// The most aliases of a pool.
const ALIASES_MAX: usize = 100;
/// The most other regions.
const PEERS_MAX: usize = 256;
/// The most networks of a region's replicas.
const NETWORKS_MAX: usize = 64;
/// The most members of an etcd cluster that a service reaches.
const ENDPOINTS_MAX: usize = 16;
/// The most other services of a region.
const SIBLINGS_MAX: usize = 64;
/// The most addresses that one service listens on.
const LISTEN_MAX: usize = 16;
/// The most ports of a pod that are replicas.
const POD_PORTS_MAX: usize = 8;

const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9003);
const REGION_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9004);

section! {
    /// A configuration file.
    pub(super) struct RawConfig {
        /// Addresses on which Envoy reaches the service by gRPC (external processing, decision streams, endpoint discovery, health). The file of a Unix socket has the mode 0660: a folder with the setgid bit gives it the group of Envoy.
        listen as "listen": Vec<Listen> = vec![Listen::default()], list(listen_address(), LISTEN_MAX);
        /// Whether `listen` may name TCP addresses beyond loopback. The service believes every client of them: use `tls` with `client_ca`, or keep foreign hosts away by other means.
        plaintext as "plaintext": bool = false, boolean();
        /// Further addresses of the same gRPC interface, with TLS, for Envoys on other hosts. Gateways of the Inference Extension expect it, and check no certificate.
        tls as "tls": Option<ListenTls> = None, optional(section_kind());
        /// An address that serves gRPC health checks alone, for an orchestrator. `listen` serves them, too.
        health_listen as "health_listen": Option<SocketAddr> = None, optional(socket_address());
        /// The HTTP interface for operators.
        admin as "admin": AdminConfig = AdminConfig::default(), section_kind();
        /// Requests from gateways, each on a stream of its own (external processing).
        ext_proc as "ext_proc": ExtProcConfig = ExtProcConfig::default(), section_kind();
        /// Whether clients get the header `x-isotherm-decision`, which names the selected replica and the reason.
        decision_header as "decision_header": bool = false, boolean();
        /// The paths that clients may use. Every other path gets a 404 in OpenAI's format. `/v1/models/*` stands for every path below `/v1/models`. With the entry `*`, the requests of other applications [pass untouched](security.md#beside-other-applications). The filter has the same list, and rejects first.
        paths as "paths": Vec<String> = DEFAULT_PATHS.map(str::to_owned).to_vec(), list(allowed_path(), ALLOWED_PATHS_MAX);
        /// The APIs of paths that a route rewrites. Clients may use these paths. The filter has the same list.
        apis as "apis": Vec<RawApiPath> = Vec::new(), list(section_kind(), ALLOWED_PATHS_MAX);
        /// What happens to a request whose model no pool has. `reject` answers 404. `pass` removes Isotherm's headers and leaves the request to Envoy's routes, such as one to a provider of other models. A model that the service cannot read never passes, and neither does a request of another region or of a gateway that needs an endpoint.
        unknown_models as "unknown_models": UnknownModels = UnknownModels::Reject,
            choice(UnknownModels::VARIANTS.iter().map(|what| (what.as_ref(), *what)));
        /// How long a stopping service waits for open streams.
        drain_max as "drain_ms_max": Duration = Duration::from_secs(30), millis(0..=3_600_000);
        /// The pools, one for each model.
        pools as "pools": Vec<RawPool> = vec![RawPool::default()], list(section_kind(), POOLS_MAX)
            => "one pool for every model; the admin interface adds its replicas";
        /// Whether the admin interface may record live traffic as a trace, with its token: `isotherm record`. A recording holds arrival times, the lengths of prompts and responses, and ids of prefixes that mean nothing outside the recording, and no text.
        recording as "recording": bool = false, boolean();
        /// Spans of requests, for a collector of OpenTelemetry. Without this section the service exports none.
        tracing as "tracing": Option<RawTracing> = None, optional(section_kind());
        /// This service's place among the services of other regions. Without this section it runs alone.
        region as "region": Option<RegionConfig> = None, optional(section_kind());
        /// Numbers of replicas: who learns them, and what the pools share.
        scaling as "scaling": ScalingConfig = ScalingConfig::default(), section_kind();
    }
}

section! {
    /// The API of a path that a route rewrites.
    pub(super) struct RawApiPath {
        /// The path as the client sends it, such as `/llm/openai`.
        path as "path": String = String::new(), required(api_path());
        /// The API to which the route rewrites the path.
        api as "api": Api = Api::ChatCompletions, required(choice(Api::all().map(|api| (api.name(), api))));
    }
}

section! {
    /// The HTTP interface for operators.
    pub struct AdminConfig {
        /// The address of the interface. Beyond loopback it needs `token_file`.
        listen as "listen": SocketAddr = ADMIN_LISTEN, socket_address();
        /// An address that serves `/metrics`, `/healthz` and `/readyz` alone, to every host that reaches it: for Prometheus and an orchestrator. `listen` serves them, too.
        metrics_listen as "metrics_listen": Option<SocketAddr> = None, optional(socket_address());
        /// A file with the bearer tokens, one on a line, each behind the name of its owner or alone. Every request that changes something must carry one of them; beyond loopback, every request for a page below `/api`. The service reads the file for each request. Relative to the configuration file. Without tokens, changes are rejected.
        token_file as "token_file": Option<PathBuf> = None, optional(path());
    }
}

section! {
    /// Addresses with TLS.
    pub struct ListenTls {
        /// The addresses.
        listen as "listen": Vec<SocketAddr> = Vec::new(), list(socket_address(), LISTEN_MAX) => "must be given";
        /// The chain of the service's certificate, as PEM. The service reads changed files again. Relative to the configuration file, like the key.
        certificate as "certificate": Option<PathBuf> = None, optional(path()) => "a self-signed certificate, made at each start";
        /// The certificate's private key, as PEM.
        key as "key": Option<PathBuf> = None, optional(path());
        /// The certificates of the authorities that sign for clients, as PEM: mutual TLS. The service reads a changed file again. Without it, every client that reaches the address is believed.
        client_ca as "client_ca": Option<PathBuf> = None, optional(path());
    }
}

section! {
    /// Requests from gateways, each on a stream of its own.
    pub struct ExtProcConfig {
        /// Whether the `x-isotherm-*` headers of a request come from the filter. `auto` trusts them if the gateway sends no request bodies: such a gateway has the filter in front. Headers that are not trusted are removed.
        trusted_headers as "trusted_headers": TrustedHeaders = TrustedHeaders::Auto,
            choice(TrustedHeaders::VARIANTS.iter().map(|trusted| (trusted.as_ref(), *trusted)));
        /// Whether Envoy's filter has `allow_mode_override: true`. The service then asks for the body of a request that has no fingerprint. An Envoy before 1.40 answers 500 to it.
        mode_override as "mode_override": bool = false, boolean();
        /// The most bytes of bodies that the service holds at once. Beyond it, the service decides on the bytes that have arrived. Of one body it reads at most 4 MiB before it decides; the rest passes through unread.
        held_bytes_max as "held_bytes_max": usize = 1 << 30, number("bytes", 1 << 20..=1 << 40);
        /// The longest time from the headers of a request to the end of its body, as far as the service reads it. The client then gets a 408. The time that the bytes take at 16 KiB a second comes on top, and the time in the queue does not count. 0 turns the limit off.
        body_timeout as "body_timeout_ms": Duration = Duration::from_secs(30), millis(0..=3_600_000);
        /// The most endpoints in a reply to a gateway that sends bodies or has no filter: the selected replica and its fallbacks. Only Istio accepts several; Envoy AI Gateway, llm-d's chart and agentgateway accept one.
        endpoints_max as "endpoints_max": usize = 1, number("number", 1..=4);
        /// The header with the tenant of a request, which authentication sets, for gateways without the filter. `tenant_sources` of the filter names it otherwise. Authentication must remove the client's own.
        tenant_header as "tenant_header": Option<String> = None, optional(header_name());
    }
}

/// Rule for a request whose model no pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum UnknownModels {
    /// The client gets a 404.
    #[default]
    Reject,
    /// Envoy's routes serve the request.
    Pass,
}

/// Whether the service trusts the `x-isotherm-*` headers of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AsRefStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TrustedHeaders {
    /// If the gateway sends no request bodies.
    #[default]
    Auto,
    /// The filter is in front of every gateway.
    Always,
    /// No gateway has the filter.
    Never,
}

section! {
    /// Spans of requests.
    pub(super) struct RawTracing {
        /// The collector, which takes OTLP by gRPC; `https://` for TLS. [Variables of the environment](operations.md#trace-requests) give it headers, a CA and attributes.
        endpoint as "endpoint": String = String::new(), required(collector_url());
        /// The share of requests without a trace of their caller for which the service begins one. A request with `traceparent` is sampled as its caller says.
        ratio as "ratio": Decimal = Decimal::nearest(0.0), decimal(0.0..=1.0);
    }
}

section! {
    /// An entry of `pools`.
    pub(super) struct RawPool {
        /// The model, as requests name it. `*` takes every model that no other pool names.
        model as "model": String = ANY_MODEL.into(), model_name();
        /// Other names of the same model.
        aliases as "aliases": Vec<String> = Vec::new(), list(model_name(), ALIASES_MAX);
        /// The Envoy cluster of this pool.
        cluster as "cluster": Option<String> = None, optional(cluster_name()) => "the model's name; `default` for `*`";
        /// The policy that selects a replica.
        policy as "policy": PolicyName = PolicyName::Isotherm,
            choice(PolicyName::ALL.iter().map(|policy| (policy.as_ref(), *policy)));
        /// When a replica may get one more request: `pending` if its last probe shows no waiting request and few requests sent since then have not begun, `outstanding:NUMBER` while it has fewer unfinished requests, `blind` always.
        push as "push": Push = RouterConfig::default().push, push();
        /// The objective for the time to first token. `policy: isotherm` serves requests that can still meet it before requests that cannot; `policy: dual_map` follows warm caches as long as it can be met.
        ttft_slo as "ttft_slo_ms": Duration = RouterConfig::default().ttft_slo, millis(1..=3_600_000);
        /// The engine, which names the metrics of the replicas. `auto` detects it by the names that a replica reports.
        engine as "engine": Option<Engine> = None,
            choice([("auto", None)].into_iter().chain(Engine::ALL.iter().map(|engine| (engine.option(), Some(*engine)))));
        /// How the service probes replicas for their load.
        probe as "probe": ProbeConfig = ProbeConfig::default(), section_kind();
        /// Requests that wait for a replica.
        queue as "queue": RawQueue = RawQueue::default(), section_kind();
        /// Bounds of each tenant. `tenant_sources` of the filter, or `ext_proc.tenant_header`, names the tenant of a request; the common tenant of all other requests has the same bounds. Without this section no tenant has a bound.
        tenants as "tenants": Option<RawTenants> = None, optional(section_kind());
        /// The workload tiers. Without this section the service ignores tiers, budgets and deadlines. `tiers: {}` takes every default.
        tiers as "tiers": Option<RawTiers> = None, optional(section_kind());
        /// The engine that learns by a header whether a request is batch work. `vllm`: `x-vllm-priority`, 0 or 1; vLLM needs `--scheduling-policy priority`. `sglang`: `x-override-priority`, 0 or -1; SGLang needs `--enable-priority-scheduling`.
        engine_priority as "engine_priority": EnginePriority = EnginePriority::default(),
            choice(EnginePriority::VARIANTS.iter().map(|engine| (engine.as_ref(), *engine)));
        /// How many replicas the pool needs, by a forecast of its demand. Without this section the service computes no number.
        scaling as "scaling": Option<RawScaling> = None, optional(section_kind());
        /// The most memory of the prefix index, which knows which replica has which prefix in its cache. A sixteenth of it is for the last replicas of sessions (about 48 bytes each), another one for the lengths of answers (about 64). A larger pool needs more.
        index_bytes_max as "index_bytes_max": usize = RouterConfig::default().index.bytes_max, number("bytes", 1 << 20..=1 << 40);
        /// Sources of replicas. The admin interface adds further ones, and a reload keeps those.
        replicas as "replicas": RawSources = RawSources::default(), section_kind();
    }
}

section! {
    /// How the service probes replicas.
    pub struct ProbeConfig {
        /// The time between two probes of a replica that has requests; an idle one is probed once a second. With thousands of replicas the service stretches it to a second at most, so that probes take a quarter of the processors.
        interval as "interval_ms": Duration = Duration::from_millis(100), millis(10..=60_000);
        /// The longest duration of a probe. A slow engine's answer may begin up to three times as late; the replica then counts as one without metrics. A replica without a good probe for three times the longer of this and `interval_ms`, and for three seconds at least, gets no new request.
        timeout as "timeout_ms": Duration = Duration::from_secs(1), millis(10..=60_000);
        /// For replicas that speak TLS: the certificates of the authorities that sign for them, as PEM. The service reads a changed file again. Relative to the configuration file. Requests go there by Envoy's cluster, which has a `transport_socket` of its own.
        ca as "ca": Option<PathBuf> = None, optional(path()) => "plain HTTP";
        /// With `ca` only: the name in the certificate of every replica.
        server_name as "server_name": Option<String> = None, optional(host_name()) => "each replica's IP address";
        /// A file with the bearer token that each probe carries, for engines that ask for one. The service reads a changed file again. Relative to the configuration file. Without `ca` the token crosses the network in clear.
        token_file as "token_file": Option<PathBuf> = None, optional(path());
    }
}

section! {
    /// `pools[].queue`.
    pub(super) struct RawQueue {
        /// The order of service. `auto`: with `policy: isotherm` by the time until each request's objective, those past it last; else first come, first served. `fcfs`: first come, first served. `edf`: the earliest objective first. `priority_first`: tier by tier. `dpa`: requests long past their objective, then the urgent ones of each tier, then the others, then those a little past theirs.
        order as "order": RawOrder = RawOrder::default(), RawOrder::kind();
        /// The most requests that wait; the service rejects further ones with status 503. Of the tier `non-interactive` a tenth as many wait; the service rejects further ones with status 429.
        len_max as "length_max": usize = RouterConfig::default().queue.length_max, number("number", 0..=1_000_000);
        /// The longest wait; the service then rejects the request with status 503. Keep it below `max_message_timeout` of Envoy's filter. The tier `non-interactive` has one of its own.
        wait_max as "wait_ms_max": Duration = RouterConfig::default().queue.wait_max, millis(0..=600_000);
    }
}

section! {
    /// `pools[].replicas`.
    pub(super) struct RawSources {
        /// Fixed addresses, each alone or in a section with its role.
        fixed as "static": Vec<StaticReplica> = Vec::new(), list(static_replica(), REPLICAS_MAX);
        /// A DNS name whose addresses are the replicas, those of one family, IPv4 if it has any, and their port. The service resolves the name every five seconds.
        dns as "dns": Option<Address> = None, optional(dial_address());
        /// Replicas that the API server of Kubernetes lists: those of an InferencePool, of a selector, or of a Service. The service reaches it as its pod's ServiceAccount, or else by KUBECONFIG.
        kubernetes as "kubernetes": Option<RawKubernetes> = None, optional(section_kind());
    }
}

section! {
    /// `pools[].replicas.kubernetes`.
    pub(super) struct RawKubernetes {
        /// The InferencePool whose ready pods are the replicas, each at every target port. One of `inference_pool`, `selector` and `service` must be given.
        inference_pool as "inference_pool": Option<String> = None, optional(object_name());
        /// A label selector whose ready pods are the replicas, each at every port of `ports`.
        selector as "selector": Option<String> = None, optional(label_selector());
        /// With `selector`: the ports of each pod, every one a replica. With `service`: the number at the pods, or the name, of the port of a Service with several.
        ports as "ports": Vec<ServicePort> = Vec::new(), list(service_port(), POD_PORTS_MAX);
        /// The Service whose endpoints are the replicas.
        service as "service": Option<String> = None, optional(object_name());
        /// The namespace of all of these.
        namespace as "namespace": Option<String> = None, optional(namespace_name())
            => "the namespace of this pod, or of the context of KUBECONFIG";
    }
}

section! {
    /// The configuration of a service that takes part in several regions.
    pub struct RegionConfig {
        /// This region's name: a DNS label, which its certificate carries as `NAME.isotherm`.
        name as "name": String = String::new(), required(region_name());
        /// The address on which services of other regions, and siblings, reach the service.
        listen as "listen": SocketAddr = REGION_LISTEN, socket_address();
        /// Certificates: links between services use mutual TLS. The service reads changed files again.
        tls as "tls": Option<TlsFiles> = None, optional(section_kind()) => "must be given, unless every address is a loopback address";
        /// The time between two heartbeats. A region that misses three counts as lost.
        heartbeat as "heartbeat_ms": Duration = Duration::from_millis(200), millis(20..=10_000);
        /// Which requests leave this region, and for which one. `cost`: a request leaves when no replica here is available, unless its first token comes earlier here. It also leaves a free replica when another region is cheaper by a margin. Under policies other than `isotherm`, it leaves a free replica when another region is warmer. `published`: SkyLB's own rule, without these exceptions. `utilisation`: SageServe's rule, a request goes to the first region, this one before the nearest, that uses less than 70 % of the memory for KV caches; if there is none, to the one that uses the least.
        forwarding as "forwarding": (ForwardingRule, RegionChoice) = (ForwardingRule::Cost, RegionChoice::Availability),
            choice([
                ("cost", (ForwardingRule::Cost, RegionChoice::Availability)),
                ("published", (ForwardingRule::Published, RegionChoice::Availability)),
                ("utilisation", (ForwardingRule::Cost, RegionChoice::Utilisation)),
            ]);
        /// The store of the leases, by which a region takes the replicas of another one that is gone. Without it, each region keeps its own replicas and takes no others.
        store as "store": Option<StoreConfig> = None, optional(section_kind());
        /// The other regions.
        peers as "peers": Vec<PeerConfig> = Vec::new(), list(section_kind(), PEERS_MAX);
        /// The other services of this region (their `region.listen`), one address each; every service lists all others. Siblings share their prefix index, and answer peers for each other.
        siblings as "siblings": Vec<Address> = Vec::new(), list(dial_address(), SIBLINGS_MAX);
        /// In Kubernetes, instead of `siblings`: the headless Service of this service's own pods, which are the siblings, at the port of `region.listen`. The service follows them without a restart.
        siblings_service as "siblings_service": Option<String> = None, optional(object_name());
    }
}

section! {
    /// PEM files for mutual TLS. The service reads changed files again.
    pub struct TlsFiles {
        /// The chain of this region's certificate, as PEM. Relative to the configuration file, like the others.
        certificate as "certificate": PathBuf = PathBuf::new(), required(path());
        /// The certificate's private key, as PEM.
        key as "key": PathBuf = PathBuf::new(), required(path());
        /// The certificate of the private authority that signs for regions, as PEM.
        ca as "ca": PathBuf = PathBuf::new(), required(path());
    }
}

section! {
    /// Another region.
    pub struct PeerConfig {
        /// The name of the other region. The Envoy cluster that leads to it is `region-` and the name.
        name as "name": String = String::new(), required(region_name());
        /// The address of its service (its `region.listen`).
        address as "address": Address = Address::unspecified(), required(dial_address());
        /// The networks of its replicas, such as `10.2.0.0/16`. The service uses no address outside them, whatever the store says.
        replicas as "replicas": Vec<IpNet> = Vec::new(), list(network(), NETWORKS_MAX) => "`region.store.networks`";
    }
}

section! {
    /// The store of the leases, the same for all regions: etcd, or Lease objects of Kubernetes.
    pub struct StoreConfig {
        /// The client addresses of the members of an etcd cluster, version 3.4 or later. The keys begin with `/isotherm/regions/`.
        etcd as "etcd": Vec<Address> = Vec::new(), list(dial_address(), ENDPOINTS_MAX);
        /// With `etcd` only: certificates for its client port. Without them the connections have no TLS.
        tls as "tls": Option<TlsFiles> = None, optional(section_kind());
        /// The namespace of Lease objects of one Kubernetes API server, which all regions reach.
        kubernetes as "kubernetes": Option<String> = None, optional(namespace_name());
        /// The duration of a lease, the same in all regions, at least three times `heartbeat_ms`. The replicas of a dead region serve again after it, and a recovered region gets the lease of its replicas back when it has been well for so long.
        lease as "lease_ms": Duration = Duration::from_secs(10), millis(1_000..=600_000);
        /// The address of this region's service (its `region.listen`) for other regions. With it the store names this region, and the others need no entry in `peers`.
        advertise as "advertise": Option<Address> = None, optional(dial_address());
        /// The networks of the replicas of regions that have no `replicas` in `peers`. The service uses no address outside them; without any, it takes no replica of such a region.
        networks as "networks": Vec<IpNet> = Vec::new(), list(network(), NETWORKS_MAX);
    }
}
