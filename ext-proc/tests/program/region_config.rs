//! The section `region` of configuration files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_ext_proc::config::{self, ConfigErrors, RegionConfig, TlsFiles};
use isotherm_router::ForwardingRule;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn region(text: &str) -> Result<Option<RegionConfig>, ConfigErrors> {
    config::parse(&format!("region: {text}")).map(|config| config.region)
}

/// The mistakes of a section, as lines of text.
fn mistakes(text: &str) -> String {
    region(text).unwrap_err().to_string()
}

#[test]
fn every_option_of_the_section_arrives_and_files_are_relative_to_the_file() {
    let config = config::load(&data("config-full.yaml")).unwrap();
    let region = config.region.unwrap();
    assert_eq!(region.name, "us");
    assert_eq!(region.listen, "0.0.0.0:9104".parse().unwrap());
    assert_eq!(
        region.tls,
        Some(TlsFiles {
            certificate: data("certs/us.pem"),
            key: data("certs/us.key"),
            ca: "/etc/isotherm/ca.pem".into(),
        })
    );
    assert_eq!(region.heartbeat, Duration::from_millis(100));
    assert_eq!(region.queue_max, 7);
    assert_eq!(region.rules().forwarding, ForwardingRule::Published);
    assert_eq!(region.give_back_after, Duration::from_secs(3));
    let store = region.store.unwrap();
    let etcd = store.etcd.unwrap();
    assert_eq!(etcd.endpoints.len(), 2);
    assert_eq!(etcd.prefix, "/isotherm/");
    assert_eq!(etcd.tls.unwrap().certificate, data("certs/etcd.pem"));
    assert_eq!(store.lease, Duration::from_secs(5));
    assert_eq!(store.advertise.unwrap().to_string(), "us.example:9104");
    assert_eq!(store.networks, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!(region.peers[1].replicas, ["10.2.0.0/16".parse().unwrap()]);
    let peers: Vec<_> = region
        .peers
        .iter()
        .map(|peer| format!("{} {} {}", peer.name, peer.address, peer.cluster))
        .collect();
    assert_eq!(
        peers,
        [
            "eu eu.example:9004 eu-gateway",
            "asia-1 10.2.0.1:9004 region-asia-1"
        ]
    );
    let siblings: Vec<_> = region.siblings.iter().map(ToString::to_string).collect();
    assert_eq!(siblings, ["10.0.0.12:9004", "isotherm-2.us.example:9004"]);
}

#[test]
fn without_the_section_a_region_is_alone() {
    assert_eq!(config::parse("").unwrap().region, None);
    assert_eq!(region("").unwrap(), None);
}

#[test]
fn the_least_that_can_be_written_means_the_defaults() {
    let region = region("{ name: us, tls: { certificate: a, key: b, ca: c } }")
        .unwrap()
        .unwrap();
    assert_eq!(region.listen, "0.0.0.0:9004".parse().unwrap());
    assert_eq!(region.heartbeat, Duration::from_millis(200));
    assert_eq!(region.silence_max(), Duration::from_millis(600));
    assert_eq!(region.queue_max, 4);
    assert_eq!(region.forwarding, ForwardingRule::Cost);
    assert_eq!(region.give_back_after, Duration::from_secs(10));
    assert_eq!(region.store, None);
    assert!(region.peers.is_empty() && region.siblings.is_empty());
}

#[test]
fn every_mistake_of_the_section_is_reported_with_its_line() {
    let errors = config::load(&data("region-bad.yaml")).unwrap_err();
    let found: Vec<(u64, &str)> = errors
        .errors
        .iter()
        .map(|error| {
            let line = error.location.map_or(0, |location| location.line);
            (line, error.option.as_str())
        })
        .collect();
    assert_eq!(
        found,
        [
            (5, "region.name"),
            (6, "region.listen"),
            (7, "region.plaintext"),
            (8, "region.tls.ca"),
            (8, "region.tls.key"),
            (9, "region.heartbeat_ms"),
            (11, "region.peers[0].cluster"),
            (12, "region.peers[1].name"),
            (12, "region.peers[1].address"),
            (12, "region.peers[1].cluster"),
            (13, "region.peers[2].name"),
            (13, "region.peers[2].address"),
            (14, "region.peers[3].address"),
            (15, "region.peers[4].name"),
            (15, "region.peers[4].address"),
            (15, "region.peers[4].clustr"),
            (16, "region.siblings[0]"),
            (16, "region.siblings[1]"),
        ],
        "{errors}"
    );
    let text = errors.to_string();
    for part in [
        "`US` is not the name of a region, such as eu or us-east-1",
        "the address `127.0.0.1:9003` is taken by admin.listen, line 2",
        "the region `eu` is taken by region.peers[0].name, line 11",
        "the cluster `region-eu` is taken by pools[0].cluster, line 3",
        "remove one of the two",
        "`eu.example` is not host:port",
    ] {
        assert!(text.contains(part), "missing: {part}\nin:\n{text}");
    }
}

#[test]
fn a_region_is_not_its_own_peer() {
    let text = mistakes(
        "{ name: us, tls: { certificate: a, key: b, ca: c }, peers: [{ name: us, address: \"a:1\" }] }",
    );
    assert!(
        text.contains("region.peers[0].name: the region `us` is taken by region.name"),
        "{text}"
    );
}

#[test]
fn links_are_protected_or_stay_on_this_machine() {
    let text = mistakes("{ name: us }");
    assert!(text.contains("region.tls: must be given"), "{text}");

    let peers =
        "peers: [{ name: eu, address: \"127.0.0.1:2\" }, { name: asia, address: \"10.0.0.1:3\" }]";
    let siblings = "siblings: [\"localhost:4\", \"us.example:5\"]";
    let text = mistakes(&format!(
        "{{ name: us, plaintext: true, {peers}, {siblings} }}"
    ));
    for option in [
        "region.listen",
        "region.peers[1].address",
        "region.siblings[1]",
    ] {
        assert!(text.contains(&format!("{option}: ")), "{option}\n{text}");
    }
    assert!(text.contains("3 mistakes"), "{text}");

    let peer = "peers: [{ name: eu, address: \"127.0.0.1:2\" }]";
    let fine = format!("{{ name: us, plaintext: true, listen: \"[::1]:1\", {peer} }}");
    let region = region(&fine).unwrap().unwrap();
    assert!(region.plaintext && region.tls.is_none());
}

#[test]
fn more_peers_than_can_be_kept_are_refused() {
    let peers = |count: usize| {
        let peers: Vec<_> = (0..count)
            .map(|n| format!("{{ name: r{n}, address: \"r{n}.example:9004\" }}"))
            .collect();
        let tls = "tls: { certificate: a, key: b, ca: c }";
        region(&format!(
            "{{ name: us, {tls}, peers: [{}] }}",
            peers.join(", ")
        ))
    };
    assert_eq!(peers(256).unwrap().unwrap().peers.len(), 256);
    let text = peers(257).unwrap_err().to_string();
    assert!(text.contains("at most 256"), "{text}");
}

#[test]
fn a_store_is_of_one_kind_and_has_endpoints() {
    let store = |text: &str| {
        region(&format!(
            "{{ name: us, plaintext: true, listen: '127.0.0.1:1', store: {text} }}"
        ))
    };
    let parsed = store("{ etcd: { endpoints: ['127.0.0.1:2379'] } }")
        .unwrap()
        .unwrap();
    let store_config = parsed.store.unwrap();
    assert_eq!(store_config.lease, Duration::from_secs(10));
    assert_eq!(store_config.etcd.unwrap().prefix, "/isotherm/regions/");
    for (text, mistake) in [
        ("{}", "give one of `etcd` and `kubernetes`"),
        (
            "{ etcd: { endpoints: ['a:1'] }, kubernetes: {} }",
            "give only one of `etcd` and `kubernetes`",
        ),
        ("{ etcd: {} }", "region.store.etcd.endpoints"),
        (
            "{ etcd: { endpoints: [] } }",
            "must name at least one address",
        ),
        (
            "{ etcd: { endpoints: ['a:1'], prefix: 'a b' } }",
            "is not a prefix of keys",
        ),
        (
            "{ etcd: { endpoints: ['a:1'] }, networks: [10.0.0.300/8] }",
            "10.2.0.0/16",
        ),
        (
            "{ etcd: { endpoints: ['a:1'] }, lease_ms: 5 }",
            "region.store.lease_ms",
        ),
    ] {
        let errors = store(text).unwrap_err().to_string();
        assert!(errors.contains(mistake), "{text}: {errors}");
    }
    let errors = mistakes(
        "{ name: us, plaintext: true, listen: '127.0.0.1:1', heartbeat_ms: 1000, \
         store: { kubernetes: {}, lease_ms: 2999 } }",
    );
    assert!(errors.contains("must be at least 3000"), "{errors}");
}
