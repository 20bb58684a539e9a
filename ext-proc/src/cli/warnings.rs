//! Warnings of `isotherm check`: a file without mistakes may still be unable to do what it seems to.

use std::fs::File;
use std::path::Path;

use crate::config::{Config, PoolConfig};
use crate::descriptors;

/// The warnings on a configuration, in the order of its options.
pub(super) fn find(config: &Config) -> Vec<String> {
    let mut warnings = unreadable_files(config);
    warnings.extend(pools_without_replicas(config));
    let replicas = config
        .pools
        .iter()
        .map(|pool| pool.sources.fixed.len() as u64);
    warnings.extend(descriptors::advice(replicas.sum(), descriptors::limit()));
    warnings
}

/// Files of the configuration that cannot be read now: the service would start without what they are for, or not at all.
fn unreadable_files<'a>(config: &'a Config) -> Vec<String> {
    let mut files: Vec<(String, &Path)> = Vec::new();
    let mut add = |option: &str, file: Option<&'a Path>| {
        files.extend(file.map(|file| (option.to_owned(), file)));
    };
    if let Some(tls) = &config.tls {
        add("tls.certificate", tls.certificate.as_deref());
        add("tls.key", tls.key.as_deref());
        add("tls.client_ca", tls.client_ca.as_deref());
    }
    add("admin.token_file", config.admin.token_file.as_deref());
    let webhook = |pool: &'a PoolConfig| {
        let scaling = pool.scaling.as_ref()?;
        scaling.webhook.as_ref()?.token_file.as_deref()
    };
    for (n, pool) in config.pools.iter().enumerate() {
        add(
            &format!("pools[{n}].scaling.webhook_token_file"),
            webhook(pool),
        );
        let ca = pool.probe.ca.as_deref();
        add(&format!("pools[{n}].probe.ca"), ca);
        let token = pool.probe.token_file.as_deref();
        add(&format!("pools[{n}].probe.token_file"), token);
    }
    let region = config.region.as_ref();
    let store = region.and_then(|region| region.store.as_ref());
    let links = [
        ("region.tls", region.and_then(|region| region.tls.as_ref())),
        (
            "region.store.tls",
            store.and_then(|store| store.tls.as_ref()),
        ),
    ];
    for (section, tls) in links {
        let Some(tls) = tls else { continue };
        add(&format!("{section}.certificate"), Some(&tls.certificate));
        add(&format!("{section}.key"), Some(&tls.key));
        add(&format!("{section}.ca"), Some(&tls.ca));
    }
    let unreadable = files.into_iter().filter_map(|(option, file)| {
        let error = File::open(file).err()?;
        Some(format!(
            "{option}: {} cannot be read: {error}",
            file.display()
        ))
    });
    unreadable.collect()
}

/// Pools that can never get a replica: the file names none, and the admin interface rejects changes. Another region may serve them.
fn pools_without_replicas(config: &Config) -> Vec<String> {
    if config.admin.token_file.is_some() || config.region.is_some() {
        return Vec::new();
    }
    let has_source = |pool: &PoolConfig| {
        let sources = &pool.sources;
        !sources.fixed.is_empty() || sources.dns.is_some() || sources.kubernetes.is_some()
    };
    let without = config.pools.iter().filter(|pool| !has_source(pool));
    let warnings = without.map(|pool| {
        format!(
            "the pool `{}` can never get a replica: give `replicas`, or `admin.token_file` so that `isotherm replicas add` may add \
             some",
            pool.model
        )
    });
    warnings.collect()
}
