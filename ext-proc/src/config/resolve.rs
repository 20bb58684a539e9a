//! From the file as written to the configuration: rules that concern several options.
//!
//! The kind of each option has checked it on its own.

use std::net::SocketAddr;

use isotherm_router::{IndexLimits, Push, QueueLimits, RouterConfig};

use super::errors::{Reader, UniqueNames};
use super::kind::List;
use super::options::{ProbeConfig, RawConfig, RawPool, RawReplicas};
use super::text::{ANY_MODEL, is_visible};
use super::{Config, Listen, PoolConfig, Sources, region};

/// The cluster of the pool for every other model.
const ANY_CLUSTER: &str = "default";

/// Resolves a file. The result is meaningful only if `reader` has no mistakes.
pub(super) fn resolve(raw: RawConfig, reader: &mut Reader) -> Config {
    let listen = resolve_listen(&raw, reader);
    let mut models = UniqueNames::new("model");
    let mut clusters = UniqueNames::new("cluster");
    let mut pools = Vec::new();
    for (index, pool) in raw.pools {
        let option = format!("pools[{index}]");
        check_models(&pool, &option, &mut models, reader);
        let pool = resolve_pool(pool, &option, reader);
        // An invalid model names no cluster.
        let (model, cluster) = (format!("{option}.model"), format!("{option}.cluster"));
        if reader.is_given(&cluster) || reader.is_valid(&model) {
            clusters.claim(&pool.cluster, &cluster, reader);
        }
        pools.push(pool);
    }
    let region = region::resolve(raw.region, &mut clusters, reader);
    for pool in &mut pools {
        if let Some(region) = &region {
            pool.router.region = region.rules();
        }
    }
    Config {
        listen,
        admin: raw.admin,
        decision_header: raw.decision_header,
        drain_max: raw.drain_max,
        pools,
        recording: raw.recording,
        region,
    }
}

/// Checks the listening addresses: each may be used once, except port 0, which takes a free port.
fn resolve_listen(raw: &RawConfig, reader: &mut Reader) -> Vec<Listen> {
    if raw.listen.is_empty() && reader.is_valid("listen") {
        reader.error("listen", "empty: Envoy could not reach the service");
    }
    let mut taken = UniqueNames::new("address");
    for (index, address) in &raw.listen {
        if !matches!(address, Listen::Tcp(tcp) if tcp.port() == 0) {
            taken.claim(address, &format!("listen[{index}]"), reader);
        }
    }
    if raw.admin.listen.port() != 0 {
        taken.claim(raw.admin.listen, "admin.listen", reader);
    }
    if reader.is_given("region") && raw.region.listen.port() != 0 {
        taken.claim(raw.region.listen, "region.listen", reader);
    }
    values(raw.listen.clone())
}

/// Checks that no other pool has the model or an alias.
fn check_models(pool: &RawPool, option: &str, models: &mut UniqueNames, reader: &mut Reader) {
    models.claim(&pool.model, &format!("{option}.model"), reader);
    for (index, alias) in &pool.aliases {
        let option = format!("{option}.aliases[{index}]");
        if alias == ANY_MODEL {
            reader.error(&option, "`*` is no alias: make it the model of a pool");
        } else {
            models.claim(alias, &option, reader);
        }
    }
}

fn resolve_pool(raw: RawPool, option: &str, reader: &mut Reader) -> PoolConfig {
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
    PoolConfig {
        model: raw.model,
        aliases: values(raw.aliases),
        cluster,
        router: RouterConfig {
            policy: raw.policy,
            push: resolve_push(raw.push, raw.outstanding_max, option, reader),
            queue: QueueLimits {
                length_max: raw.queue.len_max,
                wait_max: raw.queue.wait_max,
            },
            index: IndexLimits {
                bytes_max: raw.index.bytes_max,
                eviction: raw.index.eviction,
            },
            ttft_slo: raw.ttft_slo,
            probe_stale_after: raw.probe.stale_after,
            ..RouterConfig::default()
        },
        engine: raw.engine,
        probe: raw.probe,
        sources: resolve_sources(raw.replicas, &format!("{option}.replicas"), reader),
    }
}

fn resolve_push(push: Push, outstanding_max: u32, option: &str, reader: &mut Reader) -> Push {
    let name = match push {
        Push::Outstanding { .. } => {
            return Push::Outstanding {
                max: outstanding_max,
            };
        }
        Push::Pending => "pending",
        Push::Blind => "blind",
    };
    let option_of_limit = format!("{option}.outstanding_max");
    if reader.is_given(&option_of_limit) && reader.is_valid(&format!("{option}.push")) {
        let message =
            format!("has no effect with `push: {name}`: remove it, or write `push: outstanding`");
        reader.error(&option_of_limit, message);
    }
    push
}

fn check_probe(probe: &ProbeConfig, option: &str, reader: &mut Reader) {
    let (interval, stale) = (
        format!("{option}.probe.interval_ms"),
        format!("{option}.probe.stale_after_ms"),
    );
    let is_too_short = probe.stale_after <= probe.interval;
    if is_too_short && reader.is_valid(&interval) && reader.is_valid(&stale) {
        let message = format!(
            "{} ms is not longer than interval_ms ({}): every replica would go stale between two probes",
            probe.stale_after.as_millis(),
            probe.interval.as_millis()
        );
        let given = if reader.is_given(&stale) {
            &stale
        } else {
            &interval
        };
        reader.error_at(reader.location(given), &stale, message);
    }
}

fn resolve_sources(raw: RawReplicas, option: &str, reader: &mut Reader) -> Sources {
    let mut addresses = UniqueNames::new("replica");
    for (index, address) in &raw.fixed {
        let option = format!("{option}.static[{index}]");
        addresses.claim(address, &option, reader);
        if address.port() == 0 {
            reader.error(&option, "port 0 reaches nothing");
        }
    }
    Sources {
        fixed: values::<SocketAddr>(raw.fixed),
        dns: raw.dns,
    }
}

fn values<T>(list: List<T>) -> Vec<T> {
    list.into_iter().map(|(_, value)| value).collect()
}
