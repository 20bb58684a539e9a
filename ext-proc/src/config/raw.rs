//! The configuration file as it is written: every option with its type, default and meaning.
//!
//! Each default stands here and nowhere else, or is taken from the routing core, which owns its own.

use std::net::SocketAddr;

use isotherm_router::{Eviction, PolicyName, RouterConfig};

use super::address::Address;
use super::listen::Listen;
use super::names::{ClusterName, HostName, ModelName, ProbePath, RegionName};
use super::number::{Bytes, Count, Millis};
use super::section::section;
use super::value::{FilePath, List, Maybe, OneOf};
use super::{EngineKind, PushName};

/// How many entries a list of addresses may have.
const REPLICAS_MAX: usize = 10_000;
/// How many pools a file may have.
const POOLS_MAX: usize = 1_000;
/// How many aliases a pool may have.
const ALIASES_MAX: usize = 100;
/// How many other regions a file may name.
const PEERS_MAX: usize = 256;
/// How many other services a region may have.
const SIBLINGS_MAX: usize = 64;
/// On how many addresses one service may listen.
const LISTEN_MAX: usize = 16;

section! {
    /// The whole file.
    pub(super) struct RawConfig {
        /// Where Envoy reaches the service by gRPC (external processing, endpoint discovery, health).
        listen: List<Listen, LISTEN_MAX> = List::of(Listen::default());
        /// The HTTP interface for operators.
        admin: RawAdmin = RawAdmin::default();
        /// Whether clients get the header `x-isotherm-decision`, which says where their request went and why.
        decision_header: bool = false;
        /// How long a stop waits for streams that are still open.
        drain_ms_max: Millis<0, 3_600_000> = Millis::clamped(30_000);
        /// The pools, one for each model.
        pools: List<RawPool, POOLS_MAX> = List::of(RawPool::default())
            => "one pool for every model, its replicas added through the admin interface";
        /// Recording live traffic as a trace, without any text: `isotherm record`.
        recording: RawRecording = RawRecording::default();
        /// This service among those of other regions. Without this section it takes part in nothing of the kind.
        region: RawRegion = RawRegion::default();
    }
}

section! {
    /// `admin`.
    pub(super) struct RawAdmin {
        /// Where it listens. Whoever reaches it can read the state of the service.
        listen: SocketAddr = super::DEFAULT_ADMIN;
        /// A file with the bearer token that every request which changes something must carry. Relative to the configuration file. Without one, such requests are refused.
        token_file: Maybe<FilePath> = Maybe(None);
    }
}

section! {
    /// `recording`.
    pub(super) struct RawRecording {
        /// Whether the admin interface may record. What is recorded is when requests come, how long they and their answers are, and ids of their prefixes that mean nothing outside the recording; it takes the token.
        enabled: bool = false;
    }
}

section! {
    /// One of `pools`.
    pub(super) struct RawPool {
        /// The model, as requests name it. `*` takes every model that no other pool names.
        model: ModelName = ModelName::any();
        /// Other names of the same model.
        aliases: List<ModelName, ALIASES_MAX> = List(Vec::new());
        /// The Envoy cluster of this pool.
        cluster: Maybe<ClusterName> = Maybe(None) => "the model's name; `default` for `*`";
        /// How a replica is chosen.
        policy: OneOf<PolicyName> = OneOf(RouterConfig::default().policy);
        /// When a replica may get one more request: `pending` when its last probe shows nothing waiting there and its headroom allows it, `outstanding` below a fixed number, `blind` always.
        push: OneOf<PushName> = OneOf(PushName::from(RouterConfig::default().push));
        /// With `push: outstanding` only: how many unfinished requests a replica may have.
        outstanding_max: Count<1, 1_000_000> = Count::clamped(32);
        /// How soon a request is to have its first token. `policy: isotherm` serves those that can still have it by then before those that cannot; `policy: dual_map` follows warm caches for as long as it can be met.
        ttft_slo_ms: Millis<1, 3_600_000> = Millis::clamped(millis(RouterConfig::default().ttft_slo));
        /// Whose metric names the replicas use. `auto` recognises them by what they report.
        engine: OneOf<EngineKind> = OneOf(EngineKind::Auto);
        /// How replicas are asked for their load.
        probe: RawProbe = RawProbe::default();
        /// Requests that wait until a replica can take them.
        queue: RawQueue = RawQueue::default();
        /// What is remembered of which prefix lies where.
        index: RawIndex = RawIndex::default();
        /// Where replicas come from. Those added through the admin interface come on top, and a reload keeps them.
        replicas: RawReplicas = RawReplicas::default();
    }
}

section! {
    /// `pools[].probe`.
    pub(super) struct RawProbe {
        /// The time between two probes of one replica.
        interval_ms: Millis<10, 60_000> = Millis::clamped(100);
        /// How long a probe may take.
        timeout_ms: Millis<10, 60_000> = Millis::clamped(1_000);
        /// A replica whose last good probe is older than this gets nothing new.
        stale_after_ms: Millis<20, 600_000> =
            Millis::clamped(millis(RouterConfig::default().probe_stale_after));
        /// The path of the metrics page.
        path: Maybe<ProbePath> = Maybe(None) => "the engine's own (`/metrics`, or `/prometheus/metrics`)";
    }
}

section! {
    /// `pools[].queue`.
    pub(super) struct RawQueue {
        /// How many requests may wait; one more is refused with status 503.
        length_max: Count<0, 1_000_000> = Count::clamped(RouterConfig::default().queue.length_max as u64);
        /// How long a request may wait before it is refused with status 503. Keep it below `max_message_timeout` of Envoy's filter.
        wait_ms_max: Millis<0, 600_000> = Millis::clamped(millis(RouterConfig::default().queue.wait_max));
    }
}

section! {
    /// `pools[].index`.
    pub(super) struct RawIndex {
        /// How much memory the prefix index may take.
        bytes_max: Bytes<1_048_576, 1_099_511_627_776> =
            Bytes::clamped(RouterConfig::default().index.bytes_max as u64);
        /// What it forgets first: `lru` what was not used for longest, `fifo` what came first.
        eviction: OneOf<Eviction> = OneOf(RouterConfig::default().index.eviction);
    }
}

section! {
    /// `pools[].replicas`.
    pub(super) struct RawReplicas {
        /// Addresses that stay.
        r#static: List<SocketAddr, REPLICAS_MAX> = List(Vec::new());
        /// A name whose addresses are the replicas.
        dns: Maybe<RawDns> = Maybe(None);
    }
}

section! {
    /// `pools[].replicas.dns`.
    pub(super) struct RawDns {
        /// The name to resolve.
        name: Maybe<HostName> = Maybe(None) => "must be given";
        /// The port of every replica.
        port: Count<1, 65_535> = Count::clamped(8_000);
        /// How often it is resolved again.
        interval_ms: Millis<100, 3_600_000> = Millis::clamped(5_000);
    }
}

section! {
    /// `region`.
    pub(super) struct RawRegion {
        /// This region's name: a DNS label, which its certificate carries as `NAME.isotherm`.
        name: Maybe<RegionName> = Maybe(None) => "must be given";
        /// Where the services of other regions, and other services of this one, reach the service.
        listen: SocketAddr = super::DEFAULT_REGION_LISTEN;
        /// Certificates: links between services use mutual TLS. Files are read again when they change.
        tls: Maybe<RawTls> = Maybe(None) => "must be given, unless `plaintext: true`";
        /// Links without protection, for tests on one machine: every address must be a loopback one.
        plaintext: bool = false;
        /// The time between two heartbeats. A region that is silent for three of them counts as lost.
        heartbeat_ms: Millis<20, 10_000> = Millis::clamped(200);
        /// The longest queue with which a region still takes requests of other regions (tau).
        queue_max: Count<0, 1_000_000> = Count::clamped(4);
        /// Whether this region may take over the replicas of a region that died.
        adopt: bool = true;
        /// How long a region must have been healthy before it gets its replicas back.
        give_back_after_ms: Millis<0, 3_600_000> = Millis::clamped(10_000);
        /// Where it is kept which replicas other regions have. Relative to the configuration file. Without one, a restart forgets it until those regions are heard again.
        state_file: Maybe<FilePath> = Maybe(None);
        /// The other regions.
        peers: List<RawPeer, PEERS_MAX> = List(Vec::new());
        /// The other services of this region (their `region.listen`), one address for each; every service names all others. They share what lies where, and answer peers for each other.
        siblings: List<Address, SIBLINGS_MAX> = List(Vec::new());
    }
}

section! {
    /// `region.tls`.
    pub(super) struct RawTls {
        /// The chain of this region's certificate, as PEM. Relative to the configuration file, like the others.
        certificate: Maybe<FilePath> = Maybe(None) => "must be given";
        /// Its private key, as PEM.
        key: Maybe<FilePath> = Maybe(None) => "must be given";
        /// Whose signatures are believed, as PEM: a private authority that signs for regions only.
        ca: Maybe<FilePath> = Maybe(None) => "must be given";
    }
}

section! {
    /// One of `region.peers`.
    pub(super) struct RawPeer {
        /// The other region's name.
        name: Maybe<RegionName> = Maybe(None) => "must be given";
        /// Where its service listens (its `region.listen`).
        address: Maybe<Address> = Maybe(None) => "must be given";
        /// The Envoy cluster that leads to it.
        cluster: Maybe<ClusterName> = Maybe(None) => "`region-` and its name";
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
