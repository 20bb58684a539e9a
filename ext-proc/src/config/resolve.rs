//! From the file as written to what it means: options that must fit together.
//!
//! Each option has been checked on its own by its type; here are the rules that take two of them to break.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use isotherm_router::{IndexLimits, Push, QueueLimits, RouterConfig};

use super::errors::{Errors, SourceLocation};
use super::names::PushName;
use super::raw::{RawConfig, RawPool, RawProbe, RawReplicas};
use super::region;
use super::value::Item;
use super::{
    AdminConfig, Config, DnsSource, Listen, PoolConfig, ProbeConfig, RecordingConfig, Sources,
};

/// The cluster of the pool for every other model.
const ANY_CLUSTER: &str = "default";

/// What an empty file means.
pub(super) fn defaults() -> Config {
    // An empty file has no mistakes; a test says so.
    resolve(RawConfig::default(), &mut Errors::default())
}

/// What `raw` means. The result counts only when there were no mistakes.
pub(super) fn resolve(raw: RawConfig, errors: &mut Errors) -> Config {
    let listen = listen(&raw, errors);
    let mut models = Unique::new("model");
    let mut clusters = Unique::new("cluster");
    let mut pools = Vec::new();
    for pool in &raw.pools.value.0 {
        let option = format!("pools[{}]", pool.index);
        let resolved = resolve_pool(pool, &option, errors);
        let model = &pool.value.model;
        let location = model.location.or(pool.location);
        if !model.wrong {
            models.claim(
                &resolved.model,
                location,
                &format!("{option}.model"),
                errors,
            );
        }
        for alias in &pool.value.aliases.value.0 {
            let option = format!("{option}.aliases[{}]", alias.index);
            if alias.value.is_any() {
                let message = "`*` is no alias: make it the model of a pool";
                errors.add(alias.location, option, message);
            } else {
                models.claim(&alias.value.0, alias.location, &option, errors);
            }
        }
        let cluster = &pool.value.cluster;
        let known = cluster.location.is_some() || !model.wrong;
        if known && !cluster.wrong {
            let location = cluster.location.or(location);
            clusters.claim(
                &resolved.cluster,
                location,
                &format!("{option}.cluster"),
                errors,
            );
        }
        pools.push(resolved);
    }
    let region = region::resolve(&raw.region, &mut clusters, errors);
    if let Some(region) = &region {
        for pool in &mut pools {
            pool.router.region = region.rules();
        }
    }
    Config {
        listen,
        admin: AdminConfig {
            listen: raw.admin.value.listen.value,
            token_file: raw.admin.value.token_file.value.0.map(|path| path.0),
        },
        decision_header: raw.decision_header.value,
        drain_max: raw.drain_ms_max.value.duration(),
        pools,
        recording: RecordingConfig {
            enabled: raw.recording.value.enabled.value,
        },
        region,
    }
}

fn listen(raw: &RawConfig, errors: &mut Errors) -> Vec<Listen> {
    let listen = &raw.listen;
    if listen.value.0.is_empty() && !listen.wrong {
        errors.add(
            listen.location,
            "listen",
            "empty: Envoy could not reach the service",
        );
    }
    let mut taken = Unique::new("address");
    for address in &listen.value.0 {
        let free = matches!(address.value, Listen::Tcp(tcp) if tcp.port() == 0);
        if !free {
            let option = format!("listen[{}]", address.index);
            taken.claim(
                &address.value.to_string(),
                address.location,
                &option,
                errors,
            );
        }
    }
    let admin = &raw.admin.value.listen;
    if admin.value.port() != 0 && !admin.wrong {
        taken.claim(
            &admin.value.to_string(),
            admin.location,
            "admin.listen",
            errors,
        );
    }
    let region = &raw.region.value.listen;
    if raw.region.location.is_some() && region.value.port() != 0 && !region.wrong {
        let address = region.value.to_string();
        let location = region.location.or(raw.region.location);
        taken.claim(&address, location, "region.listen", errors);
    }
    listen
        .value
        .0
        .iter()
        .map(|field| field.value.clone())
        .collect()
}

fn resolve_pool(pool: &Item<RawPool>, option: &str, errors: &mut Errors) -> PoolConfig {
    let raw = &pool.value;
    let model = raw.model.value.0.clone();
    let cluster = match &raw.cluster.value.0 {
        Some(cluster) => cluster.0.clone(),
        None if raw.model.value.is_any() => ANY_CLUSTER.to_owned(),
        None => {
            if !model.bytes().all(|byte| byte.is_ascii_graphic()) {
                let message = format!(
                    "`{model}` cannot name an Envoy cluster (visible ASCII characters only): give `cluster` as well"
                );
                errors.add(raw.model.location, format!("{option}.model"), message);
            }
            model.clone()
        }
    };
    let outstanding = &raw.outstanding_max;
    let push = match raw.push.value.0 {
        PushName::Pending => Push::Pending,
        PushName::Blind => Push::Blind,
        PushName::Outstanding => Push::Outstanding {
            max: u32::try_from(outstanding.value.get()).unwrap_or(u32::MAX),
        },
    };
    let fits = raw.push.wrong || raw.push.value.0 == PushName::Outstanding;
    if outstanding.location.is_some() && !fits {
        let message = format!(
            "has no effect with `push: {}`: remove it, or write `push: outstanding`",
            raw.push.value
        );
        errors.add(
            outstanding.location,
            format!("{option}.outstanding_max"),
            message,
        );
    }
    check_probe(&raw.probe.value, option, errors);
    PoolConfig {
        model,
        aliases: raw
            .aliases
            .value
            .0
            .iter()
            .map(|alias| alias.value.0.clone())
            .collect(),
        cluster,
        router: RouterConfig {
            policy: raw.policy.value.0,
            push,
            queue: QueueLimits {
                length_max: raw.queue.value.length_max.value.size(),
                wait_max: raw.queue.value.wait_ms_max.value.duration(),
            },
            index: IndexLimits {
                bytes_max: raw.index.value.bytes_max.value.size(),
                eviction: raw.index.value.eviction.value.0,
            },
            ttft_slo: raw.ttft_slo_ms.value.duration(),
            probe_stale_after: raw.probe.value.stale_after_ms.value.duration(),
            ..RouterConfig::default()
        },
        engine: raw.engine.value.0,
        probe: ProbeConfig {
            interval: raw.probe.value.interval_ms.value.duration(),
            timeout: raw.probe.value.timeout_ms.value.duration(),
            path: raw.probe.value.path.value.0.clone().map(|path| path.0),
        },
        sources: sources(&raw.replicas.value, &format!("{option}.replicas"), errors),
    }
}

fn check_probe(probe: &RawProbe, option: &str, errors: &mut Errors) {
    let (interval, stale) = (
        probe.interval_ms.value.get(),
        probe.stale_after_ms.value.get(),
    );
    if stale <= interval && !probe.interval_ms.wrong && !probe.stale_after_ms.wrong {
        let message = format!(
            "{stale} ms is not longer than interval_ms ({interval}): every replica would go stale between two probes"
        );
        let location = probe.stale_after_ms.location.or(probe.interval_ms.location);
        errors.add(location, format!("{option}.probe.stale_after_ms"), message);
    }
}

fn sources(raw: &RawReplicas, option: &str, errors: &mut Errors) -> Sources {
    let mut addresses = Unique::new("replica");
    for address in &raw.r#static.value.0 {
        let option = format!("{option}.static[{}]", address.index);
        addresses.claim(
            &address.value.to_string(),
            address.location,
            &option,
            errors,
        );
        if address.value.port() == 0 {
            errors.add(address.location, option, "port 0 reaches nothing");
        }
    }
    let dns = raw.dns.value.0.as_ref().and_then(|dns| {
        if dns.name.value.0.is_none() && !dns.name.wrong {
            let message = "the name to resolve must be given";
            errors.add(raw.dns.location, format!("{option}.dns.name"), message);
        }
        Some(DnsSource {
            name: dns.name.value.0.clone()?.0,
            port: u16::try_from(dns.port.value.get()).ok()?,
            interval: dns.interval_ms.value.duration(),
        })
    });
    Sources {
        fixed: raw
            .r#static
            .value
            .0
            .iter()
            .map(|field| field.value)
            .collect(),
        dns,
    }
}

/// Names of which each may be claimed once.
pub(super) struct Unique {
    what: &'static str,
    claimed: BTreeMap<String, (String, Option<SourceLocation>)>,
}

impl Unique {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            what,
            claimed: BTreeMap::new(),
        }
    }

    pub(super) fn claim(
        &mut self,
        name: &str,
        location: Option<SourceLocation>,
        option: &str,
        errors: &mut Errors,
    ) {
        match self.claimed.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert((option.to_owned(), location));
            }
            Entry::Occupied(entry) => {
                let (first, first_place) = entry.get();
                let line = first_place
                    .map_or_else(String::new, |location| format!(", line {}", location.line));
                let message = format!("the {} `{name}` is taken by {first}{line}", self.what);
                errors.add(location, option, message);
            }
        }
    }
}
