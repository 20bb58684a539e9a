//! From the file as written to the configuration: rules that concern several options.
//!
//! The kind of each option has checked it on its own.

use std::time::Duration;

use isotherm_fingerprint::paths::AllowedPaths;
use isotherm_router::{IndexLimits, QueueLimits, RouterConfig};

use super::errors::{Reader, UniqueNames};
use super::options::{ProbeConfig, RawApiPath, RawConfig, RawPool, RawSources};
use super::text::{ANY_MODEL, is_visible};
use super::{
    Config, Listen, PoolConfig, PoolScalingConfig, Sources, TracingConfig, kubernetes, region,
    scaling, tenants, tiers,
};

/// A probe is stale after so many times the longer of its interval and its longest duration.
const STALE_PROBES: u32 = 3;
/// The cluster of the pool for every other model.
const ANY_CLUSTER: &str = "default";

/// Resolves a file. The result is meaningful only if `reader` has no mistakes.
pub(super) fn resolve(raw: RawConfig, reader: &mut Reader) -> Config {
    check_listen(&raw, reader);
    check_plaintext(&raw, reader);
    check_tls(&raw, reader);
    check_admin(&raw, reader);
    let mut models = UniqueNames::new("model");
    let mut clusters = UniqueNames::new("cluster");
    let mut pools = Vec::new();
    for (entry, pool) in reader.entries("pools", &raw.pools) {
        check_models(pool, &entry, &mut models, reader);
        let pool = resolve_pool(pool.clone(), &entry, reader);
        // An invalid model names no cluster.
        let (model, cluster) = (format!("{entry}.model"), format!("{entry}.cluster"));
        if reader.is_given(&cluster) || reader.is_valid(&model) {
            clusters.claim(&pool.cluster, &cluster, reader);
        }
        pools.push(pool);
    }
    let region = raw.region;
    if let Some(region) = &region {
        region::check(region, &mut clusters, reader);
        for pool in &mut pools {
            pool.router.region = region.rules();
        }
    }
    let scaled: Vec<_> = pools
        .iter()
        .filter_map(|pool| pool.scaling.as_ref())
        .collect();
    scaling::check(&raw.scaling, &scaled, reader);
    Config {
        scaling: raw.scaling,
        listen: raw.listen,
        tls: raw.tls,
        health_listen: raw.health_listen,
        admin: raw.admin,
        ext_proc: raw.ext_proc,
        decision_header: raw.decision_header,
        allowed_paths: allowed_paths(&raw.paths, &raw.apis),
        unknown_models: raw.unknown_models,
        drain_max: raw.drain_max,
        pools,
        recording: raw.recording,
        tracing: raw.tracing.map(|raw| TracingConfig {
            endpoint: raw.endpoint,
            ratio: raw.ratio.to_f64(),
        }),
        region,
    }
}

/// The paths of clients. The kinds of the options have checked each entry.
fn allowed_paths(entries: &[String], apis: &[RawApiPath]) -> AllowedPaths {
    let mut paths = AllowedPaths::parse(entries).unwrap_or_default();
    for entry in apis {
        let _ = paths.add_api(&entry.path, entry.api);
    }
    paths
}

/// Checks the listening addresses: each may be used once, except port 0, which takes a free port.
fn check_listen(raw: &RawConfig, reader: &mut Reader) {
    if raw.listen.is_empty() {
        reader.error("listen", "empty: Envoy could not reach the service");
    }
    let mut taken = UniqueNames::new("address");
    for (entry, address) in reader.entries("listen", &raw.listen) {
        if !matches!(address, Listen::Tcp(tcp) if tcp.port() == 0) {
            taken.claim(address, &entry, reader);
        }
    }
    let with_tls = raw.tls.as_ref().map_or(&[][..], |tls| &tls.listen);
    for (entry, address) in reader.entries("tls.listen", with_tls) {
        if address.port() != 0 {
            taken.claim(address, &entry, reader);
        }
    }
    if let Some(address) = raw.health_listen.filter(|address| address.port() != 0) {
        taken.claim(address, "health_listen", reader);
    }
    if raw.admin.listen.port() != 0 {
        taken.claim(raw.admin.listen, "admin.listen", reader);
    }
    if let Some(address) = raw
        .scaling
        .keda_listen
        .filter(|address| address.port() != 0)
    {
        taken.claim(address, "scaling.keda_listen", reader);
    }
    let metrics = raw.admin.metrics_listen;
    if let Some(address) = metrics.filter(|address| address.port() != 0) {
        taken.claim(address, "admin.metrics_listen", reader);
    }
    if let Some(region) = raw
        .region
        .as_ref()
        .filter(|region| region.listen.port() != 0)
    {
        taken.claim(region.listen, "region.listen", reader);
    }
}

/// Checks that no plaintext address is open to other hosts, unless the file asks for that.
fn check_plaintext(raw: &RawConfig, reader: &mut Reader) {
    if raw.plaintext || !reader.is_valid("plaintext") {
        return;
    }
    for (entry, address) in reader.entries("listen", &raw.listen) {
        if address.is_beyond_loopback() {
            let message = format!(
                "{address} is open to other hosts, and the service believes every client of it: move it to `tls` with \
                 `client_ca`, or write `plaintext: true` if other means keep foreign hosts away"
            );
            reader.error(&entry, message);
        }
    }
}

/// Checks that a certificate has its key, and that there is an address.
fn check_tls(raw: &RawConfig, reader: &mut Reader) {
    let Some(tls) = &raw.tls else { return };
    if tls.listen.is_empty() {
        reader.error(
            "tls.listen",
            "must be given: an address such as 0.0.0.0:9002",
        );
    }
    if tls.certificate.is_some() != tls.key.is_some() {
        let message = "`certificate` and `key` belong together: give both or none";
        reader.error("tls", message);
    }
}

/// Checks that the admin interface has a token if other hosts can reach it.
fn check_admin(raw: &RawConfig, reader: &mut Reader) {
    let (listen, token) = ("admin.listen", "admin.token_file");
    let is_open = !raw.admin.listen.ip().is_loopback() && raw.admin.token_file.is_none();
    if is_open && reader.is_valid(listen) && reader.is_valid(token) {
        let message = format!(
            "must be given: {} is open to other hosts (give `metrics_listen` instead of `listen` if they need metrics and \
             health only)",
            raw.admin.listen
        );
        reader.error_at(reader.location(listen), token, message);
    }
}

/// Checks that no other pool has the model or an alias.
fn check_models(pool: &RawPool, option: &str, models: &mut UniqueNames, reader: &mut Reader) {
    models.claim(&pool.model, &format!("{option}.model"), reader);
    for (entry, alias) in reader.entries(&format!("{option}.aliases"), &pool.aliases) {
        if alias == ANY_MODEL {
            reader.error(&entry, "`*` is no alias: make it the model of a pool");
        } else {
            models.claim(alias, &entry, reader);
        }
    }
}

fn resolve_pool(raw: RawPool, option: &str, reader: &mut Reader) -> PoolConfig {
    let queue = resolve_queue(&raw, option, reader);
    let tiers = raw.tiers.as_ref();
    let tiers = tiers.map(|tiers| tiers::resolve(tiers, raw.ttft_slo, &queue));
    let cluster = match raw.cluster {
        Some(cluster) => cluster,
        None if raw.model == ANY_MODEL => ANY_CLUSTER.to_owned(),
        None => {
            if !is_visible(&raw.model) {
                let message = format!(
                    "`{}` cannot name an Envoy cluster (visible ASCII characters only): give `cluster` as well",
                    raw.model
                );
                reader.error(&format!("{option}.model"), message);
            }
            raw.model.clone()
        }
    };
    check_probe(&raw.probe, option, reader);
    let scaling = raw
        .scaling
        .map(|raw| scaling::resolve(raw, &format!("{option}.scaling"), reader));
    let sources = resolve_sources(raw.replicas, option, reader);
    let starts_from_zero = scaling
        .as_ref()
        .is_some_and(PoolScalingConfig::starts_from_zero);
    PoolConfig {
        model: raw.model,
        aliases: raw.aliases,
        cluster,
        router: RouterConfig {
            policy: raw.policy.into(),
            push: raw.push,
            queue,
            index: IndexLimits {
                bytes_max: raw.index_bytes_max,
                ..RouterConfig::default().index
            },
            ttft_slo: raw.ttft_slo,
            probe_stale_after: stale_after(&raw.probe),
            starts_from_zero,
            tenants: raw
                .tenants
                .map(|raw| tenants::resolve(&raw, option, reader)),
            tiers,
            ..RouterConfig::default()
        },
        engine: raw.engine,
        engine_priority: raw.engine_priority,
        probe: raw.probe,
        sources,
        scaling,
    }
}

fn resolve_queue(raw: &RawPool, option: &str, reader: &mut Reader) -> QueueLimits {
    let queue = &raw.queue;
    let has_tiers = raw.tiers.is_some();
    QueueLimits {
        length_max: queue.len_max,
        wait_max: queue.wait_max,
        order: tiers::resolve_order(queue.order, has_tiers, option, reader),
    }
}

/// The age at which a probe is stale.
fn stale_after(probe: &ProbeConfig) -> Duration {
    let least = RouterConfig::default().probe_stale_after;
    least.max(probe.interval.max(probe.timeout) * STALE_PROBES)
}

/// Checks that a name in certificates has authorities that sign them.
fn check_probe(probe: &ProbeConfig, option: &str, reader: &mut Reader) {
    let [ca, name] = ["ca", "server_name"].map(|member| format!("{option}.probe.{member}"));
    if probe.ca.is_none() && probe.server_name.is_some() && reader.is_valid(&ca) {
        reader.error(&name, "has no effect without `ca`: give both, or remove it");
    }
}

fn resolve_sources(raw: RawSources, option: &str, reader: &mut Reader) -> Sources {
    let mut addresses = UniqueNames::new("replica");
    let fixed = format!("{option}.replicas.static");
    for (entry, replica) in reader.entries(&fixed, &raw.fixed) {
        // The address of a section stands at an option of its own.
        let in_section = format!("{entry}.address");
        if !reader.is_valid(&in_section) {
            continue;
        }
        let option = match reader.is_given(&in_section) {
            true => in_section,
            false => entry,
        };
        addresses.claim(replica.address, &option, reader);
        if replica.address.port() == 0 {
            reader.error(&option, "port 0 reaches nothing");
        }
    }
    let option = format!("{option}.replicas.kubernetes");
    if let Some(source) = &raw.kubernetes {
        let mut ports = UniqueNames::new("port");
        for (entry, port) in reader.entries(&format!("{option}.ports"), &source.ports) {
            ports.claim(port, &entry, reader);
        }
    }
    let kubernetes = raw.kubernetes;
    Sources {
        fixed: raw.fixed,
        dns: raw.dns,
        kubernetes: kubernetes.and_then(|raw| kubernetes::resolve(raw, &option, reader)),
    }
}
